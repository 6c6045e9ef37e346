"""Arrow schemas of records: the columns read from Kafka and kept in bronze, and silver's columns about the record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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

# Such a column, too: Kafka's milliseconds of a timestamp outside the years 1 to 9999, which many readers fail on.
# `timestamp` has the nearest time in these years.
NUMBER = "timestamp_number"
RARE_SCHEMA = pa.schema([*OMITTED_SCHEMA, (NUMBER, pa.int64())])
FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z


def bounded_times(counts: pa.Array, factor: int) -> tuple[pa.Array, pa.Array]:
    """(timestamps, their numbers: NULL for each that is within the bounds).

    Args:
        counts: int64, of `factor` microseconds since 1970.
    """
    late = pc.min_element_wise(counts, LAST_MICROSECOND // factor, skip_nulls=False)
    near = pc.max_element_wise(late, FIRST_MICROSECOND // factor, skip_nulls=False)
    numbers = pc.if_else(pc.equal(counts, near), pa.scalar(None, pa.int64()), counts)
    return pc.multiply(near, factor).cast(TIMESTAMP), numbers


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

LANDED = "_landed_at"
# The columns of every silver row besides the fields of its message.
LINEAGE_SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_topic_id", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("_schema_id", pa.int64()),
        (LANDED, pa.timestamp("us", "UTC")),
    ]
)

# The columns that identify a record in bronze, and in silver.
COORDINATES = ["topic", "topic_id", "partition", "offset"]
LINEAGE_COORDINATES = ["_topic", "_topic_id", "_partition", "_offset"]

# Column names that no field of a message may have, in any case. Some of them exist only in certain tables.
RESERVED = frozenset(LINEAGE_SCHEMA.names) | {"_key", "_wrapper", "_schema_guid", "_definition"}
