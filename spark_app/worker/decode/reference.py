"""The reference parser (upb): message classes from a descriptor set, and its judgement of each payload."""

from __future__ import annotations

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


@dataclass
class Judgement:
    """Rows of a batch by what the reference parser says of them."""

    canonical: list[int] = field(default_factory=list)
    odd: list[tuple[int, Message]] = field(default_factory=list)  # accepted, but another encoding than its own
    refused: list[tuple[int, str]] = field(default_factory=list)


class ReferenceParser:
    """Parses payloads of one message type."""

    def __init__(self, message: Descriptor):
        self.message_class: type[Message] = message_factory.GetMessageClass(message)
        self._holds_maps = holds_maps(message)

    def judge(self, payloads: pa.Array, keep: bool = False) -> Judgement:
        """Sort the payloads.

        Args:
            keep: treat every accepted row as odd, so that its message is kept.
        """
        judgement = Judgement()
        parse = self.message_class.FromString
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                message = parse(payload)
            except DecodeError as error:
                judgement.refused.append((row, str(error)))
                continue
            if not keep and self._is_canonical(message, payload):
                judgement.canonical.append(row)
            else:
                judgement.odd.append((row, message))
        return judgement

    def _is_canonical(self, message: Message, payload: bytes) -> bool:
        """Whether the message would be written back to the same bytes. Else it hides something that a faster decoder
        may read otherwise: merged sub-messages, repeated map keys, two members of a oneof. An unknown field makes its
        map entry unknown, which is written back as it came: it must not be there.
        """
        if self._holds_maps:
            message.DiscardUnknownFields()
        return message.SerializeToString(deterministic=True) == payload

    def parse(self, payloads: pa.Array, rows: list[int]) -> list[tuple[int, Message]]:
        return [(row, self.message_class.FromString(payloads[row].as_py())) for row in rows]
