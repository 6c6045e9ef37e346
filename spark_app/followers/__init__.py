"""Readers of committed units: `gold` and the table of `events`.

A follower never delays ingest, and knows no other follower.
"""
