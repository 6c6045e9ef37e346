"""Alerts: conditions over the metrics of a lake, what becomes of them, and where they are sent."""
