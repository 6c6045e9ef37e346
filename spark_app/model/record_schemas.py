"""Arrow schemas of records: the columns read from Kafka and kept in bronze, and silver's columns about the record."""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
SHARED = pa.dictionary(pa.int32(), pa.string())  # for text that many rows share: tasks copy numbers instead of text

# The record and its coordinates, as a task reads them and bronze keeps them.
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

# Columns for a value over the size limit: its size in bytes and its SHA-256 in hex. A batch or table has these columns
# only if it has such a record; they are NULL for all other records.
OMITTED_SCHEMA = pa.schema([("omitted_bytes", pa.int64()), ("omitted_sha256", pa.string())])

# The rows of bronze, and those of records that wait.
BRONZE_SCHEMA = pa.schema(
    [
        *[field.with_type(SHARED) if field.name == "topic" else field for field in SOURCE_SCHEMA],
        ("topic_id", SHARED),
        ("schema_id", pa.int64()),
        ("schema_guid", pa.string()),
        ("landed_at", TIMESTAMP),
    ]
)
DEFERRED_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("schema_id", pa.int64()),
        ("waits_for", pa.string()),
        ("deferred_at", TIMESTAMP),
        ("table", pa.string()),  # a file has this column only if it has rows of paused tables
    ]
)

# The columns of every silver row besides the fields of its message.
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

# The columns that identify a record in bronze, and in silver.
COORDINATES = ["topic", "topic_id", "partition", "offset"]
LINEAGE_COORDINATES = ["_topic", "_topic_id", "_partition", "_offset"]

# Column names that no field of a message may have, in any case. Some of them exist only in certain tables.
RESERVED = frozenset(LINEAGE_SCHEMA.names) | {"_key", "_wrapper", "_schema_guid", "_definition"}
