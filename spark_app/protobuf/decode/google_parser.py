"""Parses payloads with Google's parser (upb), with message classes from a descriptor set.

Many payloads are concatenated into one message, because one parser call per payload is several times slower.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import api_implementation
from google.protobuf.internal.type_checkers import FIELD_TYPE_TO_WIRE_TYPE
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from spark_app.protobuf.columns.types import has_maps
from spark_app.protobuf.columns.values import values_of

WIRE_TYPES = ("a varint", "a fixed64", "text, bytes or a message", "a group", "the end of a group", "a fixed32")
TAG = b"\x0a"  # the tag of field 1 with a message as its value


def batch_of(message: Descriptor) -> Descriptor:
    """`message Batch { repeated <message> members = 1; }`, in the message's own pool."""
    name = f"Batch_{uuid4().hex}"  # a random name, so that no schema can have it
    file = FileDescriptorProto(name=f"{name}.proto", syntax="proto3", dependency=[message.file.name])
    members = file.message_type.add(name=name).field.add(name="members", number=1)
    members.label, members.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
    members.type_name = f".{message.full_name}"
    pool = message.file.pool
    pool.Add(file)
    return pool.FindMessageTypeByName(name)


def to_batch(payloads: Iterable[bytes]) -> bytes:
    """The serialised batch of these payloads: each one after its tag and its length. Suits a few payloads."""
    return b"".join([part for payload in payloads for part in (_head(len(payload)), payload)])


def to_members(payloads: pa.Array) -> pa.LargeBinaryArray:
    """Each payload as a member of a batch: with its tag and its length before it. Suits many payloads: Arrow needs half
    the time of parsing them."""
    lengths, inverse = np.unique(pc.binary_length(payloads).to_numpy(), return_inverse=True)
    heads = pa.array(map(_head, lengths.tolist()), pa.large_binary()).take(pa.array(inverse))
    separator = pa.scalar(b"", pa.large_binary())  # at import this would load pandas
    return pc.binary_join_element_wise(heads, payloads.cast(pa.large_binary()), separator)


def concatenate_members(members: pa.LargeBinaryArray) -> pa.Buffer:
    """The serialised batch of these members, without a copy: they are adjacent in the array's buffer."""
    _, offsets, data = members.buffers()
    ends = np.frombuffer(offsets, np.int64)
    begin, end = int(ends[members.offset]), int(ends[members.offset + len(members)])
    return data.slice(begin, end - begin)


@functools.lru_cache(maxsize=4096)
def _head(length: int) -> bytes:
    return TAG + _varint(length)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


SLICES = 512, 32  # payloads per call; a slice with an invalid payload is parsed again in smaller slices, then singly
SLICE_BYTES = 1 << 20  # most payload bytes per call: a message can take 40 times as much memory as its payload

if api_implementation.Type() != "upb":
    raise ImportError("Protobuf's upb backend is needed: unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION")


def load_files(descriptor_set: bytes) -> tuple[DescriptorPool, list[Descriptor]]:
    """(a new pool with the files, the top-level messages of the writer's file).

    Each schema has its own pool, because two versions of a schema have the same names.
    """
    files = FileDescriptorSet.FromString(descriptor_set).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    own = own_file(files)
    messages = pool.FindFileByName(own.name).message_types_by_name
    return pool, [messages[m.name] for m in own.message_type]


def own_file(files: Sequence[FileDescriptorProto]) -> FileDescriptorProto:
    """The file whose messages an index names: the last file, or, if that declares no message and no enum, the first of
    its public imports that does. Confluent's client has the same rule."""
    by_name, last = {file.name: file for file in files}, files[-1]
    seen, left = {last.name}, [last]
    while left:
        file = left.pop(0)
        if file.message_type or file.enum_type:
            return file
        public = [by_name[file.dependency[at]] for at in file.public_dependency]
        left += [imported for imported in public if imported.name not in seen]
        seen |= {imported.name for imported in public}
    return last


Refused = tuple[int, str]  # row, error text of the parser


