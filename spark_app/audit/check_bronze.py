"""Checks bronze: each record exactly once, with the bytes of Kafka. Also checks the raw columns of quarantine."""

from __future__ import annotations

import hashlib
import json
from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_app.audit.chunk import OTHER_BARE, Chunk, Found
from spark_app.audit.source_records import headers_of
from spark_app.audit.values import mark, unequal
from spark_app.audit.verdict import ALTERED, DOUBLED, LOST, PHANTOM
from spark_app.model.errors import ConfigurationError
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import NUMBER, OMITTED_SCHEMA

DIGEST = OMITTED_SCHEMA.names[1]
UNREADABLE = "records whose headers the client cannot read (a name is not UTF-8): their headers were not compared"
Digests = tuple[np.ndarray, np.ndarray]  # offsets, ascending; 32 bytes each, zeros for a tombstone
NONE: Digests = (np.empty(0, np.int64), np.empty((0, 32), np.uint8))


class Acknowledged:
    """Offsets and digests of acknowledged records, by topic and partition; 40 bytes per record."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Digests] = {}

    def put(self, topic: str, partition: int, offsets: np.ndarray, digests: np.ndarray) -> None:
        """Store the records of a partition: int64 offsets (n) in any order, uint8 digests (n, 32)."""
        order = np.argsort(offsets, kind="stable")
        self._found[topic, partition] = (offsets[order], digests[order])

    def of(self, span: Span) -> Digests:
        """Offsets and digests of the span's acknowledged records."""
        offsets, digests = self._found.get((span.topic, span.partition), NONE)
        low, high = np.searchsorted(offsets, [span.start, span.end])
        return offsets[low:high], digests[low:high]


def read_acks(path: Path) -> Acknowledged:
    """Read the file of a producer. An incomplete last line is ignored.

    Raises:
        ConfigurationError: the file cannot be read, or a line is not an acknowledgement.
    """
    offsets: dict[tuple[str, int], array[int]] = {}
    digests: dict[tuple[str, int], bytearray] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n"):
                    position, offset, digest = _read_line(line, f"line {number} of {path}")
                    offsets.setdefault(position, array("q")).append(offset)
                    digests.setdefault(position, bytearray()).extend(digest)
    except OSError as error:
        raise ConfigurationError(f"--acks: cannot read {path} ({error.strerror})") from None
    found = Acknowledged()
    for (topic, partition), positions in offsets.items():
        raw = np.frombuffer(bytes(digests[topic, partition]), np.uint8).reshape(-1, 32)
        found.put(topic, partition, np.array(positions, np.int64), raw)
    return found


def _read_line(line: str, where: str) -> tuple[tuple[str, int], int, bytes]:
    try:
        fields = json.loads(line)
        digest = bytes.fromhex(fields["sha256"]) if fields["sha256"] else bytes(32)
        return (fields["topic"], int(fields["partition"])), int(fields["offset"]), digest
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"--acks: {where} is not an acknowledgement ({error})") from None


def check_bronze(chunk: Chunk, acks: Acknowledged) -> None:
    """Compare bronze with Kafka, and with the acknowledged records even if Kafka has deleted them."""
    name = chunk.snapshot.layout.bronze
    bronze, counts = chunk.tables.get(name), chunk.counts(name)
    safe, digests = _safe(chunk, acks)
    due = chunk.record_at >= 0
    due[safe] |= ~chunk.given_up[safe]
    chunk.add(LOST, name, np.flatnonzero(due & (counts < 1)))
    chunk.add(DOUBLED, name, np.flatnonzero(due & (counts > 1)))
    chunk.add(PHANTOM, name, np.flatnonzero(~due & (counts > 0)))
    if bronze is not None:
        compare_raw(chunk, bronze)
        _compare_digests(chunk, bronze, safe, digests)


def _safe(chunk: Chunk, acks: Acknowledged) -> tuple[np.ndarray, np.ndarray]:
    """(slots of the acknowledged records, their digests)."""
    slots, digests = [], []
    for span in chunk.slots.spans:
        offsets, own = acks.of(span)
        slots.append(chunk.slots.of(np.full(len(offsets), span.partition), offsets))
        digests.append(own)
    return np.concatenate(slots), np.concatenate(digests)


