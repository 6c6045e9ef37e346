"""The schemas that the lake knows, and a view of each."""
