"""Rows as Protobuf messages, column by column: the way back from `protobuf/decode`.

Each field of a message becomes arrays of bytes with an entry for each row: its tag, its length, its value. Arrow joins
those of a row; a NULL has no bytes, as an absent field. The bytes of a list are those of its items, which lie next to
each other. No message is built in Python, but for values that are JSON text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.internal.type_checkers import FIELD_TYPE_TO_WIRE_TYPE
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.columns import decimals
from spark_app.protobuf.columns.conversions import convert
from spark_app.protobuf.columns.types import (
    SCALARS,
    TIMESTAMP,
    WRAPPERS,
    column_names,
    is_json,
    is_map,
    map_fields,
    ordered_fields,
)
from spark_app.protobuf.columns.values import ANY, LONGEST_DURATION

BYTES = pa.large_binary()
SEPARATOR = pa.scalar(b"", BYTES)
GROUP, END_OF_GROUP, DELIMITED = 3, 4, 2  # wire types
NUMBER = re.compile(r"-?[0-9]{1,10}")
RANGES = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32), (-(2**31), 2**31 - 1)),
    FieldDescriptor.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), (0, 2**64 - 1)),
}
FIXED = {1: np.dtype("<u8"), 5: np.dtype("<u4")}  # by wire type
ZIGZAG = (FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64)

Pieces = list[pa.Array]  # arrays of bytes; those of a row follow one another
Written = tuple[Pieces, np.ndarray]  # the bytes, and for each row whether its value fits; else its bytes mean nothing
Write = Callable[[pa.Array], Written]


class RowEncoder:
    """Writes rows as messages of one type."""

    def __init__(self, message: Descriptor, ignored: Iterable[str] = ()):
        """
        Args:
            ignored: columns that need no field.
        """
        self._write = _Fields(message, (), message.full_name, ignored)

    def encode(self, rows: pa.Table, prefix: bytes = b"") -> tuple[pa.Array, np.ndarray, str]:
        """(the messages as bytes behind the prefix, for each row whether it fits, why the first ones do not)"""
        columns = {name: column.combine_chunks() for name, column in zip(rows.column_names, rows.columns, strict=True)}
        pieces, fits = self._write(columns, len(rows))
        head = pa.array([prefix], BYTES).take(pa.array(np.zeros(len(rows), np.int8)))
        return pc.binary_join_element_wise(head, *pieces, SEPARATOR, null_handling="skip"), fits, self._write.why


class _Fields:
    """Writes the fields of a message.

    Attributes:
        why: which column has not fitted last.
    """

    def __init__(self, message: Descriptor, above: tuple[str, ...], title: str = "", ignored: Iterable[str] = ()):
        names = column_names(message, frozenset() if above else RESERVED)
        inside = (*above, message.full_name)
        self._fields = [(names[f.number], f, _field(f, inside)) for f in ordered_fields(message)]
        self._oneofs = [[f.number for f in one.fields] for one in message.oneofs if len(one.fields) > 1]
        self._title = title
        self._ignored = set(ignored)
        self.why = ""

    def __call__(self, columns: dict[str, pa.Array], count: int) -> Written:
        self.why = ""
        left, pieces, fits, set_ = dict(columns), Pieces(), np.ones(count, bool), dict[int, np.ndarray]()
        for name, field, write in self._fields:
            name = name if name in left else field.name  # of a name that only a table cannot have
            column = left.pop(name, None)
            if column is None:
                column = pa.nulls(count, pa.string())
            more, good = write(column)
            set_[field.number] = np.asarray(column.is_valid())
            if field.is_required:
                good = good & set_[field.number]
            pieces += more
            fits &= self._judged(name, good)
        for numbers in self._oneofs:
            good = np.sum([set_[number] for number in numbers], axis=0) < 2
            fits &= self._judged("more than one field of a oneof", good)
        for name in left.keys() - self._ignored:
            fits &= self._judged(name, _is_nothing(left[name]))
        return pieces, fits

    def _judged(self, name: str, good: np.ndarray) -> np.ndarray:
        if self._title and not good.all() and not self.why:
            self.why = f"{name}: the value does not fit {self._title}"
        return good


def _is_nothing(values: pa.Array) -> np.ndarray:
    """Whether a value may be left out, as there is no field for it."""
    absent = np.asarray(values.is_null())
    is_several = pa.types.is_list(values.type) or pa.types.is_map(values.type)
    return absent | (np.diff(values.offsets.to_numpy()) == 0) if is_several else absent


def _field(field: FieldDescriptor, above: tuple[str, ...]) -> Write:
    if is_map(field):
        key, value = map_fields(field)
        return partial(_write_map, _tag(field), _value(key, above, True), _value(value, above, True))
    if not field.is_repeated:
        return _value(field, above, field.has_presence)
    if field.is_packed:
        return partial(_write_packed, _tag(field, DELIMITED), _value(field, above, True, b""))
    return partial(_write_list, _value(field, above, True))


def _value(field: FieldDescriptor, above: tuple[str, ...], always: bool, tag: bytes | None = None) -> Write:
    """Writes one value of a field.

    Args:
        always: also the default.
    """
    tag, message = _tag(field) if tag is None else tag, field.message_type
    if message is not None:
        return partial(_write_message, field, tag, _message(message, above))
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return partial(_write_text, tag, SCALARS[field.type], always)
    return partial(_write_number, field, tag, always)


def _tag(field: FieldDescriptor, wire_type: int | None = None) -> bytes:
    wire_type = FIELD_TYPE_TO_WIRE_TYPE[field.type] if wire_type is None else wire_type
    tag: bytes = _varints(b"", np.array([field.number << 3 | wire_type], np.uint64), np.ones(1, bool))[0].as_py()
    return tag


def _write_number(field: FieldDescriptor, tag: bytes, always: bool, values: pa.Array) -> Written:
    if field.enum_type is not None:
        values, fits = _numbers_of(field.enum_type, values)
    else:
        values, fits = convert(_plain(values), SCALARS[field.type])
    if field.type in RANGES:
        low, high = (pa.scalar(one, values.type) for one in RANGES[field.type])
        inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)).fill_null(True)
        values, fits = pc.if_else(inside, values, None), fits & np.asarray(inside)
    valid = np.asarray(values.is_valid())
    if pa.types.is_floating(values.type):
        real = values.fill_null(0).to_numpy()
        if field.type == FieldDescriptor.TYPE_FLOAT:
            with np.errstate(over="ignore"):
                short = real.astype(np.float32)
            fits, raw = fits & ((short == real) | np.isnan(real)), short.view(np.uint32)
        else:
            raw = real.view(np.uint64)
    else:
        big = pa.uint64() if pa.types.is_decimal(values.type) else pa.int64()
        raw = values.cast(big).fill_null(0).to_numpy().view(np.uint64)
        if field.type in ZIGZAG:
            raw = (raw << np.uint64(1)) ^ (raw.view(np.int64) >> 63).view(np.uint64)
    written = valid if always else valid & (raw != 0)
    width = FIXED.get(FIELD_TYPE_TO_WIRE_TYPE[field.type])
    return [_varints(tag, raw, written) if width is None else _fixed(tag, raw.astype(width), written)], fits


def _write_text(tag: bytes, kind: pa.DataType, always: bool, values: pa.Array) -> Written:
    values = _plain(values)
    if pa.types.is_decimal(values.type) and kind == pa.string():
        values = values.cast(kind)
    values, fits = convert(values, kind)
    return _delimited(tag, values.cast(BYTES), always), fits


def _write_message(field: FieldDescriptor, tag: bytes, write: Write, values: pa.Array) -> Written:
    pieces, fits = write(values)
    fits = fits | np.asarray(values.is_null())
    valid = values if pa.types.is_boolean(values.type) and not field.message_type.fields else values.is_valid()  # type: ignore[union-attr]
    body = pc.if_else(pc.fill_null(valid, False), _joined(pieces, len(values)), pa.scalar(None, BYTES))
    if field.type != FieldDescriptor.TYPE_GROUP:
        return _delimited(tag, body), fits
    ends = pa.scalar(tag, BYTES), pa.scalar(_tag(field, END_OF_GROUP), BYTES)
    return [pc.binary_join_element_wise(ends[0], body, ends[1], SEPARATOR)], fits


def _write_list(write: Write, values: pa.Array) -> Written:
    if not pa.types.is_list(values.type):
        return [], _is_nothing(values)
    items, offsets = _items(values, values.values)
    pieces, good = write(items)
    return [_regrouped(values, _joined(pieces, len(items)), offsets)], _all_good(values, items, good, offsets)


def _write_packed(tag: bytes, write: Write, values: pa.Array) -> Written:
    pieces, fits = _write_list(write, values)
    return ([] if not pieces else _delimited(tag, pieces[0], always=False)), fits


def _write_map(tag: bytes, write_key: Write, write_value: Write, values: pa.Array) -> Written:
    if not pa.types.is_map(values.type):
        return [], _is_nothing(values)
    keys, offsets = _items(values, values.keys)
    items, _ = _items(values, values.items)
    (key, good_keys), (value, good_items) = write_key(keys), write_value(items)
    entries = _joined(_delimited(tag, _joined([*key, *value], len(items))), len(items))
    return [_regrouped(values, entries, offsets)], _all_good(values, items, good_keys & good_items, offsets)


def _items(values: pa.Array, within: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(what lists or maps contain, where that of each begins)"""
    offsets = values.offsets.to_numpy()
    return within.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def _regrouped(values: pa.Array, written: pa.Array, offsets: np.ndarray) -> pa.Array:
    """The bytes of all items of a list, which lie next to each other, as one value."""
    _, ends, data = written.buffers()
    begins = np.frombuffer(ends, np.int64)[written.offset :][offsets] if len(written) else offsets
    return _array(begins, data, np.asarray(values.is_valid()))


