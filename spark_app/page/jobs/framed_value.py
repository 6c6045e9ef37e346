"""Says what the frame of a value names, and decodes what follows it as far as it goes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from spark_app.model.catalog import Decodable, MessageIndex, SchemaKey
from spark_app.model.errors import ContractError
from spark_app.page.jobs.shown_text import message_text, plain
from spark_app.page.jobs.wire_fields import readable
from spark_app.page.reasons import reason
from spark_app.page.said import amount
from spark_app.protobuf import framing
from spark_app.protobuf.decode.numbering import name
from spark_app.protobuf.decode.reference import load_files
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings

MOST_DECODED = 1 << 20  # bytes: what follows is read as if it were cut off
BY_NUMBERS = "Fields have numbers instead of names, and what may be a message is shown as one."


@dataclass
class Part:
    """What is known of one value: the record's, its key's, or the payload of a wrapper.

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
        """What a value says: one part, or two if it is a wrapper of another value."""
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
        except ContractError:  # a file of the ledger is damaged, which `_class_of` tells
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
            part.said.append(plain(f"The writer's schema is not known here:{why}."))
            return Empty
        try:
            files = self._ledger.descriptor_set(entry.digest)
            messages = load_files(files)[1]
        except (ContractError, TypeError, ValueError) as error:
            part.said.append(plain(f"The writer's schema cannot be read: {error}"))
            return Empty
        found = name(Decodable(key, files, entry.digest, entry.form, self._ledger.numbering), messages, index)
        message: Descriptor | None = found.message
        if message is None:
            other = "" if found.other is None else f"; to other writers it means {found.other.full_name}"
            part.said.append(plain(f"The writer's schema has no message with the index {list(index)}{other}."))
            return Empty
        part.message = message.full_name
        return message_factory.GetMessageClass(message)


def _decode(payload: bytes, body: int, size: int, kind: type[Message], part: Part) -> Message:
    """The message of what can be read, which is told in `part`, too.

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
        part.said.append(plain(f"{begins}: {stop.why}."))
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
