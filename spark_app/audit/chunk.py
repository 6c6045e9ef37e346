"""One chunk of an audit: Kafka's records of some offsets, and every table's rows of these records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.expected_rows import ExpectedRows, Piece
from spark_app.audit.snapshot import Snapshot, Table
from spark_app.audit.source_records import Records
from spark_app.audit.verdict import ALTERED, Verdict
from spark_app.model.causes import Cause
from spark_app.model.offsets import Span
from spark_app.model.record_schemas import OMITTED_SCHEMA

TIME = pa.timestamp("us", "UTC")
OMITTED = OMITTED_SCHEMA.names[0]

NO_LONGER = "records are no longer at their source: they were compared with bronze instead"
OTHER_DEFAULTS = "rows were decoded under another decode.defaults"
NOT_STRICT = "rows were decoded without decode.strict, and Google's parser reads their payloads differently"
OTHER_KEYS = "keys were not decoded, perhaps under another decode.framed_keys"
NO_SCHEMA = "rows have a schema that the ledger cannot decode, so their content was not compared"
OTHER_BARE = "records without a frame may have been decoded under another decode.unframed_schema_id"


class OffsetIndex:
    """Slots of the offsets of some spans.

    Attributes:
        spans: spans of one topic, at most one per partition.
        topic_id: Kafka's id of the topic; None if the lake has none.
        count: the number of slots.
    """

    def __init__(self, spans: Sequence[Span], topic_id: str | None):
        self.spans = spans
        self.topic_id = topic_id
        sizes = [span.end - span.start for span in spans]
        self._first = list(accumulate(sizes, initial=0))
        self.count = self._first[-1]
        self._shift = {s.partition: first - s.start for s, first in zip(spans, self._first, strict=False)}

    def of(self, partitions: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The slots of records; all must be in the spans."""
        distinct, codes = np.unique(partitions, return_inverse=True)
        shifts = np.array([self._shift[int(partition)] for partition in distinct], np.int64)
        found: np.ndarray = offsets + shifts[codes]
        return found

    def within(self, spans: Iterable[Span]) -> np.ndarray:
        """slot -> whether it is in one of the given spans, which are of the same topic."""
        inside = np.zeros(self.count, bool)
        for own, first in zip(self.spans, self._first, strict=False):
            for span in spans:
                if span.partition == own.partition:
                    low, high = max(span.start, own.start), min(span.end, own.end)
                    inside[first + low - own.start : max(first + high - own.start, 0)] = True
        return inside

    def invert(self, slots: np.ndarray) -> np.ndarray:
        """slot -> its last position in `slots`; -1 = it is not in `slots`."""
        positions = np.full(self.count, -1, np.int64)
        positions[slots] = np.arange(len(slots))
        return positions

    def names(self, slots: np.ndarray) -> list[str]:
        """Each slot as "topic/partition@offset"."""
        positions = np.searchsorted(self._first, slots, side="right") - 1
        return [
            f"{self.spans[position].topic}/{self.spans[position].partition}@{self.spans[position].start + slot - first}"
            for position, slot, first in zip(positions, slots, np.array(self._first)[positions], strict=True)
        ]


@dataclass(frozen=True)
class Found:
    """Rows of a table that are in the chunk. `rows` are in no order; `slots` has one entry per row."""

    table: Table
    rows: pa.Table
    slots: np.ndarray

    @staticmethod
    def of(table: Table, slots: OffsetIndex) -> Found:
        rows = table.read(condition=table.within(slots.topic_id, slots.spans))
        own = (rows[f"{table.prefix}{column}"].to_numpy().astype(np.int64) for column in ("partition", "offset"))
        return Found(table, rows, slots.of(*own))

    def column(self, name: str) -> pa.Array:
        return self.rows[name].combine_chunks()

    def landed(self) -> np.ndarray:
        """When each row's record was ingested, in microseconds since 1970; -1 = unknown."""
        times: np.ndarray = self.column(f"{self.table.prefix}landed_at").cast(pa.int64()).fill_null(-1).to_numpy()
        return times


class Claim(NamedTuple):
    """The columns of a row of quarantine or of the dropped ones that name the expectations that its record fails.

    Attributes:
        table: the silver table.
        rules: names of the failed rules.
        definition: number of the definition; None = the row names none.
    """

    table: str | None
    rules: list[str] | None
    definition: int | None


