"""`rows` with one table, partitioned by game, instead of a table for each game."""

from scripts.benches.rivals import rows

if __name__ == "__main__":
    rows.run(tuned=False, partitioned=True)
