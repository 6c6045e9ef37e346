"""One decoder per (descriptor set, rule, message index, options), kept for the life of the worker process.

Strict mode: Google's parser parses each payload and rejects invalid ones with its error text. Accepted payloads
are serialised again and decoded by ptars, ten times faster than in Python. Messages that ptars decodes wrongly are
decoded in Python. Without strict mode ptars decodes the payloads as they are; if it fails, the whole batch is decoded
in strict mode. A payload that fits another message better than the one that its index names by the lake's numbering is
refused.

The reasons: docs/decisions/decoder.md.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from spark_app.model.catalog import Decodable, DecodeOptions, MessageIndex
from spark_app.model.causes import Cause, Reject
from spark_app.protobuf.columns.types import decoded_schema
from spark_app.protobuf.columns.values import OUT_OF_RANGE, to_json
from spark_app.protobuf.decode.columns import ColumnBuilder, DefaultsToNull, fast_columns
from spark_app.protobuf.decode.google_parser import GoogleParser, Refused, concatenate_members, load_files, to_members
from spark_app.protobuf.decode.numbering import name

SLICE = 512  # payloads checked by one call
LOOKED_AT = 32  # payloads of a call: whoever sends another wire type does so in each record with the field


class IndexConflict:
    """Checks the payloads of a message whose index names another message for writers with the other numbering."""

    def __init__(self, parser: GoogleParser, other: Descriptor):
        self._parser = parser
        self._other = GoogleParser(other)

    def rows(self, payloads: pa.Array) -> list[int]:
        """Row numbers of the payloads that only the other message parses without unknown fields.

        Args:
            payloads: binary without NULLs.
        """
        slices = range(0, len(payloads), SLICE)
        doubtful = [first for first in slices if not self._parser.all_read_fully(payloads.slice(first, SLICE))]
        rows = (row for first in doubtful for row in range(first, min(first + SLICE, len(payloads))))
        return [row for row in rows if self.is_in(payloads[row].as_py())]

    def is_in(self, payload: bytes) -> bool:
        """Whether only the other message parses the payload without unknown fields."""
        return not self._parser.reads_fully(payload) and self._other.reads_fully(payload)


STRICT = DecodeOptions()
ConflictWith = tuple[Descriptor, str]


@dataclass(frozen=True)
class Decoded:
    """`table` has one row for each entry of `rows`, ascending row numbers of the input; `rejects` has the others.
    `misfit` is what `google_parser.misfit` says of the first payloads, or of one that is rejected for it."""

    table: pa.Table
    rows: np.ndarray
    rejects: list[Reject]
    misfit: str = ""


class Decoder:
    """Decodes payloads of one message type of one schema id."""

    def __init__(
        self, message: Descriptor, keep_alive: object, options: DecodeOptions, conflict: ConflictWith | None = None
    ):
        """
        Args:
            keep_alive: the descriptor pool, which owns `message`.
            conflict: the message that the index names for other writers, and the detail of a payload that may be one.
        """
        self._keep_alive = keep_alive
        self.message = message
        self.full_name = message.full_name
        self.schema = decoded_schema(message)
        self._parser = GoogleParser(message)
        self._builder = ColumnBuilder(message)
        self._fast = fast_columns(message, self._parser.batch)
        self._defaults_to_null = None if options.defaults else DefaultsToNull(message)
        self._trusting = not options.strict and self._fast is not None
        self._refuses_misfits = options.wire_types
        self._doubt = None if conflict is None else IndexConflict(self._parser, conflict[0])
        self._doubted = "" if conflict is None else conflict[1]

    def decode(self, payloads: pa.Array) -> Decoded:
        """Columns of the accepted payloads; `payloads` is plain binary without NULLs."""
        doubtful = self._doubt.rows(payloads) if self._doubt else []
        misfits = self._parser.misfits(payloads if self._refuses_misfits else payloads.slice(0, LOOKED_AT))
        refused = {row: (Cause.DECODE_WIRE, said) for row, said in misfits.items() if self._refuses_misfits}
        refused |= dict.fromkeys(doubtful, (Cause.SCHEMA_INDEX, self._doubted))
        misfit = next(iter(misfits.values()), "")
        if not refused:
            return replace(self._decode(payloads), misfit=misfit)
        certain = np.delete(np.arange(len(payloads)), list(refused))
        decoded = self._decode(payloads.take(pa.array(certain)))
        rejects = [(row, *why) for row, why in refused.items()]
        rejects += [(int(certain[row]), cause, detail) for row, cause, detail in decoded.rejects]
        return Decoded(decoded.table, certain[decoded.rows], rejects, misfit)

    def _decode(self, payloads: pa.Array) -> Decoded:
        decoded = self._decode_unread(payloads) if self._trusting else None
        decoded = decoded or self._decode_strictly(payloads)
        return (
            decoded
            if self._defaults_to_null is None
            else replace(decoded, table=self._defaults_to_null.apply(decoded.table))
        )

    def to_text(self, payload: bytes) -> str:
        """One payload as JSON text.

        Raises:
            DecodeError, UnicodeError
        """
        if self._doubt is not None and self._doubt.is_in(payload):
            raise DecodeError(self._doubted)
        return to_json(self.message.file.pool, self._parser.message_class.FromString(payload))

    def _decode_unread(self, payloads: pa.Array) -> Decoded | None:
        """Decode without Google's parser; None if ptars fails for one of the payloads."""
        batch = concatenate_members(to_members(payloads)).to_pybytes()
        return self._decode_fast([batch], np.arange(len(payloads)))

    def _decode_strictly(self, payloads: pa.Array) -> Decoded:
        if self._fast is not None:
            result = self._parser.check(payloads)
            accepted = np.delete(np.arange(len(payloads)), [row for row, _ in result.refused])
            fast = self._decode_fast(result.written, accepted)
            if fast is not None:
                return replace(fast, rejects=_refusals(result.refused) + fast.rejects)
        messages, refused = self._parser.parse(payloads)
        table, rows, rejects = self._builder.build(messages)
        return Decoded(table, np.array(rows, np.int64), _refusals(refused) + rejects)

    def _decode_fast(self, batches: list[bytes], rows: np.ndarray) -> Decoded | None:
        """Decode the batches, which contain the payloads of `rows`, with ptars; None if ptars fails for one of them."""
        built = None if self._fast is None else self._fast.build(batches)
        if built is None:
            return None
        table, bad = built
        return Decoded(table, rows[~bad], [(int(row), Cause.DECODE_RANGE, OUT_OF_RANGE) for row in rows[bad]])


