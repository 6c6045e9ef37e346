"""What is said of the columns of a table: their comments, their other names, and their ids in files.

The other names of a column are what the fields that fill it are called in some version, where it is not the column's
own name. A setting may name a column by either, and case does not count, as in Spark. A column of exactly the name
comes first, then one that differs in case only, then one with this other name: a name that readers see in the table
means what they see.

The field ids are those of Parquet, by which some readers, such as those of Iceberg, find a column in a file.

The reasons: docs/decisions/field-ids.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

# The names from a table's column to a field inside it; structs in lists and in map values add no name of their own.
# The empty path is the table.
Path = tuple[str, ...]


@dataclass(frozen=True)
class Comments:
    """The comments for one table. Paths that the table does not have do no harm.

    Attributes:
        authored: from .proto files; they replace the comments that are there.
        own: the app's; they count only where there is no comment.
        made: the columns, casefolded, that may not be as they were sent: no comment of before is true of them.
    """

    authored: Mapping[Path, str] = field(default_factory=dict)
    own: Mapping[Path, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


NO_COMMENTS = Comments()


def types_of(columns: pa.Schema) -> dict[str, str]:
    """Column -> its type as text."""
    return {field.name: str(field.type) for field in columns}


# Path to a struct, () = the row -> other name of a column in it -> name of the column.
Aliases = Mapping[Path, Mapping[str, str]]


def merge_aliases(several: Iterable[Aliases]) -> Aliases:
    """The names of all; of several columns with one other name the first counts."""
    found: dict[Path, dict[str, str]] = {}
    for aliases in several:
        for at, names in aliases.items():
            found[at] = {**names, **found.get(at, {})}
    return found


def inside(column: str, aliases: Aliases) -> Aliases:
    """The names where the row is the struct in a column."""
    return {(column, *at): names for at, names in aliases.items()}


def column_of(name: str, columns: Iterable[str], aliases: Aliases) -> str:
    """The column that a name of the settings means, as the column is spelt; the name as it is if there is none.

    Args:
        columns: the columns that there are.
    """
    return _name_in((), name, columns, aliases)


def field_of(name: str, columns: pa.Schema, names: Iterable[str], aliases: Aliases) -> tuple[Path, pa.Field | None]:
    """(path to the field that a name of the settings means, the field; None if there is none). A name with dots that is
    no column is a path into structs.

    Args:
        names: those of the columns, and those that messages have besides; see `column_of`.
    """
    column = column_of(name, names, aliases)
    if "." not in name or column in columns.names:
        return (column,), columns.field(column) if column in columns.names else None
    path = path_of(tuple(name.split(".")), columns, aliases)
    field, inside = None, columns
    for part in path:
        if part not in [one.name for one in inside]:
            return path, None
        field = inside.field(part)
        inside = field.type if pa.types.is_struct(field.type) else pa.struct([])
    return path, field


def path_of(path: Path, columns: pa.Schema, aliases: Aliases) -> Path:
    """As `column_of`, for a column and the fields inside its structs."""
    at: Path = ()
    fields, found = list(columns), list[str]()
    for name in path:
        found.append(_name_in(at, name, (field.name for field in fields), aliases))
        field = next((field for field in fields if field.name.casefold() == found[-1].casefold()), None)
        if field is None or not pa.types.is_struct(field.type):
            break
        at, fields = (*at, field.name), list(field.type)
    return (*found, *path[len(found) :])


def aliased_fields(columns: pa.Schema, aliases: Aliases) -> list[pa.Field]:
    """The columns under their other names."""
    others = aliases.get((), {}).items()
    return [columns.field(column).with_name(other) for other, column in others if column in columns.names]


def _name_in(at: Path, name: str, columns: Iterable[str], aliases: Aliases) -> str:
    there, folded = list(columns), name.casefold()
    if name in there:
        return name
    own = (column for column in there if column.casefold() == folded)
    renamed = (column for other, column in aliases.get(at, {}).items() if other.casefold() == folded)
    return next(own, None) or next(renamed, name)


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
    for one in columns:
        yield from _paths(one, one.name)


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
