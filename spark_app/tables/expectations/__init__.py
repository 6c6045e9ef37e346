"""The checks of expectations: which SQL a check may be, and which rows fail it. DuckDB parses and evaluates them."""
