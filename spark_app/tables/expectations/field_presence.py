"""Says in SQL whether a field is set, by its column: NULL is an absent field with presence, or a default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from spark_app.protobuf.columns.types import enum_names, is_map
from spark_app.tables.expectations.literals import literal

IF_ZERO = 1  # buf.validate.IGNORE_IF_ZERO_VALUE
TIMES = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}


def with_presence(one: FieldDescriptor, value: str, found: Sequence[str], required: bool, ignore: int) -> str:
    """The condition on a field which may not be set; "" = none."""
    body = " AND ".join(found)
    if required:
        return f"({is_set(one, value)}{f' AND {body}' if body else ''})"
    if not body:
        return ""
    if one.has_presence:
        return f"({value} IS NULL OR ({body}))"
    return f"(NOT {is_set(one, value)} OR ({body}))" if ignore == IF_ZERO else f"({body})"


def is_set(one: FieldDescriptor, value: str) -> str:
    """Whether a field is on the wire."""
    if one.has_presence:
        return f"({value} IS NOT NULL)"
    shown = present(one, value)
    if is_map(one):
        return f"(coalesce(cardinality({value}), 0) > 0)"
    if one.is_repeated:
        return f"(coalesce(len({value}), 0) > 0)"
    if one.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return f"({shown} <> 0 OR signbit({shown}))"
    return f"(NOT {is_zero(one, shown)})"


def is_zero(one: FieldDescriptor, value: str) -> str:
    return f"({value} = {literal(zero(one))})"


def is_empty(one: FieldDescriptor, value: str) -> str:
    """Whether an element of a list or a map is the default of its type."""
    kind = one.message_type
    if kind is None:
        return is_zero(one, value)
    if kind.full_name in TIMES:
        return f"({f'epoch_us({value})' if TIMES[kind.full_name] == 'timestamp' else value} = 0)"
    return f"(NOT {is_set(kind.fields_by_name['value'], value)})"  # a wrapper


def zero(one: FieldDescriptor) -> Any:
    """The value of a field that is not on the wire."""
    if one.enum_type is not None:
        return enum_names(one.enum_type).get(0, "0")
    return {
        FieldDescriptor.CPPTYPE_BOOL: False,
        FieldDescriptor.CPPTYPE_DOUBLE: 0.0,
        FieldDescriptor.CPPTYPE_FLOAT: 0.0,
        FieldDescriptor.CPPTYPE_STRING: b"" if one.type == FieldDescriptor.TYPE_BYTES else "",
    }.get(one.cpp_type, 0)


def present(one: FieldDescriptor, value: str) -> str:
    """The value of a field that is set; without presence it may be NULL in the table, and is its default then."""
    if one.has_presence or one.is_repeated:
        return value
    return f"coalesce({value}, {literal(zero(one))})"


def is_zero_known(one: FieldDescriptor) -> bool:
    """Whether the zero value of an element is certain. By the documentation of protovalidate it is the first value of
    an enum, and by its libraries the number 0."""
    return one.enum_type is None or one.enum_type.values[0].number == 0
