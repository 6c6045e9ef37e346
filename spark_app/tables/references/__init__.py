"""Reference tables: small tables whose columns are joined to the rows of silver."""