def _refusals(refused: list[Refused]) -> list[Reject]:
    return [(row, Cause.DECODE_PAYLOAD, detail) for row, detail in refused]


_loaded: dict[str, bytes] = {}  # digest -> descriptor set


def decoder_for(decodable: Decodable, index: MessageIndex, options: DecodeOptions = STRICT) -> Decoder | None:
    """The decoder of a message of a schema; None if by the lake's numbering the index names no message of its file."""
    return _built(decodable, index, options)[0]


def why_none(decodable: Decodable, index: MessageIndex, options: DecodeOptions = STRICT) -> str:
    """The detail for records whose message index has no decoder."""
    return _built(decodable, index, options)[1]


def _built(decodable: Decodable, index: MessageIndex, options: DecodeOptions) -> tuple[Decoder | None, str]:
    _loaded[decodable.digest] = decodable.descriptor_set
    return _build(replace(decodable, key=0, descriptor_set=b""), index, options)


@functools.lru_cache(maxsize=4096)
def _build(decodable: Decodable, index: MessageIndex, options: DecodeOptions) -> tuple[Decoder | None, str]:
    """(decoder, "") or (None, the reason). Schema ids with the same descriptor set share the decoder."""
    pool, messages = load_files(_loaded[decodable.digest])
    named = name(decodable, messages, index)
    detail = f"message index {list(index)}"
    if named.other is not None:
        detail = f"{detail} means another message to other writers ({named.other.full_name}): {_numbering(decodable)}"
    if named.message is None:
        return None, detail
    if named.other is None or decodable.numbering is None:
        return Decoder(named.message, pool, options), ""
    conflict = (named.other, f"{detail}, but the payload is not a {named.message.full_name}")
    return Decoder(named.message, pool, options, conflict), ""


def _numbering(decodable: Decodable) -> str:
    if decodable.counts_entries is None:
        return "the form in which the schema was registered is unknown"
    return f'decode.message_index is "{decodable.numbering or "descriptor"}"'
