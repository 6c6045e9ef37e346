"""All that is known of one record in quarantine: the reason, its headers, its bytes, and what they decode to."""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from spark_app.lake.lake import Lake
from spark_app.model.catalog import Decodable, MessageIndex, SchemaKey
from spark_app.model.errors import ContractError
from spark_app.page.clear_text import shows_clear_text
from spark_app.page.format import amount, escaped, reason
from spark_app.page.views.quarantine.jobs import OpenRows
from spark_app.protobuf import framing
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import name
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from spark_app.tables.fixed_settings import numbering_of

MOST_HEADERS = 50
LONGEST_HEADER = 512  # bytes
WHERE = (
    "WHERE q.topic = ? AND q.topic_id IS NOT DISTINCT FROM ? AND q.partition = ? AND q.offset = ? "
    "ORDER BY q.quarantined_at DESC LIMIT 1"
)
FACTS = ("cause", "message_type", "refused_schema", "schema_id", "schema_guid", "table", "definition")
RAW = ("detail", "key", "value", "headers", "omitted_bytes", "omitted_sha256")
MOST_DECODED = 1 << 20  # bytes: what follows is read as if it were cut off
BY_NUMBERS = "Fields have numbers instead of names, and what may be a message is shown as one."
PER_LINE = 16
MOST_DUMPED = 4096  # bytes
MOST_CHARACTERS = 40_000  # of a message
PRINTED = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))
NOTHING = DescriptorPool()  # has no types, so that `Any` stays as it is
VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
LONGEST_VARINT = 10  # bytes
LARGEST_TAG = (1 << 32) - 1
DEEPEST = 100  # levels of messages that Google's parser reads


def record_detail(
    lake: Lake, settings: Settings, topic: str, topic_id: str | None, partition: int, offset: int
) -> dict[str, Any]:
    """
    Returns:
        "times": name -> seconds since 1970 or None, "facts": name -> text, "cause", "is_open", "rules", "hidden"; and,
        unless that is true, "detail", "headers" [[name, value]], "key" and "value" as {"size", "dump", "shown"},
        "parts" as of `FramedValue`, and "omitted".
    """
    rows = OpenRows(lake, settings)
    where = (WHERE, topic, topic_id, partition, offset)
    clear = shows_clear_text(lake, settings)
    names = [*FACTS, "rules", *(RAW if clear else ())]
    columns = ", ".join(rows.column(name) for name in names) if rows.exist else ""
    times = "epoch_us(q.quarantined_at) / 1e6, epoch_us(q.timestamp) / 1e6"
    found = rows.select(f"{times}, {columns}", *where, replayed=True) if rows.exist else []
    if not found:
        return {"failed": "the table of quarantine has this record no more"}
    quarantined_at, produced_at, *values = found[0]
    row = dict(zip(names, values, strict=True))
    facts = {
        "schema": row["schema_guid"] or row["schema_id"],
        "schema kept out": row["refused_schema"],
        "message": row["message_type"],
        "table": row["table"],
        "definition": row["definition"],
    }
    found_values = {
        "cause": row["cause"] or "",
        "rules": [escaped(str(rule)) for rule in row["rules"] or ()],
        "times": {"quarantined at": quarantined_at, "produced at": produced_at},
        "facts": {name: escaped(str(value)) for name, value in facts.items() if value not in (None, "")},
        "is_open": bool(rows.select("1", *where)),
        "hidden": not clear,
    }
    return found_values | (_raw(lake, settings, row) if clear else {})


def _raw(lake: Lake, settings: Settings, row: dict[str, Any]) -> dict[str, Any]:
    key, value, headers = row["key"], row["value"], row["headers"]
    omitted = row["omitted_bytes"]
    return {
        "detail": escaped(row["detail"] or ""),
        "headers": _headers(headers),
        "key": _bytes(key),
        "value": _bytes(value),
        "omitted": "" if omitted is None else f"{amount(omitted)} bytes with the SHA-256 {row['omitted_sha256']}",
        "parts": _parts(lake, settings, value, key, headers),
    }


def _parts(
    lake: Lake, settings: Settings, value: bytes | None, key: bytes | None, headers: str | None
) -> list[dict[str, Any]]:
    try:
        reader = FramedValue(settings, Ledger(lake, numbering_of(lake) or settings.decode.message_index or None))
    except (ContractError, TypeError) as error:  # of another release, or damaged
        return [vars(Part("value", [escaped(f"The ledger of the schemas cannot be read: {error}")]))]
    parts = [] if value is None else reader.parts(value, headers)
    framed_key = settings.decode.framed_keys and key is not None
    return parts + (reader.parts(key or b"", headers, is_key=True) if framed_key else [])


