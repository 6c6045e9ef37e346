"""What can be set, and how it is read."""
