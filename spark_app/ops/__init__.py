"""What people see of a running app."""