def _all_good(values: pa.Array, items: pa.Array, good: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether all items fit. There is no NULL in a list of Protobuf."""
    bad = np.concatenate([[0], np.cumsum(~good | np.asarray(items.is_null()))])[offsets]
    found: np.ndarray = (bad[1:] == bad[:-1]) | np.asarray(values.is_null())
    return found


def _message(message: Descriptor, above: tuple[str, ...]) -> Write:
    """Writes the fields of a nested message."""
    name = message.full_name
    if is_json(message, above):
        return partial(_write_json, message)
    if not message.fields:
        return lambda values: ([], np.ones(len(values), bool))
    fields = _Fields(message, above)
    if name == "google.protobuf.Timestamp":
        return partial(_write_moment, fields, TIMESTAMP, False)
    if name == "google.protobuf.Duration":
        return partial(_write_moment, fields, pa.int64(), True)
    if name in WRAPPERS:
        return lambda values: fields({"value": values}, len(values))
    return partial(_write_struct, fields, name == decimals.MESSAGE)


def _write_struct(fields: _Fields, is_decimal: bool, values: pa.Array) -> Written:
    if is_decimal and pa.types.is_decimal(values.type):
        whole = values.view(pa.decimal128(38, 0)).to_pylist()
        shape = {"precision": values.type.precision, "scale": values.type.scale}
        parts = {name: pa.array(np.full(len(values), number)) for name, number in shape.items()}
        return fields({"value": pa.array(map(_to_bytes, whole), pa.binary()), **parts}, len(values))
    if not pa.types.is_struct(values.type):
        return [], np.asarray(values.is_null())
    names = [field.name for field in values.type]
    return fields(dict(zip(names, values.flatten(), strict=True)), len(values))


def _to_bytes(value: Any) -> bytes | None:
    """An integer as bytes, big-endian in two's complement."""
    if value is None:
        return None
    whole = int(value)
    return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)


