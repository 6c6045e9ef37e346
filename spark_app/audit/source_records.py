"""The records of an audit and their source: the brokers, or bronze for records that Kafka has deleted."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from spark_app.audit.frames import Header
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import NUMBER, OMITTED_SCHEMA

NO_TYPE = -1
EPOCH, MICROSECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)
# Microseconds since 1970: the first and the last moment that Python knows.
FIRST, LAST = ((year - EPOCH) // MICROSECOND for year in (datetime.datetime.min, datetime.datetime.max))


@dataclass
class Records:
    """Records of one topic, one entry per record in each list.

    Attributes:
        time, time_type: microseconds since 1970, and Kafka's type of the timestamp.
        headers: None if the client cannot read them.
        numbers: record -> the number of its timestamp, if that is outside the years 1 to 9999.
        omitted: record -> (size in bytes, SHA-256 as hex) of a value that is left out of `value`.
    """

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    value: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[Header] | None] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    time_type: list[int] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    omitted: dict[int, tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offset)

    def add_bronze(self, rows: pa.Table) -> None:
        """Add the records of rows of bronze."""
        first = len(self)
        if set(OMITTED_SCHEMA.names) <= set(rows.column_names):
            kept = zip(*(rows[name].to_pylist() for name in OMITTED_SCHEMA.names), strict=True)
            self.omitted |= {first + row: stored for row, stored in enumerate(kept) if stored[0] is not None}
        if NUMBER in rows.column_names:
            numbers = enumerate(rows[NUMBER].to_pylist(), first)
            self.numbers |= {record: number for record, number in numbers if number is not None}
        self.partition += rows["partition"].to_pylist()
        self.offset += rows["offset"].to_pylist()
        self.key += rows["key"].to_pylist()
        self.value += rows["value"].to_pylist()
        self.headers += [headers_of(text) or [] for text in rows["headers"].to_pylist()]
        self.time += rows["timestamp"].cast(pa.int64()).to_pylist()
        self.time_type += [NO_TYPE if kind is None else kind for kind in rows["timestamp_type"].to_pylist()]

    def add_time(self, millis: int) -> None:
        """Add the time of the next record, within the years that Python knows."""
        near = max(min(millis, LAST // 1000), FIRST // 1000)
        if near != millis:
            self.numbers[len(self.time)] = millis
        self.time.append(near * 1000)

    def leave_out(self, record: int) -> None:
        """Replace the record's value by its size and hash."""
        value = self.value[record]
        if value is not None:
            self.omitted[record] = (len(value), hashlib.sha256(value).hexdigest())
            self.value[record] = None

    def restore(self, record: int, value: bytes) -> None:
        """Restore an omitted value if the given one has its hash."""
        if hashlib.sha256(value).hexdigest() == self.omitted[record][1]:
            self.value[record] = value
            del self.omitted[record]


def headers_of(text: str | None) -> list[Header] | None:
    """The headers from bronze's JSON, with None for a header without a value; None if the text is damaged."""
    try:
        found = json.loads(text) if text else []
        return [(h["key"], base64.b64decode(h["value"]) if h.get("value") is not None else None) for h in found]
    except (ValueError, KeyError, TypeError):
        return None


class Source(Protocol):
    """A source of the records of a topic."""

    def topic_id(self, topic: str) -> str | None:
        """Kafka's topic id; None if there is no such topic."""

    def is_compacted(self, topic: str) -> bool: ...

    def kept(self, topic: str, partition: int) -> int:
        """The first offset that Kafka still has."""

    def ends(self, topic: str) -> dict[int, int]:
        """Partition -> the offset after its last readable record."""

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        """(records, the part of each span that was read). Reading stops after about `most_bytes`, so that a part may be
        shorter than its span."""
