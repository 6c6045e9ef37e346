"""Framed records for tests, written by Confluent's own code, as the Arrow batches that a task reads."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka.schema_registry.serde import SchemaId

from spark_app.model.catalog import SchemaKey
from spark_app.model.record_schemas import OMITTED_SCHEMA, SOURCE_SCHEMA


def frame(schema: SchemaKey, payload: bytes, index: Sequence[int] = (0,)) -> bytes:
    """A record value: frame by the official client (magic byte 1 for a GUID), then the payload."""
    if isinstance(schema, str):
        return bytes(SchemaId("PROTOBUF", guid=schema, message_indexes=list(index)).guid_to_bytes()) + payload
    return bytes(SchemaId("PROTOBUF", schema_id=schema, message_indexes=list(index)).id_to_bytes()) + payload


def headers_of(headers: Sequence[Sequence[tuple[str, bytes]] | None]) -> pa.Array:
    """Record headers as the source hands them on: JSON, values in base64."""
    texts = [
        None
        if each is None
        else json.dumps(
            [{"key": name, "value": base64.b64encode(data).decode()} for name, data in each], separators=(",", ":")
        )
        for each in headers
    ]
    return pa.array(texts, pa.string())


def batch_of(
    values: Sequence[bytes | None],
    first: int = 0,
    topic: str | Sequence[str] = "t",
    partition: int = 0,
    **columns_given: pa.Array,
) -> pa.RecordBatch:
    """Records at consecutive offsets of one partition; keys, headers and times follow from the offset if not given."""
    offsets = range(first, first + len(values))
    columns = {
        "key": [b"k%d" % offset for offset in offsets],
        "value": list(values),
        "headers": [None if offset % 2 else "[]" for offset in offsets],
        "topic": [topic] * len(values) if isinstance(topic, str) else topic,
        "partition": [partition] * len(values),
        "offset": list(offsets),
        "timestamp": [1_700_000_000_000_000 + offset for offset in offsets],
        "timestamp_type": [0] * len(values),
    }
    return pa.RecordBatch.from_arrays(
        [columns_given.get(f.name, pa.array(columns[f.name], f.type)) for f in SOURCE_SCHEMA], schema=SOURCE_SCHEMA
    )


def leave_out(batch: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """The batch as a source hands it on that takes values of so many bytes only."""
    values = batch.column("value").to_pylist()
    large = [value is not None and len(value) > most for value in values]
    if not any(large):
        return batch
    kept = [None if is_large else value for value, is_large in zip(values, large, strict=True)]
    sizes = [len(value) if is_large else None for value, is_large in zip(values, large, strict=True)]
    digests = [
        hashlib.sha256(value).hexdigest() if is_large else None for value, is_large in zip(values, large, strict=True)
    ]
    columns = [pa.array(kept, pa.binary()) if name == "value" else batch.column(name) for name in SOURCE_SCHEMA.names]
    omitted = [pa.array(column, f.type) for column, f in zip((sizes, digests), OMITTED_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays([*columns, *omitted], schema=pa.schema([*SOURCE_SCHEMA, *OMITTED_SCHEMA]))