def _write_moment(fields: _Fields, kind: pa.DataType, is_signed: bool, values: pa.Array) -> Written:
    """Microseconds as seconds and nanoseconds; those of a duration have the same sign."""
    if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(kind):
        values = values.cast(kind)
    if values.type != kind and not pa.types.is_duration(values.type):
        return [], np.asarray(values.is_null())
    micros = values.cast(pa.int64()).fill_null(0).to_numpy()
    fits = (micros <= LONGEST_DURATION) & (micros >= -LONGEST_DURATION)
    seconds = micros // 1_000_000
    if is_signed:
        seconds += (seconds < 0) & (micros % 1_000_000 != 0)
    nanos = (micros - seconds * 1_000_000) * 1_000
    return fields({"seconds": pa.array(seconds), "nanos": pa.array(nanos)}, len(values))[0], fits


def _write_json(message: Descriptor, values: pa.Array) -> Written:
    if not pa.types.is_string(values.type):
        return [], np.asarray(values.is_null())
    made = [None if text is None else _from_json(message, text) for text in values.to_pylist()]
    return [pa.array(made, BYTES)], np.array([one is not None for one in made], bool) | np.asarray(values.is_null())


def _from_json(message: Descriptor, text: str) -> bytes | None:
    """The way back from `values.to_json`; None if the text is no such message, or lacks a required field."""
    kind: Any = GetMessageClass(message)
    try:
        found = json_format.Parse(text, kind(), descriptor_pool=message.file.pool)
    except (json_format.ParseError, TypeError, ValueError, RecursionError):
        found = _from_bytes(kind, text)
    return found.SerializeToString(deterministic=True) if found is not None and found.IsInitialized() else None


