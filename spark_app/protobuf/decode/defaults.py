"""Turns default values into NULLs. On the wire a field without presence that has its default equals an absent one.

This is a separate step after decoding, the same for every decoder. Elements of lists and values of maps are not fields
and keep their defaults; the fields of messages inside them do not.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_app.protobuf.columns.types import enum_names, is_map, map_fields, ordered_fields, value_type

ToNull = Callable[[pa.Array], pa.Array]


class DefaultsToNull:
    """Replaces the default values of one message type by NULLs."""

    def __init__(self, message: Descriptor):
        self._defaults_to_null = _field_blanks(message, (message.full_name,))

    def apply(self, table: pa.Table) -> pa.Table:
        columns = [
            column if blank is None else pa.chunked_array([blank(chunk) for chunk in column.chunks], column.type)
            for blank, column in zip(self._defaults_to_null, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)


def _field_blanks(message: Descriptor, above: tuple[str, ...]) -> list[ToNull | None]:
    return [_field_blank(field, above) for field in ordered_fields(message)]


def _field_blank(field: FieldDescriptor, above: tuple[str, ...]) -> ToNull | None:
    """The function that replaces a field's defaults by NULLs; None if the column stays unchanged."""
    if is_map(field):
        inner = _message_blank(map_fields(field)[1], above)
        return inner and partial(_blank_map, inner)
    if field.is_repeated:
        inner = _message_blank(field, above)
        return inner and partial(_blank_list, inner)
    if field.message_type is not None:
        return _message_blank(field, above)
    return None if field.has_presence else partial(_blank_scalar, _default(field))


def _message_blank(field: FieldDescriptor, above: tuple[str, ...]) -> ToNull | None:
    message = field.message_type
    if message is None or not pa.types.is_struct(value_type(field, above)):
        return None
    blanks = _field_blanks(message, (*above, message.full_name))
    return partial(_blank_struct, blanks) if any(blanks) else None


def _default(field: FieldDescriptor) -> Any:
    return enum_names(field.enum_type)[0] if field.enum_type is not None else field.default_value


def _blank_scalar(default: Any, array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):  # compare bits, because -0.0 is not the default and is sent
        return pc.if_else(pc.equal(array.view(pa.int64()), 0), pa.scalar(None, array.type), array)
    value = Decimal(default) if pa.types.is_decimal(array.type) else default
    return pc.if_else(pc.equal(array, pa.scalar(value, array.type)), pa.scalar(None, array.type), array)


def _blank_struct(blanks: list[ToNull | None], array: pa.Array) -> pa.Array:
    children = [child if blank is None else blank(child) for blank, child in zip(blanks, array.flatten(), strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())


def _blank_list(blank: ToNull, array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(array), blank(array.values), type=array.type, mask=array.is_null())


def _blank_map(blank: ToNull, array: pa.Array) -> pa.Array:
    items = blank(array.items)
    return pa.MapArray.from_arrays(_offsets(array), array.keys, items, type=array.type, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """A copy of the offsets. Arrow accepts no mask together with a sliced array."""
    return pa.array(array.offsets.to_numpy())
