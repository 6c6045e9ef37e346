"""A range of offsets: what every table has of it, against the records.

Each record has a slot, its place among all offsets of the range; so identities are compared as numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.content import differing, fits, unequal
from spark_app.audit.expected import Json
from spark_app.audit.place import Judge, Piece, Places
from spark_app.audit.records import Records, headers_of
from spark_app.audit.snapshot import Snapshot, Table
from spark_app.audit.verdict import ALTERED, DOUBLED, LOST, MISPLACED, PHANTOM, Verdict
from spark_app.records import LINEAGE_SCHEMA, Cause, Span

TIME = pa.timestamp("us", "UTC")
OWN = {*LINEAGE_SCHEMA.names, "_schema_guid"}  # columns that say where a row is from
NEVER_PROVEN = {Cause.SCHEMA_UNKNOWN, Cause.SCHEMA_INVALID, Cause.DECODE_CRASH}
BY_TABLES = {Cause.ROUTE_REFUSED, Cause.ROUTE_COLLISION, Cause.ROUTE_CAP}
BARE = {Cause.FRAME_MAGIC, Cause.FRAME_SHORT}

OTHER_DEFAULTS = "rows decoded under another decode.defaults"
NOT_STRICT = "rows decoded not strictly, of payloads that Google's parser reads otherwise"
OTHER_KEYS = "keys that were not decoded, perhaps under another decode.framed_keys"
OTHER_BARE = "records without a frame, perhaps placed under another decode.unframed_schema_id"
NO_SCHEMA = "rows of schemas that the ledger cannot decode: content"
NO_REASON = "quarantined as decode_type, which the columns of today do not show: cause"
NO_LONGER = "records that Kafka no longer has: compared with bronze instead"


class Slots:
    """Numbers for the offsets of some spans of one topic."""

    def __init__(self, spans: Sequence[Span]):
        self.spans = spans
        sizes = [span.end - span.start for span in spans]
        self._first = list(accumulate(sizes, initial=0))
        self.count = self._first[-1]
        self._shift = {s.partition: first - s.start for s, first in zip(spans, self._first, strict=False)}

    def of(self, partitions: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The slots of records that are in the spans."""
        distinct, codes = np.unique(partitions, return_inverse=True)
        shifts = np.array([self._shift[int(partition)] for partition in distinct], np.int64)
        found: np.ndarray = offsets + shifts[codes]
        return found

    def within(self, spans: Iterable[Span]) -> np.ndarray:
        """Which slots are of records in these spans, of the same topic."""
        inside = np.zeros(self.count, bool)
        for own, first in zip(self.spans, self._first, strict=False):
            for span in spans:
                if span.partition == own.partition:
                    low, high = max(span.start, own.start), min(span.end, own.end)
                    inside[first + low - own.start : max(first + high - own.start, 0)] = True
        return inside

    def names(self, slots: np.ndarray) -> list[str]:
        places = np.searchsorted(self._first, slots, side="right") - 1
        return [
            f"{self.spans[place].topic}/{self.spans[place].partition}@{self.spans[place].start + slot - first}"
            for place, slot, first in zip(places, slots, np.array(self._first)[places], strict=True)
        ]


@dataclass
class Found:
    """Rows of a table that are in the chunk. `rows` are sorted by nothing; `slots` has one entry per row."""

    table: Table
    rows: pa.Table
    slots: np.ndarray

    def column(self, name: str) -> pa.Array:
        return self.rows[name].combine_chunks()

    def at(self, count: int) -> np.ndarray:
        """slot -> one of its rows, -1 = none."""
        places = np.full(count, -1, np.int64)
        places[self.slots] = np.arange(len(self.slots))
        return places


Acks = Mapping[int, tuple[np.ndarray, np.ndarray]]  # partition -> offsets, ascending, and 32 bytes of SHA-256 each


