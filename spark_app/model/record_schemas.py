"""The Arrow schemas of records: as Kafka has them, as bronze keeps them, and what silver carries of them."""

from __future__ import annotations

import pyarrow as pa

# The coordinates and the record itself, as the pass takes them in and bronze keeps them.
SOURCE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),  # JSON array of {key, value (base64)}, NULL when there are none
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
    ]
)

# What stands for a value that was too large to be taken: its size, and its SHA-256 as hex digits. A batch or a table
# has these columns only once it has such a record; they are NULL for all others.
OMITTED_SCHEMA = pa.schema([("omitted_bytes", pa.int64()), ("omitted_sha256", pa.string())])

# What every silver row carries besides the fields of its message.
LINEAGE_SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_topic_id", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("_schema_id", pa.int64()),
        ("_landed_at", pa.timestamp("us", "UTC")),
    ]
)

# Column names that no field of a message can have, whatever its case; some of them only certain tables have.
RESERVED = frozenset(LINEAGE_SCHEMA.names) | {"_key", "_wrapper", "_schema_guid"}
