"""Refuses checks that are not a pure boolean expression over the columns of one row.

A check is text from the settings. DuckDB parses it, and only what stands in the lists here may be in its tree.

The reasons: docs/decisions/expectations.md.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from spark_app.model.columns import Aliases, aliased_fields
from spark_app.model.definitions import MAX_CHARACTERS, Expectation
from spark_app.model.errors import ConfigurationError
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.model.text import near, one_line
from spark_app.tables.sql.engine import connection, short_message, type_of_expression
from spark_app.tables.sql.names import parameters_of, write_columns
from spark_app.tables.sql.pure_functions import LIST_AGGREGATES, problem_of, problem_of_list_aggregate

MAX_DEPTH = 200
MAX_TEXT = 299  # characters of a message

# The columns that every row of silver has, or may have, besides the fields of its message.
LINEAGE = pa.schema([*LINEAGE_SCHEMA, ("_key", pa.string()), ("_schema_guid", pa.string())])
# Words that DuckDB takes for functions where no column has the name.
VALUE_WORDS = frozenset(
    {f"current_{word}" for word in ("catalog", "date", "role", "schema", "time", "timestamp", "user")}
    | {"localtime", "localtimestamp", "session_user", "user"}
)
ALLOWED = frozenset(
    {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "CAST", "TYPE", "FUNCTION", "LAMBDA"}
    | {"BETWEEN", "COLLATE"}
)
OPERATORS = frozenset(
    {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_TRY"}
    | {"COMPARE_IN", "COMPARE_NOT_IN", "ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT"}
)
REASONS = {
    "SUBQUERY": "a subquery is not allowed, and ANY, ALL and EXISTS are some; take IN (...) or list_contains()",
    "WINDOW": "a window function is not allowed: a check sees one row",
    "STAR": "* and COLUMNS are not allowed; name the columns",
    "PARAMETER": "parameters such as ? and $1 are not allowed; write the value",
    "POSITIONAL_REFERENCE": "positions such as #1 are not allowed; name the column",
    "DEFAULT": "DEFAULT is not allowed; write the value",
}
# What a SELECT may have besides its one expression: nothing.
EMPTY = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")


class _Refused(ValueError):
    """The check is refused for this reason."""


def columns_of(name: str, check: str) -> frozenset[str]:
    """The columns that a check names, as it spells them; of a path such as `a.b` the first part.

    Raises:
        ConfigurationError: the check of the expectation `name` is not one pure expression over the columns of a row.
    """
    return columns_in_expression(f"expectations.{name}.check", check)


@functools.cache
def columns_in_expression(setting: str, text: str, more: frozenset[str] = frozenset()) -> frozenset[str]:
    """As `columns_of`, for an expression of another setting, which may call the functions `more`, too."""
    try:
        _check_characters(text)
        return frozenset(_columns_in(_parse(text), more))
    except _Refused as refused:
        text = str(refused)
        raise _error(setting, text.replace("a check", "an expression") if more else text) from None


def check_columns(
    name: str,
    check: str,
    schemas: Iterable[pa.Schema],
    required: Iterable[pa.Schema] = (),
    aliases: Mapping[pa.Schema, Aliases] = MappingProxyType({}),
) -> None:
    """Refuse a check that names unknown columns, or that has no truth value for the types of its columns.

    Case does not count in the names of columns. The columns of lineage always exist. A column that one schema lacks
    and another has is NULL there, with the type of the first schema that has it. Without any schema only the clock
    and the session are refused as columns: nobody knows yet which columns there will be.

    Args:
        schemas: columns of the messages that may come; the check has to bind on at least one of them.
        required: columns of the tables that exist and that the expectation applies to; the check has to bind on each.
        aliases: the other names of the columns, where they have some.

    Raises:
        ConfigurationError: the check of the expectation `name` is refused, see `columns_of` too.
    """
    setting, columns = f"expectations.{name}.check", sorted(columns_of(name, check), key=str.lower)
    needed, possible = list(required), list(schemas)
    known: dict[str, pa.Field] = {}
    for schema in (LINEAGE, *needed, *possible):
        for field in schema:
            known.setdefault(field.name.lower(), field)
    for schema, names in aliases.items():
        for field in aliased_fields(schema, names):
            known.setdefault(field.name.lower(), field)
    anything = not needed and not possible
    for column in columns:
        if column.lower() not in known and (not anything or column.lower() in VALUE_WORDS):
            raise _error(setting, unknown_column(column, [field.name for field in known.values()]))
    if any(column.lower() not in known for column in columns):
        return
    for schema in needed:
        if problem := _binding_problem(write_columns(check, schema, aliases.get(schema, {})), schema, known):
            raise _error(setting, problem)
    texts = {schema: write_columns(check, schema, aliases.get(schema, {})) for schema in possible or [LINEAGE]}
    problems = [_binding_problem(text, schema, known) for schema, text in texts.items()]
    if not needed and all(problems):
        raise _error(setting, problems[0] or "")


@functools.lru_cache(maxsize=4096)
def binding_problem(check: str, columns: pa.Schema) -> str | None:
    """Why a check has no truth value for rows with these columns and those of the lineage; None = it has one."""
    known = {field.name.lower(): field for field in (*LINEAGE, *columns)}
    named = sorted(columns_in_expression("", check), key=str.lower)
    unknown = [unknown_column(column, list(known)) for column in named if column.lower() not in known]
    return unknown[0] if unknown else _binding_problem(check, columns, known)


def _binding_problem(check: str, schema: pa.Schema, known: dict[str, pa.Field]) -> str | None:
    """Why the check has no truth value for rows with these columns; None = it has one."""
    import duckdb

    own = {field.name.lower(): field for field in (*LINEAGE, *schema)}
    named = {column.lower() for column in columns_in_expression("", check)}
    named = named or {"_offset"}  # a table has at least one column
    fields = pa.schema([own.get(column, known[column]) for column in sorted(named)])
    try:
        kind = type_of_expression(connection(), check, fields)
    except (duckdb.Error, pa.ArrowException) as error:
        return short_message(str(error))
    if str(kind) != "BOOLEAN":
        return f"is of the type {kind}, and has to be BOOLEAN: compare it with something"
    return None


def unknown_column(column: str, known: list[str]) -> str:
    """Why a name is no column, with those that are spelled much like it."""
    if column.lower() in VALUE_WORDS:
        return f"{column} is no column, and a check may not read the clock or the session"
    return f"no column has the name {column[:60]}; {near(column, known)}"


def _check_characters(check: str) -> None:
    if not check.strip():
        raise _Refused("is empty; write an expression such as bet > 0")
    if len(check) > MAX_CHARACTERS:
        raise _Refused(f"has {len(check)} characters, and may have {MAX_CHARACTERS}")
    for character in check:
        # Marks of direction would show people another text than DuckDB reads.
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t":
            raise _Refused(f"has the control character {character!a}; remove it")
        if unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"):
            raise _Refused(f"has the direction mark {character!a}; remove it")
    depth = 0
    for bracket in re.findall(r"[(\[{)\]}]", check):  # many open brackets cost the parser seconds
        depth += 1 if bracket in "([{" else -1
        if depth > MAX_DEPTH:
            raise _too_deep()


def _too_deep() -> _Refused:
    return _Refused(f"is nested more than {MAX_DEPTH} deep; make it two expectations")


def _parse(check: str) -> Any:
    """The tree of the check, which is the same with and without parentheses around it: so it cannot leave them."""
    bare, tree = _one_expression(check)
    inside, _ = _one_expression(f"(\n{check}\n)")
    if bare != inside:
        raise _Refused("means something else in parentheses; write one expression")
    return tree


def _one_expression(text: str) -> tuple[str, Any]:
    """(the serialized expression without its positions in the text, its tree)."""
    rows = connection().sql("SELECT json_serialize_sql($1::VARCHAR)", params=[f"SELECT {text}"]).fetchall()
    serialized = re.sub(r'("query_location(?:_length)?":)\d+', r"\g<1>0", rows[0][0])
    try:
        parsed = json.loads(serialized)
    except RecursionError:
        raise _too_deep() from None
    if parsed["error"]:
        if "Max expression depth" in parsed["error_message"]:
            raise _too_deep()
        if parsed["error_type"] == "not implemented":  # of the statements DuckDB serializes SELECT alone
            raise _Refused("is more than one statement; write one expression")
        problem = short_message(parsed["error_message"])[:120]
        raise _Refused(f'is not one SQL expression: {problem}; a column named like a word of SQL needs "quotes"')
    node = parsed["statements"][0]["node"] if len(parsed["statements"]) == 1 else {}
    selected = node.get("select_list", [])
    if len(selected) != 1:
        raise _Refused("is more than one expression; make it one, or several expectations")
    more = [part for part in EMPTY if node[part]]
    if more or node["from_table"]["type"] != "EMPTY" or node["cte_map"]["map"] or node["type"] != "SELECT_NODE":
        raise _Refused("is a query (FROM, WHERE, ORDER BY ...); write only the expression")
    if selected[0]["alias"] and selected[0]["class"] != "STAR":
        raise _Refused("has an alias (AS ...); the expectation has its name already")
    return serialized, selected[0]


def _columns_in(tree: Any, more: frozenset[str] = frozenset()) -> set[str]:
    """The columns that a tree names, after a look at each of its nodes; `more` are functions that it may call, too."""
    columns: set[str] = set()
    # (part of the tree, expressions above it, parameters of the lambdas above it)
    left: list[tuple[Any, int, frozenset[str]]] = [(tree, 0, frozenset())]
    while left:
        part, depth, bound = left.pop()
        if isinstance(part, list):
            left += [(one, depth, bound) for one in part]
        if not isinstance(part, dict):
            continue
        if "class" in part:
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
            _check_node(part, more)
            if part["class"] == "COLUMN_REF" and part["column_names"][0].lower() not in bound:
                columns.add(part["column_names"][0])
            if part["class"] == "LAMBDA" and part["syntax_type"] == "LAMBDA_KEYWORD":
                left.append((part["expr"], depth, bound | set(parameters_of(part["lhs"]))))
                continue
        left += [(child, depth, bound) for child in part.values() if isinstance(child, dict | list)]
    return columns


def _check_node(node: dict[str, Any], more: frozenset[str]) -> None:
    kind = node["class"]
    if kind == "OPERATOR" and node["type"] not in OPERATORS:
        raise _Refused(f"{node['type'].removeprefix('OPERATOR_')} is not allowed")
    if kind not in ALLOWED:
        raise _Refused(REASONS.get(kind, f"{kind} is not allowed"))
    if kind == "FUNCTION":
        _check_call(node, more)


def _check_call(node: dict[str, Any], more: frozenset[str]) -> None:
    name = node["function_name"]
    if len(node["qualified_name"]["path"]) > 1:
        raise _Refused(f"{name}() has a dot before its name; write {name}(...), with all arguments in the parentheses")
    # A macro may call macros, and Python's stack ends the search in one that calls itself.
    own = name.lower() in more
    problem = None if own else problem_of(name, lambda text: _columns_in(_one_expression(text)[1]))
    if not problem and (node["filter"] or node["distinct"] or node["order_bys"]["orders"]):
        problem = f"{name}() takes no FILTER, DISTINCT or ORDER BY: those are for many rows"
    if not problem and name.lower() in LIST_AGGREGATES:
        problem = problem_of_list_aggregate(node["arguments"])
    if not problem and name.lower() == "age" and len(node["arguments"]) == 1:
        problem = "age() of one argument reads the clock; give it two"
    if problem:
        raise _Refused(problem)


def _error(setting: str, text: str) -> ConfigurationError:
    return ConfigurationError(one_line(f"{setting}: {text}")[:MAX_TEXT])


def needed_columns(expectations: Iterable[Expectation], own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns that the expectations name, sorted by name; case does not count.

    Args:
        own: the columns that the rows have.
        types: the types of columns that the rows may lack; those of the lineage are known.

    Raises:
        ConfigurationError: a check is refused.
    """
    return fields_named({name for one in expectations for name in columns_of(one.name, one.check)}, own, types)


def fields_named(names: Iterable[str], own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns with these names, as `needed_columns`; a name that no schema has is left out."""
    wanted = sorted({name.lower() for name in names})
    known: dict[str, pa.Field] = {}
    for field in (*own, *types, *LINEAGE):
        known.setdefault(field.name.lower(), field)
    return pa.schema([known[name] for name in wanted if name in known])


def select_needed(rows: pa.Table, expectations: Iterable[Expectation], types: pa.Schema) -> pa.Table:
    """The rows with the columns of `needed_columns`, and at least one column; those that they lack are NULL."""
    return select_fields(rows, needed_columns(expectations, rows.schema, types))


def select_fields(rows: pa.Table, fields: pa.Schema) -> pa.Table:
    """The rows with these columns, and at least one column; those that they lack are NULL."""
    there = set(rows.column_names)
    columns = {f.name: rows.column(f.name) if f.name in there else pa.nulls(len(rows), f.type) for f in fields}
    return pa.table(columns) if columns else rows.select(rows.column_names[:1])