@dataclass
class StrictResult:
    """The result of Google's parser.

    Attributes:
        written: the accepted payloads, serialised again, in batches.
        refused: the rejected rows.
    """

    written: list[bytes] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class GoogleParser:
    """Parses payloads of one message type, and of `batch`, a message with many of them."""

    def __init__(self, message: Descriptor):
        self.batch = batch_of(message)
        self.message_class: type[Message] = message_factory.GetMessageClass(message)
        self._batch_class: type[Message] = message_factory.GetMessageClass(self.batch)
        self._has_maps = has_maps(message)
        self._nests_maps = any(f.message_type is not None and has_maps(f.message_type) for f in message.fields)

    def check(self, payloads: pa.Array) -> StrictResult:
        """Parse the payloads and serialise the accepted ones again.

        Some encodings are valid, but a faster decoder may read them differently: merged sub-messages, repeated map
        keys, two members of a oneof, map entries without a value. Serialising removes them. One exception: the parser
        keeps a map entry with an unknown field as an unknown field of its parent and serialises it unchanged, so
        `_write` discards unknown fields there.
        """
        result = StrictResult()
        self._parse_slices(payloads, to_members(payloads), 0, result, *SLICES)
        return result

    def _parse_slices(
        self, payloads: pa.Array, members: pa.Array, start: int, result: StrictResult, size: int, *smaller: int
    ) -> None:
        for first in range(0, len(payloads), size):
            some, batch = payloads.slice(first, size), members.slice(first, size)
            written = self._check_together(concatenate_members(batch))
            if written is not None:
                result.written.append(written)
            elif smaller:
                self._parse_slices(some, batch, start + first, result, *smaller)
            else:
                self._check_each(some, start + first, result)

    def _check_together(self, batch: pa.Buffer) -> bytes | None:
        """The accepted payloads, serialised again; None if one is rejected, or if parsing may take too much memory."""
        if batch.size > SLICE_BYTES:
            return None
        try:
            parsed: Any = self._batch_class.FromString(batch.to_pybytes())
        except DecodeError:
            return None
        return self._write(parsed, parsed.members)

    def _check_each(self, payloads: pa.Array, start: int, result: StrictResult) -> None:
        """Parse each payload by itself. In a batch each payload is nested one level deeper, of 100 allowed levels, and
        the parser does not name the rejected payload."""
        accepted = self._messages(payloads.to_pylist(), start, result.refused)
        result.written.append(to_batch([self._write(message, [message]) for _, message in accepted]))

    def all_read_fully(self, payloads: pa.Array) -> bool:
        """Whether one call parses all payloads without unknown fields; also False if they are too large for one."""
        batch = concatenate_members(to_members(payloads))
        return batch.size <= SLICE_BYTES and _reads_whole(self._batch_class, batch.to_pybytes())

    def reads_fully(self, payload: bytes) -> bool:
        """Whether the parser accepts the payload and finds no unknown fields."""
        return _reads_whole(self.message_class, payload)

    def misfits(self, payloads: pa.Array) -> dict[int, str]:
        """Row -> what `misfit` says of the payload, where it says something."""
        found: dict[int, str] = {}
        for first in range(0, len(payloads), SLICES[0]):
            some = payloads.slice(first, SLICES[0]).to_pylist()
            if sum(map(len, some)) <= SLICE_BYTES and _reads_whole(self._batch_class, to_batch(some)):
                continue
            for row, message in self._messages(some, first, []):
                with suppress(UnicodeDecodeError, KeyError):  # a key of a map is not UTF-8, so the payload is rejected
                    if said := misfit(message):
                        found[row] = said
        return found

    def _write(self, whole: Message, members: Iterable[Message]) -> bytes:
        """Serialise `whole`. `members`: the message itself, or the messages of which it is a batch."""
        if self._has_maps and (self._nests_maps or _any_unknown(members)):
            whole.DiscardUnknownFields()
        return whole.SerializeToString(deterministic=True)  # sorts maps by key

    def parse(self, payloads: pa.Array) -> tuple[list[tuple[int, Message]], list[Refused]]:
        """(accepted rows with their messages, rejected rows)."""
        refused: list[Refused] = []
        return list(self._messages(payloads.to_pylist(), 0, refused)), refused

    def _messages(self, payloads: list[bytes], start: int, refused: list[Refused]) -> Iterator[tuple[int, Message]]:
        parse = self.message_class.FromString
        for row, payload in enumerate(payloads, start):
            try:
                message = parse(payload)
            except DecodeError as error:
                refused.append((row, str(error)))
                continue
            yield row, message


def misfit(message: Message) -> str:
    """The first field of another wire type than in the schema, at any depth; "" = none. For a parser such a field is
    unknown, and its column is empty."""
    unknowns: Any = UnknownFieldSet(message)
    for unknown in unknowns:
        field = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        if field is not None and unknown.wire_type != FIELD_TYPE_TO_WIRE_TYPE[field.type]:
            sent, due = WIRE_TYPES[unknown.wire_type], WIRE_TYPES[FIELD_TYPE_TO_WIRE_TYPE[field.type]]
            return f"{field.full_name} is sent as {sent}, and the schema has {due}"
    nested = ((field, value) for field, value in message.ListFields() if field.message_type is not None)
    inner = (one for pair in nested for kind, ones in values_of(*pair) if kind.message_type is not None for one in ones)
    return next(filter(None, map(misfit, inner)), "")


def _any_unknown(messages: Iterable[Message]) -> bool:
    """Whether one of the messages has unknown fields; upb keeps a map entry with an unknown field as an unknown field.
    Nested messages are not searched: to search them, or to discard all unknown fields, takes four times as long."""
    return any(len(UnknownFieldSet(message)) for message in messages)


def _reads_whole(kind: type[Message], data: bytes) -> bool:
    try:
        message = kind.FromString(data)
    except DecodeError:
        return False
    size = len(message.SerializePartialToString())  # ByteSize raises an error if a required field is missing
    message.DiscardUnknownFields()
    return len(message.SerializePartialToString()) == size
