"""The other names of columns: what the fields that fill them are called in some version, where it is not the column's
own name.

A setting may name a column by either. A column of the name always comes first, so a name that readers see in the table
means what they see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from spark_app.model.comments import Path

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
    """The name of the column that a setting names; the name as it is if no column has it. Case does not count.

    Args:
        columns: the columns that there are.
    """
    return _name_in((), name, columns, aliases)


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
    others = aliases.get(at)
    if not others or name.casefold() in {column.casefold() for column in columns}:
        return name
    return next((column for other, column in others.items() if other.casefold() == name.casefold()), name)
