"""Framed records for tests, written by Confluent's own code, as the Arrow batches that the pass takes in."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka.schema_registry.serde import SchemaId

from spark_app.records import SOURCE_SCHEMA


def frame(schema_id: int, payload: bytes, index: Sequence[int] = (0,)) -> bytes:
    """A record value: header by the official client, then the payload."""
    header = SchemaId("PROTOBUF", schema_id=schema_id, message_indexes=list(index)).id_to_bytes()
    return header + payload


def batch_of(values: Sequence[bytes | None], first: int = 0, topic: str = "t", partition: int = 0) -> pa.RecordBatch:
    """Records at consecutive offsets of one partition; their keys, headers and times follow from the offset."""
    offsets = range(first, first + len(values))
    columns = {
        "key": [b"k%d" % offset for offset in offsets],
        "value": list(values),
        "headers": [None if offset % 2 else "[]" for offset in offsets],
        "topic": [topic] * len(values),
        "partition": [partition] * len(values),
        "offset": list(offsets),
        "timestamp": [1_700_000_000_000_000 + offset for offset in offsets],
        "timestamp_type": [0] * len(values),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SOURCE_SCHEMA], schema=SOURCE_SCHEMA
    )
