"""What is on the disk: decided units, Delta commits and logs, and whether they agree."""
