"""Silver tables: their names and columns, `expectations`, `projections`, `references`, and the `sql` of these."""
