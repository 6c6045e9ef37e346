"""What a lake says of itself as numbers: for scrapes of Prometheus, and for alerts."""
