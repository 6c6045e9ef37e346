"""Many payloads as one message: a call for each costs several times what it does."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from uuid import uuid4

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

TAG = b"\x0a"  # of field 1, a message


def batch_of(message: Descriptor) -> Descriptor:
    """`message Batch { repeated <message> members = 1; }`, in the message's own pool."""
    name = f"Batch_{uuid4().hex}"  # no schema can have it already
    file = FileDescriptorProto(name=f"{name}.proto", syntax="proto3", dependency=[message.file.name])
    members = file.message_type.add(name=name).field.add(name="members", number=1)
    members.label, members.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
    members.type_name = f".{message.full_name}"
    pool = message.file.pool
    pool.Add(file)
    return pool.FindMessageTypeByName(name)


def to_batch(payloads: Iterable[bytes]) -> bytes:
    """The payloads as members of a batch: each behind its tag and its length."""
    return b"".join([part for payload in payloads for part in (_head(len(payload)), payload)])


@functools.lru_cache(maxsize=4096)
def _head(length: int) -> bytes:
    return TAG + _varint(length)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
