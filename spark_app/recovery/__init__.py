"""Decodes records again: `replay` for quarantine, `rebuild` for silver and gold; `doctor` checks and repairs a lake.

The package works on records that are already in bronze: behind ingest and gold, on request only, and without Kafka.
"""
