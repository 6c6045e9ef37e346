"""Alerts: conditions over the metrics of a lake, what becomes of them, and who is told."""
