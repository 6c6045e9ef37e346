"""Rows as COPY of PostgreSQL takes them, and the types of columns for them.

Text, which the server reads by the types that the columns have: in binary, a number could become another one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.followers.sinks.json_rows import to_json

KINDS = {
    "smallint": (pa.int8(), pa.int16(), pa.uint8()),
    "integer": (pa.int32(), pa.uint16()),
    "bigint": (pa.int64(), pa.uint32()),
    "numeric(20)": (pa.uint64(),),
    "real": (pa.float16(), pa.float32()),
    "double precision": (pa.float64(),),
    "boolean": (pa.bool_(),),
    "date": (pa.date32(), pa.date64()),
    "bytea": (pa.binary(), pa.large_binary()),
}
TYPES = {kind: name for name, kinds in KINDS.items() for kind in kinds}
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
NULL = "\\N"
NUL_IN_JSON = r"((?:^|[^\\])(?:\\\\)*)\\u0000"  # behind an even number of backslashes
BYTES = "\\\\x"  # before hexadecimal digits; it is escaped, too


def type_of(kind: pa.DataType) -> str:
    """The type of a column of PostgreSQL for values of a type of Arrow."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_time(kind):
        return "time"
    return "jsonb" if pa.types.is_nested(kind) else TYPES.get(kind, "text")


def copy_text(rows: pa.Table, replaces_nul: bool = False) -> bytes:
    """One line per row. Column by column, which takes a fraction of the time that row by row takes.

    Args:
        replaces_nul: PostgreSQL refuses the character NUL; U+FFFD stands for it then.

    Raises:
        ValueError, OverflowError: Python has no such value: a time in the year 10000 in a struct, what is not UTF-8.
    """
    lines = pc.binary_join_element_wise(
        *(_texts(column, replaces_nul) for column in rows.columns), "\t", null_handling="replace", null_replacement=NULL
    )
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _texts(column: pa.ChunkedArray, replaces_nul: bool) -> pa.ChunkedArray:
    kind = type_of(column.type)
    if kind == "bytea":
        return _made([None if one is None else BYTES + one.hex() for one in column.to_pylist()])
    if kind == "jsonb":
        values = column.to_pylist(maps_as_pydicts="lossy")
        column = _made([None if one is None else to_json(one).decode() for one in values])
        for _ in range(2 if replaces_nul else 0):  # once more for each second one of those side by side
            column = pc.replace_substring_regex(column, NUL_IN_JSON, r"\1\\ufffd")
    texts = column.cast(pa.string())
    if replaces_nul and kind == "text":
        texts = pc.replace_substring(texts, "\0", "\ufffd")
    for character, escaped in ESCAPES.items() if kind in ("text", "jsonb") else ():
        texts = pc.replace_substring(texts, character, escaped)
    return texts


def _made(texts: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])
