"""Decodes records again: `replay` for quarantine, `rebuild` for silver and gold; `doctor` checks and repairs a lake.

The package runs on request, after all stages of a record. `replay` and `rebuild` read bronze instead of Kafka.
"""
