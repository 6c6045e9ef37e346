"""The other names of the columns of a silver table: those of its message types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from spark_app.model.catalog import Catalog
from spark_app.model.columns import Aliases, inside, merge_aliases
from spark_app.protobuf import unwrap
from spark_app.protobuf.columns.fit import NOTHING

UNCLEAR = "a setting means the column of this name, and not the column that a field of this name fills"


def table_aliases(messages: Iterable[str], catalog: Catalog) -> Aliases:
    """
    Args:
        messages: the message types of the table, `Wrapper/Inner` for a wrapped one.
    """
    if not catalog.aliases:
        return {}
    parts = [message.rpartition("/") for message in messages]
    own = [catalog.aliases.get(inner, {}) for _, _, inner in parts]
    outer = [inside(unwrap.COLUMN, catalog.aliases.get(wrapper, {})) for wrapper, _, _ in parts]
    return merge_aliases([*own, *outer])


def sent_names(messages: Iterable[str], catalog: Catalog) -> list[str]:
    """The names of the columns of the message types of a table, without those of wrappers."""
    return [name for one in messages for name in catalog.columns.get(one.rpartition("/")[2], NOTHING).names]


def newest_names(columns: Collection[str], messages: Sequence[str], catalog: Catalog) -> dict[str, str]:
    """Column -> the newest of its other names, without those that are names of columns.

    Args:
        columns: those that the table has in Delta.
    """
    used = {name.casefold() for name in (*columns, *sent_names(messages, catalog))}
    others = table_aliases(messages, catalog).get((), {}).items()
    return {column: other for other, column in others if column in columns and other.casefold() not in used}


def unclear_names(names: Iterable[str], columns: pa.Schema, aliases: Aliases) -> Iterator[tuple[str, str]]:
    """(name, other column) of those that are a column, and another name of a column, too."""
    own = {name.casefold() for name in columns.names}
    others = {other.casefold(): column for other, column in aliases.get((), {}).items() if other.casefold() in own}
    yield from ((name, others[name.casefold()]) for name in sorted(names) if name.casefold() in others)