def _from_bytes(kind: Any, text: str) -> Any:
    """The message that has no JSON form, but its bytes as text."""
    try:
        value = json.loads(text)
        url, data = value["@type"], base64.b64decode(value["value"], validate=True)
        if kind.DESCRIPTOR.full_name == ANY:
            return kind(type_url=url, value=data)
        return kind.FromString(data) if url == kind.DESCRIPTOR.full_name else None
    except (ValueError, LookupError, TypeError, DecodeError, RecursionError):
        return None


def _numbers_of(enum: EnumDescriptor, values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The numbers of names, or of numbers as text."""
    values = _plain(values)
    if not (pa.types.is_string(values.type) or pa.types.is_integer(values.type)):
        return pa.nulls(len(values), pa.int64()), np.asarray(values.is_null())
    encoded = pc.dictionary_encode(values.cast(pa.string()))
    numbers = pa.array([_number_of(enum, name) for name in encoded.dictionary.to_pylist()], pa.int64())
    found = numbers.take(encoded.indices)
    return found, np.asarray(found.is_valid()) | np.asarray(values.is_null())


def _number_of(enum: EnumDescriptor, name: str) -> int | None:
    if name in enum.values_by_name:
        return int(enum.values_by_name[name].number)
    number = int(name) if NUMBER.fullmatch(name) else 1 << 31
    is_known = number in enum.values_by_number or not enum.is_closed
    return number if is_known and -(1 << 31) <= number < 1 << 31 else None


def _plain(values: pa.Array) -> pa.Array:
    """The values in a type that decoded columns have: other programs write narrower ones, and dates."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_uint64(kind) or (pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision <= 20):
        return values.cast(pa.decimal128(20, 0))
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return values.cast(pa.string())
    return values.cast(pa.binary()) if pa.types.is_large_binary(kind) else values


def _joined(pieces: Sequence[pa.Array], count: int) -> pa.Array:
    """The bytes of each row."""
    return pc.binary_join_element_wise(
        pa.array([b""], BYTES).take(pa.array(np.zeros(count, np.int8))), *pieces, SEPARATOR, null_handling="skip"
    )


def _delimited(tag: bytes, body: pa.Array, always: bool = True) -> Pieces:
    """The values with their tag and length in front. `always`: also an empty one."""
    lengths = pc.binary_length(body).fill_null(0).to_numpy().astype(np.uint64)
    return [_varints(tag, lengths, np.asarray(body.is_valid()) if always else lengths > 0), body]


def _varints(tag: bytes, values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """The numbers, of 64 bits without a sign, as varints behind their tag."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    groups = values[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    used = np.concatenate([np.ones((len(values), len(tag) + 1), bool), groups[:, 1:] != 0], axis=1)
    written = np.empty(used.shape, np.uint8)
    written[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    written[:, len(tag) :] = groups & np.uint64(0x7F)
    written[:, len(tag) : -1] |= used[:, len(tag) + 1 :].astype(np.uint8) << 7
    return _array(np.concatenate([[0], np.cumsum(used.sum(axis=1))]), pa.py_buffer(written[used]), valid)


def _fixed(tag: bytes, values: np.ndarray, valid: np.ndarray) -> pa.Array:
    own = values.view(np.uint8).reshape(len(values), values.itemsize)
    written = np.concatenate([np.broadcast_to(np.frombuffer(tag, np.uint8), (len(values), len(tag))), own], axis=1)
    return _array(np.arange(len(values) + 1) * written.shape[1], pa.py_buffer(np.ascontiguousarray(written)), valid)


def _array(begins: np.ndarray, data: pa.Buffer, valid: np.ndarray) -> pa.Array:
    """An array of bytes."""
    offsets = pa.py_buffer(np.ascontiguousarray(begins, np.int64))
    return pa.Array.from_buffers(BYTES, len(valid), [pa.array(valid).buffers()[1], offsets, data])
