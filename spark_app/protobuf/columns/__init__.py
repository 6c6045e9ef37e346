"""Types of columns, and how values of one type become values of another."""
