"""The reference parser (upb): message classes from a descriptor set, and its judgement of each payload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message

from spark_app.worker.decode.typemap import holds_maps

if api_implementation.Type() != "upb":
    raise ImportError("Protobuf's upb backend is needed: unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION")


def load_files(descriptor_set: bytes) -> tuple[DescriptorPool, list[Descriptor]]:
    """A pool of its own for one schema id (two versions share names), and the writer's top-level messages."""
    files = FileDescriptorSet.FromString(descriptor_set).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    own = pool.FindFileByName(files[-1].name)
    return pool, [own.message_types_by_name[m.name] for m in files[-1].message_type]


Refused = tuple[int, str]  # row, what the parser says


@dataclass
class Judgement:
    """What the reference parser says of a batch: the accepted rows as it writes them, and the refused ones."""

    rows: list[int] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class ReferenceParser:
    """Parses payloads of one message type."""

    def __init__(self, message: Descriptor):
        self.message_class: type[Message] = message_factory.GetMessageClass(message)
        self._holds_maps = holds_maps(message)

    def judge(self, payloads: pa.Array) -> Judgement:
        """Parse the payloads and write them anew.

        What another encoder may have sent, and a faster decoder may read otherwise, is gone then: merged sub-messages,
        repeated map keys, two members of a oneof, map entries without a value. An unknown field makes its map entry
        unknown, which would be written as it came.
        """
        judgement = Judgement()
        for row, message in self._messages(payloads, judgement.refused):
            if self._holds_maps:
                message.DiscardUnknownFields()
            judgement.rows.append(row)
            judgement.written.append(message.SerializeToString(deterministic=True))  # maps in order of their keys
        return judgement

    def parse(self, payloads: pa.Array) -> tuple[list[tuple[int, Message]], list[Refused]]:
        """(accepted rows and their messages, refused rows)."""
        refused: list[Refused] = []
        return list(self._messages(payloads, refused)), refused

    def _messages(self, payloads: pa.Array, refused: list[Refused]) -> Iterator[tuple[int, Message]]:
        parse = self.message_class.FromString
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                message = parse(payload)
            except DecodeError as error:
                refused.append((row, str(error)))
                continue
            yield row, message
