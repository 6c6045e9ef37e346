"""Protolake's Spark app: Confluent-framed Protobuf from Kafka to Delta tables, one per game.

The packages are the way of a record, and then what people do with a lake. Each imports only those above it; the
docstring of a package says what is in it.

    model
    settings
    lake
    protobuf
    sources
    tables
    units
    followers
    recovery
    audit
    page
    app

`README.md` in this folder follows one record through the modules.

The reasons: docs/decisions/layout.md.
"""

__version__ = "0.2.0"
