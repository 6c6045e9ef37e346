"""What reads committed units: `gold` and the table of `events`.

A follower never holds up ingest, and knows no other follower.
"""
