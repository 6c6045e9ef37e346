"""What decides what comes into the tables, and when."""