def _bytes(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    return {"size": len(data), "shown": min(len(data), MOST_DUMPED), "dump": hex_dump(data)}


def _headers(text: str | None) -> list[list[str]]:
    """[name, value] of each header; bytes that are no text are shown as hex."""
    try:
        found = json.loads(text or "[]")
        pairs = [(str(one["key"]), base64.b64decode(one["value"] or "")) for one in found[:MOST_HEADERS]]
    except (KeyError, TypeError, ValueError):
        return [["the headers cannot be read", escaped((text or "")[:LONGEST_HEADER])]]
    more = [["...", f"{amount(len(found) - MOST_HEADERS)} more headers"]] if len(found) > MOST_HEADERS else []
    return [[escaped(name[:LONGEST_HEADER]), _header_value(data)] for name, data in pairs] + more


def _header_value(data: bytes) -> str:
    cut = data[:LONGEST_HEADER]
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and text else cut.hex(" ")
    return shown if len(data) <= LONGEST_HEADER else f"{shown} ... ({amount(len(data))} bytes)"


@dataclass
class Part:
    """The facts about one value: the record's, its key's, or the payload of a wrapper.

    Attributes:
        title: which one it is.
        said: sentences about the frame, the schema, and where decoding stops.
        message: full name of its message; "" = it is not known.
        text: the fields.
    """

    title: str
    said: list[str]
    message: str = ""
    text: str = ""


class FramedValue:
    """Reads values by the settings and the ledger of a lake."""

    def __init__(self, settings: Settings, ledger: Ledger):
        self._ledger = ledger
        self._wrapper = settings.wrapper
        decode = settings.decode
        self._unframed = decode.unframed_schema_id
        self._unframed_message = decode.unframed_message

    def parts(self, value: bytes, headers: str | None, is_key: bool = False) -> list[dict[str, Any]]:
        """The facts about a value: one part, or two if it is a wrapper of another value."""
        header = framing.KEY_HEADER if is_key else framing.VALUE_HEADER
        frames = framing.split(pa.array([value], pa.binary()), pa.array([headers], pa.string()), header, self._bare())
        part, message = self._read("key" if is_key else "value", value, frames)
        inner = None if is_key or message is None else self._unwrapped(message)
        return [asdict(one) for one in (part, inner) if one is not None]

    def _bare(self) -> framing.UnframedSchema | None:
        """The schema of values without a frame."""
        if not self._unframed:
            return None
        try:
            return self._unframed, self._ledger.index_of(self._unframed, self._unframed_message)
        except ContractError:  # a file of the ledger is damaged, which `_class_of` reports
            return self._unframed, framing.FIRST_MESSAGE

    def _unwrapped(self, message: Message) -> Part | None:
        """The value inside of a wrapper; None if the message is none."""
        payload = _field(message, self._wrapper.payload, FieldDescriptor.TYPE_BYTES)
        if not isinstance(payload, bytes):
            return None
        named = _field(message, self._wrapper.schema_id)
        schema = named if type(named) is int and 0 < named <= framing.LARGEST_ID else framing.NO_SCHEMA
        bare = None if schema == framing.NO_SCHEMA else (schema, framing.FIRST_MESSAGE)
        frames = framing.split(pa.array([payload], pa.binary()), bare=bare)
        return self._read(f"payload in the field {self._wrapper.payload}", payload, frames)[0]

    def _read(self, title: str, value: bytes, frames: framing.Frames) -> tuple[Part, Message | None]:
        status, body, part = int(frames.status[0]), int(frames.body[0]), Part(title, [])
        kind: type[Message] = Empty
        if int(frames.schema[0]) == framing.NO_SCHEMA:
            part.said.append(reason(framing.CAUSES[status]))
            if status == framing.SHORT:
                return part, None
        else:
            key, index = frames.key_of(0), frames.indexes[int(frames.index[0])]
            part.said.append(_frame(key, index, body))
            if status != framing.OK:
                part.said.append(reason(framing.CAUSES[status]))
                body -= status == framing.WRONG_INDEX  # nothing of the index was read
            else:
                kind = self._class_of(key, index, part)
        if kind is Empty:
            part.said.append(BY_NUMBERS)
        return part, _decode(value[body : body + MOST_DECODED], body, len(value), kind, part)

    def _class_of(self, key: SchemaKey, index: MessageIndex, part: Part) -> type[Message]:
        """The class of the writer's message; that of a message without fields if it is not known."""
        entry = self._ledger.entries.get(key)
        if entry is None or not entry.digest:
            state = "" if entry is None else f" it is {entry.outcome}: {entry.detail or entry.cause}"
            why = state or " the ledger of the lake has no schema of that name"
            part.said.append(escaped(f"The writer's schema is not known here:{why}."))
            return Empty
        try:
            files = self._ledger.descriptor_set(entry.digest)
            messages = load_files(files)[1]
        except (ContractError, TypeError, ValueError) as error:
            part.said.append(escaped(f"The writer's schema cannot be read: {error}"))
            return Empty
        found = name(Decodable(key, files, entry.digest, entry.form, self._ledger.numbering), messages, index)
        message: Descriptor | None = found.message
        if message is None:
            other = "" if found.other is None else f"; to other writers it means {found.other.full_name}"
            part.said.append(escaped(f"The writer's schema has no message with the index {list(index)}{other}."))
            return Empty
        part.message = message.full_name
        return message_factory.GetMessageClass(message)


def _decode(payload: bytes, body: int, size: int, kind: type[Message], part: Part) -> Message:
    """The message of what can be read, which `part` describes, too.

    Args:
        body: the first byte of the payload in the value.
        size: of the value.
    """
    kept, stop = readable(payload, kind)
    message = kind.FromString(kept)
    part.text, why_short = message_text(message)
    if body + len(payload) < size:
        part.said.append(
            f"Only the first {amount(MOST_DECODED)} bytes of the payload are decoded, as if it ended there."
        )
    if stop is None:
        part.said.append("It can be read as Protobuf to its end.")
    else:
        at, field = body + stop.at, f", in the field {stop.field}" if stop.field else ""
        where = f"up to byte {amount(at)} (0x{at:x}) of the {amount(size)} bytes{field}"
        begins = f"It can be read as Protobuf {where}" if stop.at or field else "It cannot be read as Protobuf"
        part.said.append(escaped(f"{begins}: {stop.why}."))
    part.said += [why_short] if why_short else []
    return message


def _frame(key: SchemaKey, index: MessageIndex, body: int) -> str:
    named = f"the schema {'id' if isinstance(key, int) else 'GUID'} {key}"
    if not index:
        return f"T{named[1:]} is named."
    named += f" and the message index {list(index)}"
    if body:
        return f"The frame names {named}; the payload begins at byte {body}."
    return f"A header or the settings name {named}; the payload is the whole value."


def _field(message: Message, field: str, kind: int | None = None) -> Any:
    """The value of a field; None without such a field."""
    found = message.DESCRIPTOR.fields_by_name.get(field) if field else None
    if found is None or found.is_repeated or (kind is not None and found.type != kind):
        return None
    return getattr(message, field)


class _Full(Exception):
    pass


class _Paper:
    """Takes what a printer writes, up to a number of characters."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        self._parts.append(text[: self._left])
        self._left -= len(text)
        if self._left < 0:
            raise _Full

    @property
    def text(self) -> str:
        return "".join(self._parts)


def hex_dump(data: bytes) -> str:
    """The first bytes as lines of offset, hex and ASCII."""
    lines = []
    for at in range(0, min(len(data), MOST_DUMPED), PER_LINE):
        part = data[at : min(at + PER_LINE, MOST_DUMPED)]
        both = part[:8].hex(" "), part[8:].hex(" ")
        lines.append(f"{at:08x}  {'  '.join(both):<48}  {part.translate(PRINTED).decode('ascii')}")
    return "\n".join(lines)


def message_text(message: Message) -> tuple[str, str]:
    """(text format of a message, why it is not all of it; "" = it is). Unknown fields have numbers."""
    own: Any = message.DESCRIPTOR.file.pool
    for shown, pool in ((message, own), (message, NOTHING), (_unnamed(message), NOTHING)):
        paper = _Paper(MOST_CHARACTERS)
        why = ""
        try:
            text_format.PrintMessage(shown, paper, as_utf8=True, descriptor_pool=pool, print_unknown_fields=True)
        except _Full:
            why = f"Only the first {amount(MOST_CHARACTERS)} characters are shown."
        except RecursionError:
            why = "Its fields are nested too deep to show all of them."
        except (DecodeError, UnicodeError):  # of a text that is not UTF-8, or of a message inside of an Any
            continue
        return escaped(paper.text), why
    return "", "Google's library cannot print it."


def _unnamed(message: Message) -> Message:
    """The same fields without their names."""
    found = Empty()
    found.ParseFromString(message.SerializePartialToString())
    return found


@dataclass(frozen=True)
class Stop:
    """Where a payload cannot be read on.

    Attributes:
        at: the first byte that is not read, from the start of the payload.
        field: the names of the fields around it, with dots between them; empty if they are not known.
    """

    at: int
    why: str
    field: str = ""


class NoField(Exception):
    """The bytes are no field; the text is the reason."""


def readable(data: bytes, message: type[Message]) -> tuple[bytes, Stop | None]:
    """The part of a payload that the message's parser accepts, and where it ends; None = it is all of it.

    A nested message that is refused is kept up to its own end.
    """
    return _readable(data, message, 0)


def _readable(data: bytes, message: type[Message], depth: int) -> tuple[bytes, Stop | None]:
    if _accepts(message, data):
        return data, None
    ends, why = field_ends(data)
    # If it accepts some fields, it accepts fewer, too.
    last = bisect_left(ends, True, key=lambda end: not _accepts(message, data[:end])) - 1
    at = ends[last]
    if last + 1 < len(ends):
        why = "Google's parser refuses this field"
    kept, stop = data[:at], Stop(at, why)
    found = _field_at(data, at, message)
    if found is None:
        return kept, stop
    field, body, end = found
    inner = data[body : min(end, len(data))]
    if field.message_type is None:
        is_text = field.type == FieldDescriptor.TYPE_STRING and end <= len(data)
        return kept, Stop(at, "its text is not UTF-8" if is_text and not _is_text(inner) else why, field.name)
    if depth == DEEPEST:
        return kept, Stop(at, f"messages are nested deeper than {DEEPEST} levels", field.name)
    part, inside = _readable(inner, message_factory.GetMessageClass(field.message_type), depth + 1)
    with_part = kept + _varint_of(field.number << 3 | BYTES) + _varint_of(len(part)) + part
    if inside is None:
        deep = end <= len(data)
        inside = Stop(0, f"messages are nested deeper than {DEEPEST} levels") if deep else Stop(len(inner), why)
    where = ".".join(filter(None, (field.name, inside.field)))
    return with_part if _accepts(message, with_part) else kept, Stop(body + inside.at, inside.why, where)


def field_ends(data: bytes) -> tuple[list[int], str]:
    """The end of each field at the top, after a 0 for none of them, and why the bytes after the last one are no field;
    "" = there are none."""
    ends = [0]
    try:
        while ends[-1] < len(data):
            ends.append(_end_of_field(data, ends[-1]))
    except NoField as no_field:
        return ends, str(no_field)
    return ends, ""


def _end_of_field(data: bytes, at: int) -> int:
    groups: list[int] = []
    while True:
        number, kind, at = _tag(data, at)
        if kind == VARINT:
            at = _varint(data, at)[1]
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        elif kind == BYTES:
            size, at = _varint(data, at)
            at += size
        elif kind == GROUP:
            groups.append(number)
        elif not groups or groups.pop() != number:
            raise NoField(f"a group of field {number} ends that has not begun")
        if at > len(data):
            raise NoField(f"field {number} is cut off; bytes that are missing: {amount(at - len(data))}")
        if not groups:
            return at


def _tag(data: bytes, at: int) -> tuple[int, int, int]:
    """(field number, wire type, the byte after the tag)."""
    tag, at = _varint(data, at)
    number, kind = tag >> 3, tag & 7
    if tag > LARGEST_TAG:
        raise NoField(f"no field has the number {number}")  # Google's parser takes 0 for one
    if kind > FIXED32:
        raise NoField(f"no field has the wire type {kind}")
    return number, kind, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(data[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, at + position + 1
    longest = len(data) - at >= LONGEST_VARINT
    raise NoField(f"a number has more than {LONGEST_VARINT} bytes" if longest else "the bytes end within a number")


def _varint_of(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _field_at(data: bytes, at: int, message: type[Message]) -> tuple[FieldDescriptor, int, int] | None:
    """(field, first byte of its value, the byte after it) of a text, of bytes or of a message; None for all others."""
    try:
        number, kind, at = _tag(data, at)
        size, at = _varint(data, at)
    except NoField:
        return None
    field: Any = message.DESCRIPTOR.fields_by_number.get(number)
    return None if field is None or kind != BYTES else (field, at, at + size)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _accepts(message: type[Message], data: bytes) -> bool:
    try:
        message.FromString(data)
    except DecodeError:
        return False
    return True
