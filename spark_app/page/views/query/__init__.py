"""Read-only SQL over the tables of the lake."""
