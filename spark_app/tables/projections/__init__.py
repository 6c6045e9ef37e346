"""The projection of silver: which columns a row has there, by expressions in SQL that DuckDB evaluates."""
