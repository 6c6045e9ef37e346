"""Files of framed records, as other programs export them."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.schema_registry import SchemaRegistryClient

from producer.encoder import Encoder
from producer.games import Event
from producer.schemas import compile_version

OLD_S = 1_000_000_000  # a time of content long ago


@functools.cache
def _encoder() -> Encoder:
    """Confluent's serializer on a registry in memory."""
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    client.register_schema("files-value", compile_version(1).registry_form)
    return Encoder("files", compile_version(1), client)


def framed(count: int, first: int = 0) -> list[bytes]:
    """Frames of events that differ."""
    return [_encoder().encode(Event("rummy", f"g{n}", "d", 0, ()), OLD_S * 1_000_000 + n) for n in range(first, count)]


def parquet_table(values: Sequence[bytes | None], first: int = 0) -> pa.Table:
    """Key, value and timestamp of records."""
    numbers = range(first, first + len(values))
    return pa.table(
        {
            "key": pa.array([b"k%d" % number for number in numbers], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def parquet_bytes(values: Sequence[bytes | None], group: int = 1000) -> bytes:
    sink = io.BytesIO()
    pq.write_table(parquet_table(values), sink, row_group_size=group)
    return sink.getvalue()


def write_parquet(path: Path, values: Sequence[bytes | None], group: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(parquet_table(values), path, row_group_size=group)


def json_text(values: Sequence[bytes | None]) -> str:
    """Lines with the values in base64."""
    lines = [{"value": None if value is None else base64.b64encode(value).decode()} for value in values]
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_json(path: Path, values: Sequence[bytes | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(values))


def replace_file(path: Path, data: bytes) -> None:
    """Put a file into place in one step, as a careful writer does."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    os.replace(temporary, path)
