"""The names in expressions: of the columns that they read, and of the functions that they call.

The expressions are some that `checks.columns_in_expression` accepts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_app.model.columns import Aliases, Path, path_of
from spark_app.model.definitions import MAX_CHARACTERS
from spark_app.model.text import quoted
from spark_app.tables.sql.engine import connection

BEFORE = b"SELECT "


def write_columns(text: str, columns: pa.Schema, aliases: Aliases) -> str:
    """The expression with each column by its own name, and as it is without other names in it.

    Args:
        columns: those of the rows, without the lineage.
    """
    if not aliases:
        return text
    written = BEFORE + text.encode()  # positions are in bytes
    for path, begin, end in _paths_in(text):
        named = path_of(path, columns, aliases)
        if named != path:
            written = written[:begin] + ".".join(map(quoted, named)).encode() + written[end:]
    result = written.removeprefix(BEFORE).decode()
    return result if len(result) <= MAX_CHARACTERS else text


def columns_in(text: str) -> frozenset[str]:
    """The columns that an expression names, as it spells them; of a path such as `a.b` the first part."""
    return frozenset(path[0] for path, _, _ in _paths_in(text))


@functools.lru_cache(maxsize=4096)
def calls(text: str, function: str) -> bool:
    """Whether an expression calls the function; its name is in lower case."""
    left = [_parse(text)]
    while left:
        part = left.pop()
        if isinstance(part, dict) and str(part.get("function_name", "")).lower() == function:
            return True
        left += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return False


@functools.lru_cache(maxsize=4096)
def _paths_in(text: str) -> tuple[tuple[Path, int, int], ...]:
    """(names of a column and of fields in it, begin, end) of all names of columns, the last one first.
    Places are those of the statement that selects the expression."""
    # (part of the tree, parameters of the lambdas above it)
    left: list[tuple[Any, frozenset[str]]] = [(_parse(text), frozenset())]
    found: list[tuple[Path, int, int]] = []
    while left:
        part, bound = left.pop()
        if isinstance(part, list):
            left += [(one, bound) for one in part]
        elif isinstance(part, dict):
            if part.get("class") == "LAMBDA" and part["syntax_type"] == "LAMBDA_KEYWORD":
                left.append((part["expr"], bound | set(parameters_of(part["lhs"]))))
                continue
            if part.get("class") == "COLUMN_REF" and part["column_names"][0].lower() not in bound:
                begin = part["query_location"]
                found.append((tuple(part["column_names"]), begin, begin + part["query_location_length"]))
            left += [(child, bound) for child in part.values() if isinstance(child, dict | list)]
    return tuple(sorted(found, key=lambda position: position[1], reverse=True))


def _parse(text: str) -> Any:
    rows = connection().sql("SELECT json_serialize_sql($1::VARCHAR)", params=[BEFORE.decode() + text]).fetchall()
    return json.loads(rows[0][0])


def parameters_of(left: dict[str, Any]) -> Iterator[str]:
    """The parameters of `lambda x: ...` or `lambda x, i: ...`, in lower case."""
    several = [argument["expression"] for argument in left.get("arguments", [])]
    for one in several or [left]:
        yield from (name.lower() for name in one["column_names"])
