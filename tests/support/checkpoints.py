"""Spark's checkpoint of the ingest query, written as Spark 4.2 writes it, checksums included."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from spark_app.model.offsets import Offsets

METADATA = '{"id":"89c28283-6e98-454d-8998-c1409788f60a"}'
CHECKSUM_OF_METADATA = bytes.fromhex("6372630000000200644dd109")  # by Hadoop


def write_checkpoint(
    folder: Path, start: Offsets, ends: list[Offsets], done: int | None = None, first: int = 0
) -> None:
    """Batches from `first` on that end there; the first `done` of them are done (None = all)."""
    write(folder / "metadata", METADATA)
    write(folder / "sources" / "0" / "0", f"\0v1\n{json.dumps(start)}")
    for number, end in enumerate(ends, first):
        write(folder / "offsets" / str(number), f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{json.dumps(end)}')
    for number in range(first, first + (len(ends) if done is None else done)):
        write(folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    checksum(path).write_bytes(b"crc\0" + struct.pack(">II", 512, zlib.crc32(path.read_bytes())))


def checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
