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

from spark_app.worker.decode.batch import batch_of, to_batch, to_batches
from spark_app.worker.decode.typemap import holds_maps

SLICE = 64  # payloads parsed by one call: a bad one sends as many to be parsed one by one
SLICE_BYTES = 1 << 20  # of theirs: a message can take 40 times as much memory as its payload

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
    """What the reference parser says of payloads: the accepted as it writes them, in batches, and the refused."""

    written: list[bytes] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class ReferenceParser:
    """Parses payloads of one message type, and of `batch`, which holds many."""

    def __init__(self, message: Descriptor):
        self.batch = batch_of(message)
        self.message_class: type[Message] = message_factory.GetMessageClass(message)
        self._batch_class: type[Message] = message_factory.GetMessageClass(self.batch)
        self._holds_maps = holds_maps(message)

    def judge(self, payloads: pa.Array) -> Judgement:
        """Parse the payloads and write them anew.

        What another encoder may have sent, and a faster decoder may read otherwise, is gone then: merged sub-messages,
        repeated map keys, two members of a oneof, map entries without a value. An unknown field makes its map entry
        unknown, which would be written as it came.
        """
        judgement = Judgement()
        for number, batch in enumerate(to_batches(payloads, SLICE)):
            start = number * SLICE
            written = self._judge_together(batch)
            if written is None:
                self._judge_each(payloads.slice(start, SLICE), start, judgement)
            else:
                judgement.written.append(written)
        return judgement

    def _judge_together(self, batch: pa.Buffer) -> bytes | None:
        """None when one of them is refused, or parsed they might take too much memory."""
        if batch.size > SLICE_BYTES:
            return None
        try:
            return self._write(self._batch_class.FromString(batch.to_pybytes()))
        except DecodeError:
            return None

    def _judge_each(self, payloads: pa.Array, start: int, judgement: Judgement) -> None:
        """One after the other: in a batch each is a level deeper, of 100, and the refused ones are not named."""
        accepted = self._messages(payloads.to_pylist(), start, judgement.refused)
        judgement.written.append(to_batch([self._write(message) for _, message in accepted]))

    def _write(self, message: Message) -> bytes:
        if self._holds_maps:
            message.DiscardUnknownFields()
        return message.SerializeToString(deterministic=True)  # maps in order of their keys

    def parse(self, payloads: pa.Array) -> tuple[list[tuple[int, Message]], list[Refused]]:
        """(accepted rows and their messages, refused rows)."""
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
