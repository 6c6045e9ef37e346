"""The records themselves, and whoever has them: the brokers, or, of what Kafka no longer has, bronze."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from spark_app.audit.frames import Header
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import OMITTED_SCHEMA

NO_TYPE = -1


@dataclass
class Records:
    """Records of one topic, one entry each. Times are in microseconds since 1970, their types as in Kafka.

    `omitted` has size and SHA-256 (hex) of the values that are not here although their records have one. Headers are
    None where the client cannot give them.
    """

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    value: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[Header] | None] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    time_type: list[int] = field(default_factory=list)
    omitted: dict[int, tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offset)

    def add_bronze(self, rows: pa.Table) -> None:
        """What bronze keeps of records."""
        first = len(self)
        if set(OMITTED_SCHEMA.names) <= set(rows.column_names):
            kept = zip(*(rows[name].to_pylist() for name in OMITTED_SCHEMA.names), strict=True)
            self.omitted |= {first + row: said for row, said in enumerate(kept) if said[0] is not None}
        self.partition += rows["partition"].to_pylist()
        self.offset += rows["offset"].to_pylist()
        self.key += rows["key"].to_pylist()
        self.value += rows["value"].to_pylist()
        self.headers += [headers_of(text) or [] for text in rows["headers"].to_pylist()]
        self.time += rows["timestamp"].cast(pa.int64()).to_pylist()
        self.time_type += [NO_TYPE if kind is None else kind for kind in rows["timestamp_type"].to_pylist()]

    def leave_out(self, record: int) -> None:
        """Keep size and hash of the record's value only."""
        value = self.value[record]
        if value is not None:
            self.omitted[record] = (len(value), hashlib.sha256(value).hexdigest())
            self.value[record] = None

    def take_back(self, record: int, value: bytes) -> None:
        """Have the value again that was left out, if this is it."""
        if hashlib.sha256(value).hexdigest() == self.omitted[record][1]:
            self.value[record] = value
            del self.omitted[record]


def headers_of(text: str | None) -> list[Header] | None:
    """The headers that bronze keeps as JSON; one without a value has None. None for what is damaged."""
    try:
        found = json.loads(text) if text else []
        return [(h["key"], base64.b64decode(h["value"]) if h.get("value") is not None else None) for h in found]
    except (ValueError, KeyError, TypeError):
        return None


class Source(Protocol):
    """Whoever still has the records of a topic."""

    def topic_id(self, topic: str) -> str | None:
        """None when there is no such topic."""

    def is_compacted(self, topic: str) -> bool: ...

    def kept(self, topic: str, partition: int) -> int:
        """The first offset that is still there."""

    def ends(self, topic: str) -> dict[int, int]:
        """Partition -> the offset after its last readable record."""

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        """The records, and those of the spans that were read: fewer than were asked for beyond `most_bytes`."""
