"""`arrow` with one table, partitioned by game, instead of a table for each game."""

from scripts.benches.rivals import arrow

if __name__ == "__main__":
    arrow.main(partitioned=True)