def claims_of(rows: pa.Table) -> list[Claim]:
    """For each row its claim; a table without such rows has no columns for it."""
    columns = (rows[n].to_pylist() if n in rows.column_names else [None] * len(rows) for n in Claim._fields)
    return [Claim(*claims) for claims in zip(*columns, strict=True)]


def is_read_differently(chunk: Chunk, piece: Piece, position: int) -> bool:
    """Whether the app may have read a payload in another way than Google's parser does."""
    canonical = piece.messages[position].SerializeToString(deterministic=True) == piece.payloads[position]
    return not chunk.snapshot.settings.decode.strict and not canonical


class Chunk:
    """One chunk under audit. The checks add its discrepancies to `verdict`.

    A record is named by its position in `records`, an offset by its slot in `slots`.

    Attributes:
        records: first the records of Kafka, then the deleted ones from bronze.
        tables: name -> its rows; only tables that the lake has.
        given_up: slot -> whether the offset is an accepted loss; no table has its record.
        slot_of: record -> its slot.
        record_at: slot -> its record; -1 = there is none, or its loss was accepted.
        pieces: the rows that the records must become; an iterator that can be read once.
        facts: facts about the records; complete after `pieces` was read.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        expected: ExpectedRows,
        verdict: Verdict,
        slots: OffsetIndex,
        records: Records,
        expired: np.ndarray,
    ):
        """
        Args:
            records: the records of Kafka; records that Kafka has deleted are added from bronze.
            expired: slot -> whether Kafka may have deleted its record.
        """
        self.snapshot = snapshot
        self.expected = expected
        self.verdict = verdict
        self.slots = slots
        self.records = records
        layout, topic = snapshot.layout, slots.spans[0].topic
        others = (layout.quarantine, layout.deferred, layout.dropped, layout.resolved)
        names = (layout.bronze, *snapshot.silver(), *others)
        self.tables = {name: Found.of(snapshot.tables[name], slots) for name in names if name in snapshot.tables}
        self._fill(expired)
        gaps = [span for topic_id, span in snapshot.given_up if (topic_id, span.topic) == (slots.topic_id, topic)]
        self.given_up = slots.within(gaps)
        self.slot_of = self._slots_of_records()
        self.record_at = slots.invert(self.slot_of)
        self.record_at[self.given_up] = -1
        self._align_omitted()
        self.facts, self.pieces = expected.pieces(records)

    def _fill(self, expired: np.ndarray) -> None:
        """Add the records that Kafka has deleted from bronze."""
        bronze = self.tables.get(self.snapshot.layout.bronze)
        if bronze is None or not np.any(expired):
            return
        absent = np.ones(self.slots.count, bool)
        absent[self._slots_of_records()] = False
        wanted = np.flatnonzero((absent & expired)[bronze.slots])
        _, first = np.unique(bronze.slots[wanted], return_index=True)
        rows = bronze.rows.take(pa.array(wanted[first]))
        self.verdict.note(NO_LONGER, len(rows))
        self.records.add_bronze(rows)

    def _align_omitted(self) -> None:
        """Give each record the form that it has in bronze: the value, or the value's size and hash. The limit on sizes
        may have been different at ingest. A value of bronze is used only if it has the hash of Kafka's value."""
        bronze = self.tables.get(self.snapshot.layout.bronze)
        if bronze is None:
            return
        if OMITTED in bronze.rows.column_names:
            for record in self.record_at[bronze.slots[np.asarray(bronze.column(OMITTED).is_valid())]]:
                if record >= 0:
                    self.records.leave_out(int(record))
        row_at = self.slots.invert(bronze.slots)
        for record in list(self.records.omitted):
            row = int(row_at[self.slot_of[record]])
            value = bronze.rows["value"][row].as_py() if row >= 0 else None
            if value is not None:
                self.records.restore(record, value)

    def _slots_of_records(self) -> np.ndarray:
        return self.slots.of(np.array(self.records.partition, np.int64), np.array(self.records.offset, np.int64))

    @cached_property
    def values(self) -> pa.Array:
        return pa.array(self.records.value, pa.binary())

    @cached_property
    def omitted(self) -> pa.Table:
        """Size and hash of the omitted values, NULL for all other records."""
        found = [self.records.omitted.get(record, (None, None)) for record in range(len(self.records))]
        columns = zip(*found, strict=True) if found else ((), ())
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, OMITTED_SCHEMA, strict=True)], OMITTED_SCHEMA)

    @cached_property
    def has_value(self) -> np.ndarray:
        """record -> whether it is no tombstone; a record with an omitted value is none."""
        return np.asarray(pc.or_(self.values.is_valid(), self.omitted[OMITTED].combine_chunks().is_valid()))

    @cached_property
    def keys(self) -> pa.Array:
        return pa.array(self.records.key, pa.binary())

    @cached_property
    def times(self) -> pa.Array:
        return pa.array(self.records.time, pa.int64()).cast(TIME)

    @cached_property
    def silver(self) -> list[Found]:
        return [self.tables[name] for name in self.snapshot.silver()]

    @cached_property
    def once_read(self) -> np.ndarray:
        """slot -> whether its frame was read: it is in silver or dropped, or a later stage quarantined it."""
        read = np.zeros(self.slots.count, bool)
        for found in self.silver:
            read[found.slots] = True
        read |= self.counts(self.snapshot.layout.dropped) > 0
        quarantine = self.tables.get(self.snapshot.layout.quarantine)
        if quarantine is not None:
            read[quarantine.slots[np.asarray(pc.not_equal(quarantine.column("hop"), "frame").fill_null(False))]] = True
        return read

    @cached_property
    def claims(self) -> dict[int, Claim]:
        """Record -> the claim of its row in quarantine or among the dropped ones, if that row names a definition."""
        found: dict[int, Claim] = {}
        for name in (self.snapshot.layout.quarantine, self.snapshot.layout.dropped):
            table = self.tables.get(name)
            if table is not None:
                claims = zip(self.record_at[table.slots].tolist(), claims_of(table.rows), strict=True)
                found |= {record: claim for record, claim in claims if record >= 0 and claim.definition is not None}
        return found

    def excuse_unread(self, record: int) -> str:
        """Why the row of a record that is in no piece cannot be compared; "" = the audit knows no reason."""
        facts = self.facts
        causes = facts.causes.get(record, frozenset())
        if record in facts.unknown and record not in facts.broken:
            return NO_SCHEMA
        if facts.bare[record]:
            return OTHER_BARE
        lenient = Cause.DECODE_PAYLOAD in causes and not self.snapshot.settings.decode.strict
        return NOT_STRICT if lenient else ""

    def landed_at(self, slots: np.ndarray) -> pa.Array:
        """Bronze's `landed_at` of the slots, as a timestamp; NULL if bronze has no such record."""
        moments = self._landed[slots]
        return pa.array(moments, mask=moments <= 0).cast(TIME)

    @cached_property
    def _landed(self) -> np.ndarray:
        """slot -> bronze's `landed_at` in microseconds since 1970; 0 = bronze has no such record."""
        landed = np.zeros(self.slots.count, np.int64)
        bronze = self.tables.get(self.snapshot.layout.bronze)
        if bronze is not None:
            landed[bronze.slots] = bronze.landed()
        return landed

    def landed_otherwise(self, found: Found) -> np.ndarray:
        """Which rows have another `landed_at` than bronze, if bronze has their record."""
        due = self._landed[found.slots]
        differ: np.ndarray = (due != 0) & (found.landed() != due)
        return differ

    def counts(self, table: str) -> np.ndarray:
        """slot -> the number of its rows in the table."""
        found = self.tables.get(table)
        slots = np.empty(0, np.int64) if found is None else found.slots
        return np.bincount(slots, minlength=self.slots.count)

    def add(self, kind: str, table: str, slots: np.ndarray, why: str = "") -> None:
        self.verdict.add(kind, table, self.slots.names(slots), why)

    def add_altered(self, table: str, slots: np.ndarray, wrong: np.ndarray) -> None:
        """Report the slots with a reason in `wrong` as altered; "" = no reason."""
        for why in sorted(set(wrong) - {""}):
            self.add(ALTERED, table, slots[wrong == why], why)
