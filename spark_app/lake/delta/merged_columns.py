"""Merges the columns of all schema versions: a column keeps its first type, and structs may gain fields."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_app.model.record_schemas import RESERVED


def merge_columns(columns: pa.Schema, *more: pa.Schema) -> pa.Schema:
    """`columns`, plus the new columns of the other schemas, and new fields inside structs at any depth."""
    merged = {field.name: field.type for field in columns}
    for schema in more:
        for field in schema:
            merged[field.name] = merge_types(merged.get(field.name), field.type)
    return pa.schema(list(merged.items()))


def merge_types(old: pa.DataType | None, new: pa.DataType) -> pa.DataType:
    """`old`, plus the struct fields that only `new` has. If the types contradict each other, the result is `old`."""
    if old is None or old == new:
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        inner = {old.field(i).name: old.field(i).type for i in range(old.num_fields)}
        for i in range(new.num_fields):
            field = new.field(i)
            inner[field.name] = merge_types(inner.get(field.name), field.type)
        return pa.struct(list(inner.items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merge_types(old.value_type, new.value_type))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, merge_types(old.item_type, new.item_type))
    return old


def grows(kind: pa.DataType, column: pa.DataType) -> bool:
    """Whether the type of the table's column is the type of a schema version, or that with more struct fields, at any
    depth."""
    if pa.types.is_struct(kind) and pa.types.is_struct(column):
        own = [kind.field(i) for i in range(kind.num_fields)]
        return all(column.get_field_index(f.name) >= 0 and grows(f.type, column.field(f.name).type) for f in own)
    if pa.types.is_list(kind) and pa.types.is_list(column):
        return grows(kind.value_type, column.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(column):
        return grows(kind.key_type, column.key_type) and grows(kind.item_type, column.item_type)
    return bool(kind == column)


def type_at(columns: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """The type of a column, or of the struct field or the part of a map that the path leads to inside it: the names of
    the column and the struct fields, and `key` and `value`. None if there is none."""
    if columns.get_field_index(path[0]) < 0:
        return None
    kind = columns.field(path[0]).type
    for name in path[1:]:
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_map(kind):
            kind = kind.key_type if name == "key" else kind.item_type
        elif pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            kind = kind.field(name).type
        else:
            return None
    return kind


def find_clash(columns: pa.Schema) -> str | None:
    """A column name that the table cannot have, or None. For Delta, names that differ only by case are the same."""
    reserved = [field.name for field in columns if field.name.casefold() in RESERVED]
    return reserved[0] if reserved else _find_twin([(field.name, field.type) for field in columns])


def _find_twin(fields: list[tuple[str, pa.DataType]]) -> str | None:
    seen: set[str] = set()
    for name, kind in fields:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
        inner = [(kind.field(i).name, kind.field(i).type) for i in range(kind.num_fields)]
        twin = _find_twin(inner)
        if twin is not None:
            return twin
    return None
