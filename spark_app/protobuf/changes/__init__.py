"""The differences between two versions of a schema, and their effect on columns."""
