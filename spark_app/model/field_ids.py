"""Parquet field ids: the numbers by which some readers, such as those of Iceberg, find a column in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

KEY = "PARQUET:field_id"  # the metadata of a field from which Arrow writes the id, and into which it reads it


class FieldIds:
    """Path -> field id. The path of a nested field has the names of those around it in front: `player.name`. The values
    of a list are its `element`; those of a map are its `key` and `value`."""

    def __init__(self, ids: Mapping[str, int]):
        self._ids = ids

    def apply_to(self, columns: pa.Schema) -> pa.Schema:
        """The columns, with their ids as the only metadata. A column that has no id gets none."""
        return pa.schema([self._with_id(field, field.name) for field in columns])

    def lacking(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that have no id, each once."""
        return [path for path in dict.fromkeys(paths) if path not in self._ids]

    def _with_id(self, field: pa.Field, path: str) -> pa.Field:
        inner = [self._with_id(one, f"{path}.{part}") for part, one in _inside(field.type)]
        metadata = {KEY: str(self._ids[path])} if path in self._ids else None
        return pa.field(field.name, _rebuilt(field.type, inner), field.nullable, metadata)


NO_IDS = FieldIds({})


def paths_of(columns: Iterable[pa.Field]) -> Iterator[str]:
    """The paths of the columns and of all that they contain."""
    for field in columns:
        yield from _paths(field, field.name)


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    yield path
    for part, one in _inside(field.type):
        yield from _paths(one, f"{path}.{part}")


def _inside(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """(last part of its path, field) for what a type contains."""
    if pa.types.is_struct(kind):
        return [(kind.field(i).name, kind.field(i)) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return [("element", kind.value_field)] if pa.types.is_list(kind) else []


def _rebuilt(kind: pa.DataType, inner: Sequence[pa.Field]) -> pa.DataType:
    """The type with other fields inside."""
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(*inner)
    return pa.list_(*inner) if pa.types.is_list(kind) else kind
