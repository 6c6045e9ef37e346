"""What views ask a process of their own, which ends with its answer: it may load pyarrow and DuckDB, and crash."""
