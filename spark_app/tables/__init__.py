"""What a silver table is: its name and columns, `expectations`, `projections`, `references`, and the `sql` of these."""
