"""One decoder per (descriptor set, message index), kept for the life of the worker process.

Each payload is first parsed by the reference parser: what it refuses is rejected with its words. What it would write
back to the same size goes through ptars, ten times faster than building columns in Python; the rest, and messages ptars
cannot be trusted with, through the column builder. A panic in ptars ends nobody: its batch is built the slow way.
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
from spark_app.worker.decode.columns import FIRST_MICROSECOND, LAST_MICROSECOND, ColumnBuilder
from spark_app.worker.decode.reference import Judgement, ReferenceParser, load_files
from spark_app.worker.decode.typemap import TIMESTAMP, arrow_schema, message_at, suits_ptars

CONFIG = PtarsConfig(timestamp_unit="us", duration_unit="us", timestamp_tz="UTC", enum_repr="string")


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
        fast = self._decode_fast(payloads, judgement)
        slow, slow_rows, out_of_range = self._builder.build(judgement.odd)
        rejects += [(row, Cause.DECODE_RANGE, detail) for row, detail in out_of_range]
        if not judgement.odd:
            table, rows = fast, np.array(judgement.canonical, np.int64)
        else:
            rows = np.array(judgement.canonical + slow_rows, np.int64)
            order = np.argsort(rows, kind="stable")
            table, rows = pa.concat_tables([fast, slow]).take(order), rows[order]
        return _refuse_out_of_range(table, rows, rejects)

    def _decode_fast(self, payloads: pa.Array, judgement: Judgement) -> pa.Table:
        rows = judgement.canonical
        if not rows or self._handler is None:
            return self.schema.empty_table()
        picked = payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
        try:
            return pa.Table.from_batches([self._handler.array_to_record_batch(picked)]).cast(self.schema)
        except BaseException as error:
            _pass_interrupts(error)
        judgement.odd += self._parser.parse(payloads, rows)
        judgement.canonical = []
        return self.schema.empty_table()


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


def _refuse_out_of_range(table: pa.Table, rows: np.ndarray, rejects: list[Reject]) -> Decoded:
    bad = np.zeros(len(rows), bool)
    for column in table.columns:
        if _holds_timestamps(column.type):
            bad |= out_of_range(column.combine_chunks())
    if not bad.any():
        return Decoded(table, rows, rejects)
    rejects += [(int(row), Cause.DECODE_RANGE, "a timestamp is outside the years 1 to 9999") for row in rows[bad]]
    return Decoded(table.filter(pa.array(~bad)), rows[~bad], rejects)


def _holds_timestamps(kind: pa.DataType) -> bool:
    return kind == TIMESTAMP or any(_holds_timestamps(kind.field(i).type) for i in range(kind.num_fields))


def out_of_range(array: pa.Array) -> np.ndarray:
    """Which rows hold, at any depth, a timestamp outside the years 1 to 9999."""
    if array.type == TIMESTAMP:
        micros = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
        beyond: np.ndarray = (micros < FIRST_MICROSECOND) | (micros > LAST_MICROSECOND)
        return beyond
    bad = np.zeros(len(array), bool)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            bad |= out_of_range(child)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        parents = pc.list_parent_indices(array).to_numpy()
        values = array.flatten() if pa.types.is_list(array.type) else _entries(array)
        bad[parents[out_of_range(values)]] = True
    return bad


def _entries(array: pa.Array) -> pa.Array:
    as_list = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    return as_list.flatten()


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
