"""The way of 2022 by a user who knows which of Spark's settings matter: `rows` with those of the app."""

from scripts.benches.rivals import rows

if __name__ == "__main__":
    rows.run(tuned=True)
