"""Conversions of values to a column of another type, each with a test for lossless values.

They cover the type changes that a registry accepts as compatible, and conversions between numbers, because the message
types of one table may have different number types. A conversion is lossless if converting back gives the same value.
Inside structs, lists and maps the same conversions apply. For `confluent.type.Decimal` see `decimals`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.delta.merged_columns import grows
from spark_app.protobuf.columns.decimals import DECODED, convert_decimals

INTEGER, BIG, FLAG, TEXT, BYTES = pa.int64(), pa.decimal128(20, 0), pa.bool_(), pa.string(), pa.binary()
REAL = pa.float64()
EXACT = 2**53  # up to here a double represents every whole number exactly

Survives = Callable[[pa.Array], pa.Array]  # values -> whether each is lossless; NULL for a NULL value


def _always(values: pa.Array) -> pa.Array:
    return pc.true_unless_null(values)


def _between(low: object, high: object) -> Survives:
    def survives(values: pa.Array) -> pa.Array:
        first, last = pa.scalar(low, values.type), pa.scalar(high, values.type)
        return pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))

    return survives


def _is_whole(values: pa.Array) -> pa.Array:
    """Whether a double is a whole number that doubles represent exactly."""
    return pc.and_(_between(-EXACT, EXACT)(values), pc.equal(pc.trunc(values), values))


def _is_text(values: pa.Array) -> pa.Array:
    """Whether bytes are UTF-8. Arrow can check only a whole array; if that fails, each value is checked by itself."""
    try:
        return _always(values.cast(TEXT))
    except pa.ArrowInvalid:
        return pa.array([value is None or _decodes(value) for value in values.to_pylist()], pa.bool_())


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


CONVERSIONS: Mapping[tuple[pa.DataType, pa.DataType], Survives] = {  # (the message's type, the column's)
    (INTEGER, BIG): _always,
    (BIG, INTEGER): _between(-(2**63), 2**63 - 1),
    (FLAG, INTEGER): _always,
    (INTEGER, FLAG): _between(0, 1),
    (INTEGER, TEXT): _always,
    (TEXT, BYTES): _always,
    (BYTES, TEXT): _is_text,
    (INTEGER, REAL): _between(-EXACT, EXACT),
    (REAL, INTEGER): _is_whole,
}


Converted = tuple[pa.Array, np.ndarray]  # the values in another type, and for each whether it fits


def convert(values: pa.Array, kind: pa.DataType) -> Converted:
    """The values in the type `kind`. One that does not fit is NULL there, or has a NULL inside: a struct, list or map
    fits if all of its values do."""
    if grows(values.type, kind):
        return values.cast(kind), np.ones(len(values), bool)
    if values.type == DECODED and pa.types.is_decimal(kind):
        return convert_decimals(values, kind)
    for is_alike, convert_alike in NESTED:
        if is_alike(values.type) and is_alike(kind):
            return convert_alike(values, kind)
    if all(pa.types.is_list(one) or pa.types.is_map(one) for one in (values.type, kind)):
        return _convert_empty(values, kind)
    survives = CONVERSIONS.get((values.type, kind))
    if survives is None:
        return pa.nulls(len(values), kind), np.asarray(values.is_null())
    fits = np.asarray(survives(values).fill_null(True))
    return _only(values, fits).cast(kind), fits


def _convert_structs(values: pa.StructArray, kind: pa.StructType) -> Converted:
    """A field that `kind` lacks fits if it is NULL."""
    own = {field.name: inner for field, inner in zip(values.type, values.flatten(), strict=True)}
    fits, made = np.ones(len(values), bool), []
    for field in kind:
        inner, good = convert(own.pop(field.name, pa.nulls(len(values), field.type)), field.type)
        made.append(inner)
        fits &= good
    for inner in own.values():
        fits &= np.asarray(inner.is_null())
    return pa.StructArray.from_arrays(made, fields=list(kind), mask=values.is_null()), fits


def _convert_lists(values: pa.ListArray, kind: pa.ListType) -> Converted:
    whole = _whole(values)
    inner, good = convert(whole.values, kind.value_type)
    made = pa.ListArray.from_arrays(whole.offsets, inner, kind, mask=values.is_null())
    return made, _all_within(whole.offsets, good)


def _convert_maps(values: pa.MapArray, kind: pa.MapType) -> Converted:
    whole = _whole(values)
    keys, good_keys = convert(whole.keys, kind.key_type)
    items, good_items = convert(whole.items, kind.item_type)
    fits = _all_within(whole.offsets, good_keys & good_items)
    if not good_keys.all():  # a key is never NULL
        return _convert_maps(_only(values, fits), kind)[0], fits
    return pa.MapArray.from_arrays(whole.offsets, keys, items, kind, mask=values.is_null()), fits


def _convert_empty(values: pa.Array, kind: pa.DataType) -> Converted:
    """Lists for a column of maps, or maps for one of lists: only an empty one fits."""
    absent = np.asarray(values.is_null())
    fits = absent | (np.diff(values.offsets.to_numpy()) == 0)
    return pa.array([[]], kind).take(pa.array(np.zeros(len(values), np.int64), mask=absent)), fits


def _all_within(offsets: pa.Array, good: np.ndarray) -> np.ndarray:
    """For each list, whether all of its values are good."""
    bad = np.concatenate([[0], np.cumsum(~good)])[offsets.to_numpy()]
    found: np.ndarray = bad[1:] == bad[:-1]
    return found


def _only(values: pa.Array, wanted: np.ndarray) -> pa.Array:
    """The values, with NULL for those that are not wanted."""
    return values if wanted.all() else values.take(pa.array(np.arange(len(values)), mask=~wanted))


def _whole(values: pa.Array) -> pa.Array:
    """The same lists or maps as an array that is no slice of another one and has nothing behind its NULLs."""
    return values.take(pa.array(np.arange(len(values))))


NESTED: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], Converted]]] = [
    (pa.types.is_struct, _convert_structs),
    (pa.types.is_list, _convert_lists),
    (pa.types.is_map, _convert_maps),
]


def fits_always(kind: pa.DataType, column: pa.DataType) -> bool:
    """Whether each value of a type is converted to the column's type; False also if none is."""
    return CONVERSIONS.get((kind, column)) is _always