class Chunk:
    """One chunk under audit. `judge` goes through it once."""

    def __init__(self, snapshot: Snapshot, rules: Judge, verdict: Verdict, spans: Sequence[Span], topic_id: str | None):
        self._snapshot = snapshot
        self._rules = rules
        self._verdict = verdict
        self._layout = snapshot.layout
        self._slots = Slots(spans)
        self._spans = spans
        self._topic_id = topic_id

    def judge(self, records: Records, gone: Sequence[Span], compacted: bool, acks: Acks) -> dict[str, int]:
        """Returns table -> rows that it has of the chunk.

        Args:
            records: what Kafka has; what it no longer has is added from bronze.
            gone: ranges that Kafka no longer has.
            compacted: Kafka may drop any record that has a later one of its key.
        """
        bronze = self._find(self._layout.bronze)
        self._fill(records, bronze, self._slots.within(gone) | compacted)
        given_up = self._given_up()
        self._rows_of = np.full(self._slots.count, -1, np.int64)  # slot -> its record
        own = self._slots.of(np.array(records.partition, np.int64), np.array(records.offset, np.int64))
        self._rows_of[own] = np.arange(len(records))
        self._rows_of[given_up] = -1
        self._own = own
        self._records = records
        self._verdict.records += len(records)
        self._values = pa.array(records.value, pa.binary())
        self._keys = pa.array(records.key, pa.binary())
        self._times = pa.array(records.time, pa.int64()).cast(TIME)
        places, pieces = self._rules.pieces(records)
        silver = [found for found in map(self._find, self._snapshot.silver()) if found is not None]
        names = (self._layout.quarantine, self._layout.deferred, self._layout.resolved)
        others = {name: found for name in names if (found := self._find(name)) is not None}
        self._landed = np.zeros(self._slots.count, np.int64)  # by bronze, 0 = it has no such record
        self._once_read = self._find_once_read(silver, others.get(self._layout.quarantine))
        self._judge_bronze(bronze, places, acks, ~given_up)
        self._judge_silver(silver, pieces, places)
        self._judge_placed(silver, others, places)
        every = [bronze, *silver, *others.values()]
        return {found.table.name: len(found.slots) for found in every if found is not None}

    def _find_once_read(self, silver: Sequence[Found], quarantine: Found | None) -> np.ndarray:
        """Slots of records whose frame was once read: they are in silver, or refused by a later hop."""
        read = np.zeros(self._slots.count, bool)
        for found in silver:
            read[found.slots] = True
        if quarantine is not None:
            read[quarantine.slots[np.asarray(pc.not_equal(quarantine.column("hop"), "frame").fill_null(False))]] = True
        return read

    def _find(self, name: str) -> Found | None:
        table = self._snapshot.tables.get(name)
        if table is None:
            return None
        rows = table.read(condition=table.within(self._topic_id, self._spans))
        places = (rows[f"{table.prefix}{column}"].to_numpy().astype(np.int64) for column in ("partition", "offset"))
        return Found(table, rows, self._slots.of(*places))

    def _fill(self, records: Records, bronze: Found | None, missing: np.ndarray | bool) -> None:
        """Take from bronze what Kafka no longer has."""
        if bronze is None or not np.any(missing):
            return
        absent = np.ones(self._slots.count, bool)
        absent[self._slots.of(np.array(records.partition, np.int64), np.array(records.offset, np.int64))] = False
        wanted = np.flatnonzero((absent & missing)[bronze.slots])
        _, first = np.unique(bronze.slots[wanted], return_index=True)
        rows = bronze.rows.take(pa.array(wanted[first]))
        self._verdict.note(NO_LONGER, len(rows))
        records.add_bronze(rows)

    def _add(self, kind: str, table: str, slots: np.ndarray, why: str = "") -> None:
        if len(slots):
            self._verdict.add(kind, table, self._slots.names(slots), why)

    def _judge_counts(self, table: str, counts: np.ndarray, due: np.ndarray) -> None:
        self._add(LOST, table, np.flatnonzero(due & (counts < 1)))
        self._add(DOUBLED, table, np.flatnonzero(due & (counts > 1)))
        self._add(PHANTOM, table, np.flatnonzero(~due & (counts > 0)))

    def _given_up(self) -> np.ndarray:
        """Slots of records that a person gave up: they are nowhere."""
        topic = self._spans[0].topic
        spans = [span for own_id, span in self._snapshot.given_up if (own_id, span.topic) == (self._topic_id, topic)]
        return self._slots.within(spans)

    def _judge_bronze(self, bronze: Found | None, places: Places, acks: Acks, wanted: np.ndarray) -> None:
        due = self._rows_of >= 0
        counts = np.zeros(self._slots.count, np.int64)
        if bronze is not None:
            counts += np.bincount(bronze.slots, minlength=self._slots.count)
            self._landed[bronze.slots] = bronze.column("landed_at").cast(pa.int64()).fill_null(-1).to_numpy()
        self._judge_counts(self._layout.bronze, counts, due | (self._acked(acks) & wanted))
        if bronze is not None:
            self._compare_raw(bronze, places)
            self._compare_acks(bronze, acks)

    def _acked(self, acks: Acks) -> np.ndarray:
        """Slots of records that a producer was told to be safe."""
        safe = np.zeros(self._slots.count, bool)
        for span in self._spans:
            offsets, _ = self._acks_of(acks, span)
            safe[self._slots.of(np.full(len(offsets), span.partition), offsets)] = True
        return safe

    def _acks_of(self, acks: Acks, span: Span) -> tuple[np.ndarray, np.ndarray]:
        offsets, digests = acks.get(span.partition, (np.empty(0, np.int64), np.empty((0, 32), np.uint8)))
        low, high = np.searchsorted(offsets, [span.start, span.end])
        return offsets[low:high], digests[low:high]

    def _compare_acks(self, bronze: Found, acks: Acks) -> None:
        at, values = bronze.at(self._slots.count), bronze.column("value")
        for span in self._spans:
            offsets, digests = self._acks_of(acks, span)
            slots = self._slots.of(np.full(len(offsets), span.partition), offsets)
            wrong = [
                slot
                for slot, row, digest in zip(slots, at[slots], digests, strict=True)
                if row >= 0 and _digest(values[row].as_py()) != digest.tobytes()
            ]
            self._add(ALTERED, bronze.table.name, np.array(wrong, np.int64), "not what the producer was told is safe")

    def _compare_raw(self, found: Found, places: Places) -> None:
        """Raw records, in bronze or quarantine."""
        row_of = self._rows_of[found.slots]
        placed = np.flatnonzero(row_of >= 0)
        rows, own = found.rows.take(pa.array(placed)), row_of[placed]
        take = pa.array(own)
        wrong = np.zeros(len(placed), object)
        wrong[:] = ""
        for name, values in (("value", self._values), ("key", self._keys), ("timestamp", self._times)):
            _mark(wrong, unequal(values.take(take), rows[name].combine_chunks()), name)
        types = np.array(self._records.time_type, np.int64)[own]
        _mark(wrong, unequal(pa.array(types), rows["timestamp_type"].combine_chunks().cast(pa.int64())), "type of time")
        _mark(wrong, self._headers_differ(rows["headers"], own), "headers")
        _mark(wrong, self._schemas_differ(rows, own, places, found.slots[placed]), "schema")
        landed = rows["landed_at"].combine_chunks().cast(pa.int64()).fill_null(-1).to_numpy()
        due = self._landed[found.slots[placed]]
        _mark(wrong, (due != 0) & (landed != due), "landed_at is not bronze's")
        self._add_each(ALTERED, found.table.name, found.slots[placed], wrong)

    def _add_each(self, kind: str, table: str, slots: np.ndarray, why: np.ndarray) -> None:
        for words in sorted(set(why) - {""}):
            self._add(kind, table, slots[why == words], words)

    def _headers_differ(self, texts: pa.ChunkedArray, own: np.ndarray) -> np.ndarray:
        differ = np.zeros(len(own), bool)
        for place, (text, row) in enumerate(zip(texts.to_pylist(), own, strict=True)):
            due = self._records.headers[row]
            if text is not None or due:
                differ[place] = _headers(text) != list(due)
        return differ

    def _schemas_differ(self, rows: pa.Table, own: np.ndarray, places: Places, slots: np.ndarray) -> np.ndarray:
        """A bare record has the schema that the settings once named, or none."""
        keys = [places.keys[row] for row in own]
        ids = pa.array([key if isinstance(key, int) else None for key in keys], pa.int64())
        guids = pa.array([key if isinstance(key, str) else None for key in keys], pa.string())
        differ = unequal(ids, rows["schema_id"].combine_chunks())
        differ |= unequal(guids, rows["schema_guid"].combine_chunks())
        none = np.asarray(rows["schema_id"].combine_chunks().is_null())
        excused = differ & np.array([places.bare[row] for row in own], bool) & (none | self._once_read[slots])
        self._verdict.note(OTHER_BARE, int(excused.sum()))
        other: np.ndarray = differ & ~excused
        return other

    def _judge_silver(self, found: Sequence[Found], pieces: Iterable[Piece], places: Places) -> None:
        """Content and place of the rows of silver."""
        table_at = np.full(self._slots.count, -1, np.int64)
        row_at = np.full(self._slots.count, -1, np.int64)
        for number, table in enumerate(found):
            table_at[table.slots] = number
            row_at[table.slots] = np.arange(len(table.slots))
            self._compare_lineage(table)
        judged = np.zeros(self._slots.count, bool)
        self._misfits: set[int] = set()
        self._belongs: dict[int, str] = {}
        for piece in pieces:
            rows = np.array(piece.rows)
            slots = self._own[rows]
            judged[slots] = True
            self._remember(piece, table_at[slots])
            for number in np.unique(table_at[slots]):
                if number >= 0:
                    places_in = np.flatnonzero(table_at[slots] == number).tolist()
                    self._judge_rows(found[number], row_at[slots[places_in]], piece, places_in)
        self._judge_unread(found, table_at, judged, places)

    def _remember(self, piece: Piece, numbers: np.ndarray) -> None:
        """Of the records that are not in silver: where they belong, and whether they fit there."""
        for place in np.flatnonzero(numbers < 0):
            row, name = piece.rows[place], piece.tables[place]
            table = None if name is None else self._snapshot.tables.get(name)
            if name is None:
                continue
            if table is not None and not _fits(piece, int(place), table.schema):
                self._misfits.add(row)
            else:
                self._belongs[row] = name

    def _judge_rows(self, found: Found, rows: np.ndarray, piece: Piece, places: list[int]) -> None:
        """Rows of one table that one piece is about."""
        name, actual = found.table.name, found.rows.take(pa.array(rows))
        slots = found.slots[rows]
        belongs = np.array([piece.tables[place] or self._layout.quarantine for place in places], object)
        for due in sorted(set(belongs) - {name}):
            self._add(MISPLACED, name, slots[belongs == due], f"belongs in {due}")
        wrong = self._compare(piece, places, actual)
        for place in np.flatnonzero(wrong != ""):
            excuse = self._excuse(piece, places[place], actual.slice(int(place), 1), wrong[place])
            if excuse:
                self._verdict.note(excuse)
                wrong[place] = ""
        self._add_each(ALTERED, name, slots, wrong)

    def _compare(self, piece: Piece, places: list[int], actual: pa.Table) -> np.ndarray:
        """For each row the first column that is not as expected, "" = none."""
        wrong = np.zeros(len(places), object)
        wrong[:] = ""
        every = len(places) == len(piece.rows)
        kinds = {column.name: column.kind for column in piece.columns}
        for name in actual.column_names:
            column = actual[name].combine_chunks()
            if name in piece.values:
                values = piece.values[name] if every else [piece.values[name][place] for place in places]
                _mark(wrong, differing(values, kinds[name], column), name)
            elif name == "_wrapper" and piece.rest is not None:
                _mark(wrong, differing([piece.rest[place] for place in places], None, column), name)
            elif name == "_key":
                self._compare_keys(wrong, [piece.rows[place] for place in places], column)
            elif name not in OWN:
                _mark(wrong, ~np.asarray(column.is_null()), name)
        for name in set(piece.values) - set(actual.column_names):
            _mark(wrong, np.array([piece.values[name][place] is not None for place in places], bool), name)
        self._compare_schema(wrong, piece, actual)
        return wrong

    def _compare_schema(self, wrong: np.ndarray, piece: Piece, actual: pa.Table) -> None:
        for name, kind in (("_schema_id", int), ("_schema_guid", str)):
            if name in actual.column_names:
                column = actual[name].combine_chunks()
                due = pa.scalar(piece.key if isinstance(piece.key, kind) else None, column.type)
                _mark(wrong, unequal(pa.repeat(due, len(column)), column), name)

    def _compare_keys(self, wrong: np.ndarray, rows: Sequence[int], column: pa.Array) -> None:
        if column.null_count == len(column) and not self._snapshot.settings.decode.framed_keys:
            return
        for place, (row, text) in enumerate(zip(rows, column.to_pylist(), strict=True)):
            due = self._rules.key_text(self._records.key[row], self._records.headers[row])
            if text is None and due is not None:
                self._verdict.note(OTHER_KEYS)
            elif not _same_text(due, text):
                _mark(wrong, np.arange(len(wrong)) == place, "_key")

    def _excuse(self, piece: Piece, place: int, actual: pa.Table, column: str) -> str:
        """Why a row may say something else after all; "" = it may not."""
        if column not in piece.values:
            return ""
        message, defaults = piece.messages[place], self._snapshot.settings.decode.defaults
        if self._is_row(self._rules.columns(type(message), not defaults), message, actual):
            return OTHER_DEFAULTS
        if not self._snapshot.settings.decode.strict:
            canonical = message.SerializeToString(deterministic=True) == piece.payloads[place]
            return "" if canonical else NOT_STRICT
        return ""

    def _is_row(self, columns: Sequence[Any], message: Any, actual: pa.Table) -> bool:
        return not any(
            bool(differing([c.read(message)], c.kind, actual[c.name].combine_chunks())[0])
            for c in columns
            if c.name in actual.column_names
        )

    def _compare_lineage(self, found: Found) -> None:
        row_of = self._rows_of[found.slots]
        known = row_of >= 0
        times = self._times.take(pa.array(np.where(known, row_of, 0))) if len(self._times) else None
        wrong = np.zeros(len(found.slots), object)
        wrong[:] = ""
        if times is not None:
            _mark(wrong, known & unequal(times, found.column("_kafka_timestamp")), "_kafka_timestamp")
        landed = found.column("_landed_at").cast(pa.int64()).fill_null(-1).to_numpy()
        due = self._landed[found.slots]
        _mark(wrong, known & (due != 0) & (landed != due), "_landed_at is not bronze's")
        self._add_each(ALTERED, found.table.name, found.slots, wrong)

    def _judge_unread(self, found: Sequence[Found], table_at: np.ndarray, judged: np.ndarray, places: Places) -> None:
        """Rows of silver whose records cannot be read by any schema, or have no row at all in their place."""
        for slot in np.flatnonzero((table_at >= 0) & ~judged & (self._rows_of >= 0)):
            row, name = int(self._rows_of[slot]), found[table_at[slot]].table.name
            if row in places.unknown:
                self._verdict.note(NO_SCHEMA)
            elif places.bare[row]:
                self._verdict.note(OTHER_BARE)
            elif Cause.DECODE_PAYLOAD in places.causes.get(row, ()) and not self._snapshot.settings.decode.strict:
                self._verdict.note(NOT_STRICT)
            elif self._records.value[row] is not None:
                causes = ", ".join(sorted(places.causes.get(row, ())))
                self._add(MISPLACED, name, np.array([slot]), f"belongs in {self._layout.quarantine}: {causes}")

    def _judge_placed(self, silver: Sequence[Found], others: Mapping[str, Found], places: Places) -> None:
        """Each record with a value is once in silver, open in quarantine or waiting; a tombstone is not."""
        layout, size = self._layout, self._slots.count
        names = (layout.quarantine, layout.deferred, layout.resolved)
        slots = {name: others[name].slots if name in others else np.empty(0, np.int64) for name in names}
        counts = {name: np.bincount(found, minlength=size) for name, found in slots.items()}
        placed = counts[layout.quarantine] + counts[layout.deferred] - counts[layout.resolved]
        for found in silver:
            placed += np.bincount(found.slots, minlength=size)
        alive = np.zeros(size, bool)
        alive[self._own] = np.asarray(self._values.is_valid())
        due = alive & (self._rows_of >= 0)
        self._add_placed(placed, due, silver, counts)
        odd = counts[layout.resolved] > counts[layout.quarantine]
        self._add(PHANTOM, layout.resolved, np.flatnonzero(odd), "not in quarantine, or twice resolved")
        if layout.quarantine in others:
            self._compare_raw(others[layout.quarantine], places)
            self._judge_causes(others[layout.quarantine], places)

    def _add_placed(
        self, placed: np.ndarray, due: np.ndarray, silver: Sequence[Found], counts: Mapping[str, np.ndarray]
    ) -> None:
        """Name the table where a record should be, or is once too often."""
        lost = np.flatnonzero(due & (placed < 1))
        where = [self._belongs.get(int(self._rows_of[slot]), self._layout.quarantine) for slot in lost]
        for name in sorted(set(where)):
            own = np.array([one == name for one in where], bool)
            self._add(LOST, name, lost[own])
        wrong = np.flatnonzero((due & (placed > 1)) | (~due & (placed > 0)))
        for slot in wrong:
            tables = [found.table.name for found in silver if slot in found.slots]
            tables += [name for name, count in counts.items() if count[slot] and name != self._layout.resolved]
            kind = DOUBLED if due[slot] else PHANTOM
            self._add(kind, tables[-1], np.array([slot]), f"in {', '.join(tables)}" if len(tables) > 1 else "")

    def _judge_causes(self, found: Found, places: Places) -> None:
        """Whether the bytes of a quarantined record allow its cause."""
        name = found.table.name
        columns = (found.rows[column].to_pylist() for column in ("cause", "hop", "schema_id"))
        for slot, row, cause, hop, schema in zip(found.slots, self._rows_of[found.slots], *columns, strict=True):
            if row < 0:
                continue
            if cause not in Cause.__members__.values() or hop != cause.split("_")[0]:
                self._add(ALTERED, name, np.array([slot]), "cause")
            elif not self._may_be(Cause(cause), int(row), places, schema is not None):
                belongs = self._belongs.get(int(row))
                why = f"belongs in {belongs}" if belongs else "cause"
                self._add(MISPLACED if belongs else ALTERED, name, np.array([slot]), why)

    def _may_be(self, cause: Cause, row: int, places: Places, had_schema: bool) -> bool:
        """What cannot be told from the bytes may be: settings, ledger and tables were others once."""
        proven = places.causes.get(row, frozenset())
        if cause in proven or cause == Cause.DECODE_CRASH:
            return True
        if places.bare[row] and (cause in BARE if self._rules.takes_bare else had_schema):
            self._verdict.note(OTHER_BARE)
            return True
        if row in places.unknown or cause in NEVER_PROVEN:
            return cause in NEVER_PROVEN and not any(one.hop == "frame" for one in proven)
        if cause == Cause.DECODE_TYPE and not proven:
            if row not in self._misfits:
                self._verdict.note(NO_REASON)
            return True
        return cause in BY_TABLES and not proven


def _fits(piece: Piece, place: int, schema: pa.Schema) -> bool:
    return all(
        fits(values[place], schema.field(name).type) for name, values in piece.values.items() if name in schema.names
    )


def _mark(wrong: np.ndarray, differ: np.ndarray, why: str) -> None:
    """Note why rows are wrong that were not until now."""
    wrong[differ & (wrong == "")] = why


def _headers(text: str | None) -> Any:
    try:
        return headers_of(text)
    except (ValueError, KeyError, TypeError):
        return text


def _same_text(due: Json | None, text: str | None) -> bool:
    try:
        return text is None if due is None else due == text
    except ValueError:
        return False


def _digest(value: bytes | None) -> bytes:
    return b"\0" * 32 if value is None else hashlib.sha256(value).digest()
