"""SQL over rows, by DuckDB."""
