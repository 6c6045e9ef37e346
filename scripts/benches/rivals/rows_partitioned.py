"""`rows` with one table, partitioned by game, instead of a table for each."""

from scripts.benches.rivals import rows

if __name__ == "__main__":
    rows.run(tuned=False, partitioned=True)
