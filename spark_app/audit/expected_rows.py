"""Computes from a record's bytes, the lake's schemas and the settings in which silver table it must be, and how.

Either a record belongs to a silver table, or its bytes prove causes for which it is quarantined. If the bytes prove
neither (the ledger cannot decode the schema, the routing value has no table), it may be deferred or quarantined.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from spark_app.audit.expected import BIG, Column, Json, NotUtf8, TimestampOutOfRange, columns_of
from spark_app.audit.frames import KEY_HEADER, Frame, cause_of_bare, frame_of, is_schema_id
from spark_app.audit.schemas import Reading, RenamedFields, Schemas
from spark_app.audit.source_records import Records
from spark_app.model.catalog import SchemaKey
from spark_app.model.causes import Cause
from spark_app.settings.models import Settings

PIECE = 20_000  # parsed messages in memory at once
NAME = re.compile(r"[a-z0-9_]{1,64}")


@dataclass(frozen=True)
class Piece:
    """Records of one schema and one message that Google's parser reads.

    Attributes:
        rows: the records' positions in the chunk's records.
        payloads, messages: of the event itself, without a wrapper.
        columns: the columns of the event.
        values: column -> one value per record.
        rest: for each record the other fields of its wrapper; None if there are no wrappers.
        tables: for each record its silver table; None if its routing value has no table.
        rest_type: the type of a column with `rest`.
    """

    rows: list[int]
    key: SchemaKey
    payloads: list[bytes]
    messages: list[Message]
    columns: list[Column]
    values: dict[str, list[Any]]
    rest: list[dict[str, Any] | None] | None
    tables: list[str | None]
    rest_type: pa.DataType | None = None

    def at(self, positions: list[int]) -> Piece:
        """The piece with only the records at these positions; `positions` ascend."""
        if len(positions) == len(self.rows):
            return self
        return Piece(
            [self.rows[position] for position in positions],
            self.key,
            [self.payloads[position] for position in positions],
            [self.messages[position] for position in positions],
            self.columns,
            {name: [values[position] for position in positions] for name, values in self.values.items()},
            None if self.rest is None else [self.rest[position] for position in positions],
            [self.tables[position] for position in positions],
            self.rest_type,
        )


@dataclass
class RecordFacts:
    """Facts about the records besides their pieces.

    Attributes:
        keys: the schema of each record's frame; None if it has none.
        bare: whether the record has no frame of its own, so that the settings name its schema.
        causes: record -> causes that its bytes prove.
        unknown: records whose schema the ledger cannot decode.
        broken: records whose message index cannot be read. Earlier releases did not store their schema.
        found_since: records whose routing field earlier releases did not find: its column has another name, or is of
            another kind than text.
    """

    keys: list[SchemaKey | None]
    bare: list[bool]
    causes: dict[int, frozenset[Cause]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    found_since: set[int] = field(default_factory=set)


class ExpectedRows:
    """Derives the rows and causes of records by the settings and schemas of one lake."""

    def __init__(self, settings: Settings, schemas: Schemas, names: dict[str, str]):
        self._settings = settings
        self._schemas = schemas
        self._names = names
        self._wrapper = settings.wrapper
        self._routing = schemas.routing or settings.event.routing
        self._renamed = RenamedFields(schemas)
        decode = settings.decode
        self._unframed_schema: SchemaKey | None = decode.unframed_schema_id or None
        self._columns: dict[tuple[int, bool], list[Column]] = {}

    @property
    def accepts_bare(self) -> bool:
        """Whether the settings name a schema for bare records."""
        return self._unframed_schema is not None

    def frame(self, records: Records) -> tuple[RecordFacts, dict[tuple[SchemaKey, tuple[int, ...], int], list[int]]]:
        """(facts from the frames, the framed records by schema, message index and position of the payload)."""
        facts = RecordFacts([None] * len(records), [False] * len(records))
        groups: dict[tuple[SchemaKey, tuple[int, ...], int], list[int]] = {}
        for row, value in enumerate(records.value):
            if row in records.omitted:
                facts.causes[row] = frozenset({Cause.RECORD_SIZE})
            if value is None:
                continue
            frame = frame_of(value, records.headers[row])
            if isinstance(frame, Frame) and frame.key is None:
                facts.bare[row] = True
                frame = self._bare_frame(value)
            if isinstance(frame, Cause):
                facts.causes[row] = frozenset({frame})
                continue
            assert frame.key is not None
            facts.keys[row] = frame.key
            if frame.broken is not None:
                self._break(row, frame, facts)
            else:
                groups.setdefault((frame.key, frame.index, frame.body), []).append(row)
        return facts, groups

    def _break(self, row: int, frame: Frame, facts: RecordFacts) -> None:
        """Note a record whose message index cannot be read. Its schema must be known to prove the cause."""
        assert frame.key is not None
        assert frame.broken is not None
        facts.causes[row] = frozenset({frame.broken})
        facts.broken.add(row)
        if not self._schemas.is_decodable(frame.key):
            facts.unknown.add(row)

    def _bare_frame(self, value: bytes) -> Frame | Cause:
        if self._unframed_schema is None:
            return cause_of_bare(value)
        name = self._settings.decode.unframed_message
        known = self._schemas.is_decodable(self._unframed_schema)
        return Frame(
            self._unframed_schema, self._schemas.index_of(self._unframed_schema, name) if name and known else (0,), 0
        )

    def pieces(self, records: Records) -> tuple[RecordFacts, Iterator[Piece]]:
        """(facts about the records, the pieces). Reading the pieces completes the facts."""
        facts, groups = self.frame(records)
        return facts, self._pieces(records, facts, groups)

    def _pieces(self, records: Records, facts: RecordFacts, groups: Any) -> Iterator[Piece]:
        for (key, index, body), rows in groups.items():
            reading = self._reading(key, index, rows, facts)
            if reading is None:
                continue
            for first in range(0, len(rows), PIECE):
                part = rows[first : first + PIECE]
                payloads = [records.value[row][body:] for row in part]
                if self._wrapper.payload:
                    yield from self._unwrapped(part, payloads, reading, facts)
                else:
                    yield from self._piece(part, key, payloads, reading, None, facts)

    def _reading(
        self, key: SchemaKey, index: tuple[int, ...], rows: Sequence[int], facts: RecordFacts
    ) -> Reading | None:
        if not self._schemas.is_decodable(key):
            facts.unknown.update(rows)
            return None
        reading = self._schemas.reading(key, index)
        if reading is None:
            facts.causes |= dict.fromkeys(rows, frozenset({Cause.SCHEMA_INDEX}))
        return reading

    def _parse(
        self, rows: Sequence[int], payloads: Sequence[bytes], reading: Reading, facts: RecordFacts
    ) -> list[tuple[int, bytes, Message]]:
        found = []
        for row, payload in zip(rows, payloads, strict=True):
            if reading.belongs_to_other_index(payload):
                facts.causes[row] = frozenset({Cause.SCHEMA_INDEX})
                continue
            try:
                found.append((row, payload, reading.kind.FromString(payload)))
            except DecodeError:
                facts.causes[row] = frozenset({Cause.DECODE_PAYLOAD})
        return found

    def _read(
        self, parsed: list[tuple[int, bytes, Message]], columns: list[Column], facts: RecordFacts
    ) -> tuple[list[tuple[int, bytes, Message]], dict[str, list[Any]]]:
        """(the messages whose values the columns can store, these values by column)."""
        causes: dict[int, set[Cause]] = {}
        values = {column.name: _read_column(column, parsed, causes) for column in columns}
        if not causes:
            return parsed, values
        facts.causes |= {row: frozenset(found) for row, found in causes.items()}
        good = [position for position, (row, _, _) in enumerate(parsed) if row not in causes]
        return [parsed[position] for position in good], {
            n: [v[position] for position in good] for n, v in values.items()
        }

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns of all messages, by all names in lower case; of several the first counts."""
        found: dict[str, pa.DataType] = {}
        for message in self._schemas.messages():
            for column in columns_of(message, True):
                found.setdefault(column.name.lower(), column.whole)
        renamed = {name: found[column.lower()] for name, column in self._renamed.names().items()}
        return renamed | found

    def columns(self, message: type[Message], defaults: bool) -> list[Column]:
        key = (id(message), defaults)
        if key not in self._columns:
            self._columns[key] = columns_of(message.DESCRIPTOR, defaults)
        return self._columns[key]

    def _unwrapped(
        self, rows: list[int], payloads: list[bytes], reading: Reading, facts: RecordFacts
    ) -> Iterator[Piece]:
        """The pieces inside wrappers. Unset fields of a wrapper have their defaults, whatever `decode.defaults` is."""
        columns = self.columns(reading.kind, True)
        if not columns:
            facts.causes |= dict.fromkeys(rows, frozenset({Cause.FRAME_WRAPPER}))
            return
        parsed, values = self._read(self._parse(rows, payloads, reading, facts), columns, facts)
        kinds = {column.name: column.kind for column in columns}
        groups: dict[tuple[SchemaKey, tuple[int, ...], int], list[int]] = {}
        inner: list[bytes] = []
        for position, (row, _, _) in enumerate(parsed):
            payload = (
                values[self._wrapper.payload][position] if kinds.get(self._wrapper.payload) == pa.binary() else None
            )
            inner.append(payload or b"")
            number = None
            if kinds.get(self._wrapper.schema_id) == pa.int64():
                number = values[self._wrapper.schema_id][position]
            frame = _inner_frame(payload, number)
            if isinstance(frame, Cause):
                facts.causes[row] = frozenset({frame})
            elif frame.broken is not None:
                self._break(row, frame, facts)
            else:
                assert frame.key is not None
                groups.setdefault((frame.key, frame.index, frame.body), []).append(position)
        rest = [name for name in values if name not in (self._wrapper.payload, self._wrapper.schema_id)]
        for (key, index, body), found in groups.items():
            own = [parsed[position][0] for position in found]
            event = self._reading(key, index, own, facts)
            if event is not None:
                outer = {name: [values[name][position] for position in found] for name in values}
                kinds_of_outer = {column.name: column.whole for column in columns}
                outer_values = _Outer(outer, rest, kinds_of_outer, reading.kind.DESCRIPTOR.full_name)
                yield from self._piece(
                    own, key, [inner[position][body:] for position in found], event, outer_values, facts
                )

    def _piece(
        self,
        rows: list[int],
        key: SchemaKey,
        payloads: list[bytes],
        reading: Reading,
        outer: _Outer | None,
        facts: RecordFacts,
    ) -> Iterator[Piece]:
        parsed = self._parse(rows, payloads, reading, facts)
        columns = self.columns(reading.kind, self._settings.decode.defaults)
        parsed, values = self._read(parsed, columns, facts)
        if not parsed:
            return
        good = [row for row, _, _ in parsed]
        if outer is not None:
            kept = set(good)
            outer = outer.of([position for position, row in enumerate(rows) if row in kept])
        full_name = reading.kind.DESCRIPTOR.full_name
        routed = self._routing_values(values, columns, full_name, len(good), outer)
        if outer is None and not any(one.name == self._routing and one.kind == pa.string() for one in columns):
            facts.found_since.update(good)
        tables = [self._table(row, value, facts) for row, value in zip(good, routed, strict=True)]
        yield Piece(
            good,
            key,
            [payload for _, payload, _ in parsed],
            [message for _, _, message in parsed],
            columns,
            values,
            outer.rest() if outer is not None else None,
            tables,
            outer.type if outer is not None else None,
        )

    def _routing_values(
        self, values: dict[str, list[Any]], columns: list[Column], full_name: str, count: int, outer: _Outer | None
    ) -> list[str | None]:
        route_by = self._settings.event.route_by
        if route_by == "message":
            return [full_name] * count
        of_outer = "" if outer is None else self._renamed.column(outer.message, self._routing, outer.values)
        if outer is not None and of_outer in outer.values:
            found, kind = outer.values[of_outer], outer.types[of_outer]
        else:
            name = self._renamed.column(full_name, self._routing, values)
            found = values.get(name, [None] * count)
            kind = next((column.whole for column in columns if column.name == name), pa.null())
        names = _routing_texts(found, kind)
        return [name and f"{full_name}/{name}" for name in names] if route_by == "both" else names

    def _table(self, row: int, value: str | None, facts: RecordFacts) -> str | None:
        if not value:
            facts.causes[row] = frozenset({Cause.ROUTE_MISSING})
            return None
        name = self._names.get(value)
        if name is not None:
            return self._settings.layout.silver_of(name)
        if not NAME.fullmatch(_name_of(value, self._settings.event.route_by)):
            facts.causes[row] = frozenset({Cause.ROUTE_NAME})
        return None

    def descriptor_set(self, key: SchemaKey) -> bytes:
        """That by which payloads of a decodable schema are read."""
        return self._schemas.descriptor_set(key)

    def key_text(self, key: bytes | None, headers: Sequence[Any] | None) -> Json | None:
        """The record key as JSON; None if it has no frame or cannot be decoded."""
        frame = None if key is None else frame_of(key, headers, KEY_HEADER)
        if not isinstance(frame, Frame) or frame.key is None or frame.broken is not None:
            return None
        if not self._schemas.is_decodable(frame.key):
            return None
        reading, payload = self._schemas.reading(frame.key, frame.index), (key or b"")[frame.body :]
        if reading is None or reading.belongs_to_other_index(payload):
            return None
        try:
            message = reading.kind.FromString(payload)
        except DecodeError:
            return None
        return Json(json_format.MessageToDict(message, preserving_proto_field_name=True))


