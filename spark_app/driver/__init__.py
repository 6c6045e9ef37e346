"""What decides, and the only writer of tables."""