def _compare_digests(chunk: Chunk, bronze: Found, safe: np.ndarray, digests: np.ndarray) -> None:
    rows, values = chunk.slots.invert(bronze.slots)[safe], bronze.column("value")
    kept = bronze.column(DIGEST) if DIGEST in bronze.rows.column_names else pa.nulls(len(values), pa.string())
    wrong = [
        row >= 0 and (kept[row].as_py() or _digest(values[row].as_py())) != digest.tobytes().hex()
        for row, digest in zip(rows, digests, strict=True)
    ]
    chunk.add(
        ALTERED, bronze.table.name, safe[np.array(wrong, bool)], "differs from the record that the broker acknowledged"
    )


def _digest(value: bytes | None) -> str:
    return "00" * 32 if value is None else hashlib.sha256(value).hexdigest()


def compare_raw(chunk: Chunk, found: Found) -> None:
    """Compare the raw columns of bronze or quarantine, for rows whose records are known."""
    records = chunk.record_at[found.slots]
    known = np.flatnonzero(records >= 0)
    rows, slots, own = found.rows.take(pa.array(known)), found.slots[known], records[known]
    wrong = np.full(len(known), "", object)
    for name, values in (("value", chunk.values), ("key", chunk.keys), ("timestamp", chunk.times)):
        mark(wrong, unequal(values.take(pa.array(own)), rows[name].combine_chunks()), name)
    for field in OMITTED_SCHEMA if chunk.records.omitted or DIGEST in rows.column_names else ():
        kept = rows[field.name].combine_chunks() if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        mark(wrong, unequal(chunk.omitted[field.name].combine_chunks().take(pa.array(own)), kept), field.name)
    if chunk.records.numbers or NUMBER in rows.column_names:
        kept = rows[NUMBER].combine_chunks() if NUMBER in rows.column_names else pa.nulls(len(rows), pa.int64())
        mark(wrong, unequal(pa.array(map(chunk.records.numbers.get, own.tolist()), pa.int64()), kept), NUMBER)
    types = np.array(chunk.records.time_type, np.int64)[own]
    mark(wrong, unequal(pa.array(types), rows["timestamp_type"].combine_chunks().cast(pa.int64())), "timestamp_type")
    mark(wrong, _headers_differ(chunk, rows["headers"], own), "headers")
    mark(wrong, _schemas_differ(chunk, rows, own, slots), "schema")
    mark(wrong, chunk.landed_otherwise(found)[known], "landed_at differs from bronze")
    chunk.add_altered(found.table.name, slots, wrong)


def _headers_differ(chunk: Chunk, texts: pa.ChunkedArray, records: np.ndarray) -> np.ndarray:
    differ = np.zeros(len(records), bool)
    for position, (text, record) in enumerate(zip(texts.to_pylist(), records, strict=True)):
        due = chunk.records.headers[record]
        if due is None:
            chunk.verdict.note(UNREADABLE)
        elif text is not None or due:
            differ[position] = headers_of(text) != list(due)
    return differ


def _schemas_differ(chunk: Chunk, rows: pa.Table, records: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Which rows have another schema than their frame. A bare record may have any schema, or none: the settings may
    have named another one. A record with an unreadable message index may have none."""
    keys = [chunk.facts.keys[record] for record in records]
    ids = pa.array([key if isinstance(key, int) else None for key in keys], pa.int64())
    guids = pa.array([key if isinstance(key, str) else None for key in keys], pa.string())
    differ = unequal(ids, rows["schema_id"].combine_chunks())
    differ |= unequal(guids, rows["schema_guid"].combine_chunks())
    none = np.asarray(rows["schema_id"].combine_chunks().is_null())
    bare = np.array([chunk.facts.bare[record] for record in records], bool)
    excused = differ & bare & (none | chunk.once_read[slots])
    chunk.verdict.note(OTHER_BARE, int(excused.sum()))
    broken = np.array([record in chunk.facts.broken for record in records], bool)
    unnamed = none & np.asarray(rows["schema_guid"].combine_chunks().is_null())
    other: np.ndarray = differ & ~excused & ~(broken & unnamed)
    return other