@dataclass(frozen=True)
class _Outer:
    """The fields of wrappers, one entry per record; `names` are the fields that silver keeps."""

    values: dict[str, list[Any]]
    names: list[str]
    types: dict[str, pa.DataType]
    message: str

    def of(self, positions: list[int]) -> _Outer:
        return _Outer(
            {n: [v[p] for p in positions] for n, v in self.values.items()}, self.names, self.types, self.message
        )

    @property
    def type(self) -> pa.DataType:
        return pa.struct([(name, self.types[name]) for name in self.names])

    def rest(self) -> list[dict[str, Any] | None]:
        count = len(next(iter(self.values.values()), []))
        return [{name: self.values[name][p] for name in self.names} if self.names else None for p in range(count)]


def _routing_texts(values: list[Any], kind: pa.DataType) -> list[str | None]:
    """The routing values that the values of a field are; None where one is none."""
    if not (kind in (pa.string(), pa.bool_(), BIG) or pa.types.is_integer(kind)):
        return [None] * len(values)
    texts = [None if value is None else str(value) for value in values]
    return [text and text.lower() for text in texts] if kind == pa.bool_() else texts


def _inner_frame(payload: bytes | None, number: int | None) -> Frame | Cause:
    if payload is None:
        return Cause.FRAME_WRAPPER
    frame = frame_of(payload)
    if isinstance(frame, Cause) or frame.key is not None:
        return frame
    return Frame(number, (0,), 0) if number is not None and is_schema_id(number) else Cause.FRAME_WRAPPER


def _read_column(column: Column, parsed: list[tuple[int, bytes, Message]], causes: dict[int, set[Cause]]) -> list[Any]:
    """The column's values. A value that the column cannot store is None, and `causes` gets its cause."""
    read = column.read
    try:
        return [read(message) for _, _, message in parsed]
    except (TimestampOutOfRange, NotUtf8, UnicodeDecodeError):
        pass
    values = []
    for row, _, message in parsed:
        try:
            values.append(read(message))
            continue
        except TimestampOutOfRange:
            causes.setdefault(row, set()).add(Cause.DECODE_RANGE)
        except (NotUtf8, UnicodeDecodeError):
            causes.setdefault(row, set()).add(Cause.DECODE_PAYLOAD)
        values.append(None)
    return values


HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _name_of(value: str, by: str) -> str:
    """The table name that a routing value stands for."""
    if by != "field":
        message, _, rest = value.partition("/")
        value = HUMP.sub("_", message.rpartition(".")[2])
        value = f"{value}_{rest}" if by == "both" else value
    return unicodedata.normalize("NFKC", value).casefold()
