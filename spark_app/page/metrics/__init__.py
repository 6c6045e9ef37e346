"""A lake in numbers: for scrapes of Prometheus, and for alerts."""
