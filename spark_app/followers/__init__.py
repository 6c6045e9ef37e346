"""What reads the committed units, in their order and beside ingest, and which manifests are kept for it.

A follower never holds up ingest, and knows no other follower.
"""
