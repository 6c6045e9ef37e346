"""What differs between two versions of a schema, and what that does to columns."""
