"""One decoder per (descriptor set, message index), kept for the life of the worker process.

Each payload is first parsed by the reference parser: what it refuses is rejected with its words. What it would write
back to the same bytes goes through ptars, ten times faster than building columns in Python; the rest, and messages
ptars cannot be trusted with, through the column builder. A panic in ptars ends nobody: its batch is built that way too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor
from ptars import HandlerPool, PtarsConfig

from spark_app.records import Cause, Decodable, MessageIndex, Reject
from spark_app.worker.decode.columns import FIRST_MICROSECOND, LAST_MICROSECOND, LONGEST_DURATION, ColumnBuilder
from spark_app.worker.decode.reference import Judgement, ReferenceParser, load_files
from spark_app.worker.decode.typemap import arrow_schema, message_at, suits_ptars

CONFIG = PtarsConfig(timestamp_unit="us", duration_unit="us", timestamp_tz="UTC", enum_repr="string")
OUT_OF_RANGE = "a timestamp or duration is outside the years 1 to 9999"


@dataclass(frozen=True)
class Decoded:
    """`table` has one row for each entry of `rows`, the row numbers in the input, ascending."""

    table: pa.Table
    rows: np.ndarray
    rejects: list[Reject]


class Decoder:
    """Decodes payloads of one message type of one schema id."""

    def __init__(self, message: Descriptor, keep_alive: object):
        self._keep_alive = keep_alive  # the pool owns the descriptors
        self.full_name = message.full_name
        self.schema = arrow_schema(message)
        self._parser = ReferenceParser(message)
        self._builder = ColumnBuilder(message)
        self._handler = _fast_handler(message)

    def decode(self, payloads: pa.Array) -> Decoded:
        """Columns of the accepted payloads; `payloads` is plain binary without NULLs."""
        judgement = self._parser.judge(payloads, keep=self._handler is None)
        rejects: list[Reject] = [(row, Cause.DECODE_PAYLOAD, detail) for row, detail in judgement.refused]
        fast, fast_rows, beyond = self._decode_fast(payloads, judgement)
        rejects += [(int(row), Cause.DECODE_RANGE, OUT_OF_RANGE) for row in beyond]
        if not judgement.odd:
            return Decoded(fast, fast_rows, rejects)
        slow, slow_rows, refused = self._builder.build(judgement.odd)
        rejects += refused
        rows = np.concatenate([fast_rows, np.array(slow_rows, np.int64)])
        order = np.argsort(rows, kind="stable")
        return Decoded(pa.concat_tables([fast, slow]).take(order), rows[order], rejects)

    def _decode_fast(self, payloads: pa.Array, judgement: Judgement) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """(columns, their rows, rows out of range) of the canonical payloads. A panic makes them all odd."""
        rows = np.array(judgement.canonical, np.int64)
        nothing = self.schema.empty_table(), rows[:0], rows[:0]
        if not len(rows) or self._handler is None:
            return nothing
        picked = payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
        try:
            batch = self._handler.array_to_record_batch(picked)
        except BaseException as error:
            _pass_interrupts(error)
            judgement.odd += self._parser.parse(payloads, judgement.canonical)
            return nothing
        table = pa.Table.from_batches([batch])
        bad = _any_out_of_range(batch)
        if bad.any():
            table = table.filter(pa.array(~bad))
        return table.cast(self.schema), rows[~bad], rows[bad]


def _fast_handler(message: Descriptor) -> Any:
    """ptars' handler, or None where it cannot be trusted with the message or with a file it imports."""
    if not suits_ptars(message):
        return None
    try:
        return HandlerPool([message.file], CONFIG).get_for_message(message)
    except BaseException as error:
        _pass_interrupts(error)
        return None


def _pass_interrupts(error: BaseException) -> None:
    """A Rust panic is not an `Exception`; neither is an interrupt, which must pass."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _any_out_of_range(batch: pa.RecordBatch) -> np.ndarray:
    bad = np.zeros(batch.num_rows, bool)
    for column in batch.columns:
        if _holds_moments(column.type):
            bad |= out_of_range(column)
    return bad


def _holds_moments(kind: pa.DataType) -> bool:
    moment = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return moment or any(_holds_moments(kind.field(i).type) for i in range(kind.num_fields))


def out_of_range(array: pa.Array) -> np.ndarray:
    """Which rows hold, at any depth, a timestamp outside the years 1 to 9999 or a duration longer than they are.

    ptars clamps what 64 bits cannot hold; what it clamps is out of this range.
    """
    if pa.types.is_timestamp(array.type):
        return _outside(array, FIRST_MICROSECOND, LAST_MICROSECOND)
    if pa.types.is_duration(array.type):
        return _outside(array, -LONGEST_DURATION, LONGEST_DURATION)
    bad = np.zeros(len(array), bool)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            bad |= out_of_range(child)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        offsets = array.offsets.to_numpy()
        values = array.items if pa.types.is_map(array.type) else array.values
        parents = np.repeat(np.arange(len(array)), np.diff(offsets))
        bad[parents[out_of_range(values.slice(offsets[0], offsets[-1] - offsets[0]))]] = True
    return bad


def _outside(array: pa.Array, low: int, high: int) -> np.ndarray:
    micros = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    outside: np.ndarray = (micros < low) | (micros > high)
    return outside


_loaded: dict[str, Decodable] = {}


def decoder_for(decodable: Decodable, index: MessageIndex) -> Decoder | None:
    """The decoder of a schema id's message; None if the index names no message of its file."""
    _loaded[decodable.digest] = decodable
    return _build(decodable.digest, index)


@functools.lru_cache(maxsize=4096)
def _build(digest: str, index: MessageIndex) -> Decoder | None:
    pool, messages = load_files(_loaded[digest].descriptor_set)
    message = message_at(messages, index)
    return None if message is None else Decoder(message, pool)
