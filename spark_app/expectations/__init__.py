"""Rules that rows of silver must meet: what a rule may say, and how DuckDB checks rows."""
