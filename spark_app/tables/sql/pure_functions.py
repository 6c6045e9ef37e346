"""Which of DuckDB's functions a check may call: those whose result depends on their arguments alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_app.model.text import near
from spark_app.tables.sql.engine import connection

# Functions that DuckDB calls consistent, or macros of such, although something else than their arguments decides what
# they return. Pattern of the whole name -> what is wrong with them.
DENIED = (
    (r"current_localtime|current_localtimestamp", "reads the clock"),
    (r"version", "reads the release of DuckDB"),
    (r"hash", "may give other values with another release of DuckDB; take md5 or sha256"),
    (r"json_serialize_plan", "reads the connection's tables and settings"),
    (r"in_search_path|current_(user|role|catalog|schemas?|database|query)|session_user|user", "reads the session"),
    (r"pg_.*|has_\w+_privilege|inet_.*|(col|obj|shobj)_description|format_type", "describes a database server"),
    (r"get_block_size", "reads the database"),
    (r"parse_duckdb_log_message", "reads the format of DuckDB's log"),
    (r"__internal_.*", "is a part of DuckDB's own plans"),
)
# They aggregate the list that is their first argument, by the function that their second argument names.
LIST_AGGREGATES = frozenset({"list_aggr", "list_aggregate", "array_aggr", "array_aggregate", "aggregate"})


@dataclass(frozen=True)
class Overload:
    """One row of `duckdb_functions()`."""

    kind: str  # scalar, aggregate, window, macro, table, table_macro or pragma
    stability: str | None
    parameters: frozenset[str]
    macro: str | None


@functools.cache
def _functions() -> dict[str, list[Overload]]:
    """Name in lower case -> its overloads."""
    found: dict[str, list[Overload]] = {}
    rows = connection().sql(
        "SELECT function_name, function_type, stability, parameters, macro_definition FROM duckdb_functions()"
    )
    for name, kind, stability, parameters, macro in rows.fetchall():
        overload = Overload(kind, stability, frozenset(p.lower() for p in parameters or ()), macro)
        found.setdefault(name.lower(), []).append(overload)
    return found


def problem_of(name: str, columns_in: Callable[[str], set[str]]) -> str | None:
    """Why a check may not call this function; None = it may.

    Args:
        columns_in: gives the columns that the text of a macro names, its parameters among them; raises ValueError if
            the text is not a pure expression.
    """
    name = name.lower()
    overloads = _functions().get(name)
    if not overloads:
        return f"there is no function {name}(); {near(name, _names())}"
    reason = next((reason for pattern, reason in DENIED if re.fullmatch(pattern, name)), None)
    if reason:
        return f"{name}() {reason}; a check may depend on the row alone"
    return _problem_of_kind(name, overloads, columns_in)


def _problem_of_kind(name: str, overloads: list[Overload], columns_in: Callable[[str], set[str]]) -> str | None:
    kinds = {overload.kind for overload in overloads}
    if kinds & {"aggregate", "window"}:
        return f"{name}() is computed over many rows; a check sees one row (list_sum and its like take a list)"
    if not kinds & {"scalar", "macro"}:
        return f"{name}() gives a table, or changes DuckDB; a check is one value of one row"
    if any(one.kind == "scalar" and one.stability != "CONSISTENT" for one in overloads):
        return f"{name}() does not always give the same for the same row; a check may depend on the row alone"
    for one in overloads:
        if one.kind == "macro" and not _is_pure(one, columns_in):
            return f"{name}() is more than a function of its arguments; a check may depend on the row alone"
    return None


def _is_pure(macro: Overload, columns_in: Callable[[str], set[str]]) -> bool:
    try:
        return {name.lower() for name in columns_in(macro.macro or "")} <= macro.parameters
    except (ValueError, RecursionError):  # a macro may call itself
        return False


def problem_of_list_aggregate(arguments: list[dict[str, Any]]) -> str | None:
    """Why a list may not be aggregated like this; None = it may. The arguments are those of a parsed call."""
    name = arguments[1]["expression"] if len(arguments) > 1 else {}
    if name.get("class") != "CONSTANT" or name["literal"].get("kind") != "STRING":
        return "a list is aggregated by a function whose name is not a literal; write it in quotes, such as 'sum'"
    if name["literal"]["text"].lower() == "reservoir_quantile":
        return "reservoir_quantile takes a random sample; take quantile_cont"
    return None


@functools.cache
def _names() -> list[str]:
    """The names that are worth suggesting: of pure functions with a name that is a word."""
    return sorted(
        name
        for name, overloads in _functions().items()
        if re.fullmatch(r"[a-z][a-z0-9_]*", name)
        and all(one.kind == "macro" or one.stability == "CONSISTENT" for one in overloads if one.kind != "table")
        and {one.kind for one in overloads} & {"scalar", "macro"}
        and not any(re.fullmatch(pattern, name) for pattern, _ in DENIED)
    )
