"""Finds the columns that the checks of rules name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_app.model.definitions import Rule
from spark_app.tables.expectations.checks import LINEAGE, columns_of


def needed_columns(rules: Iterable[Rule], own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns that the rules name, sorted by name; case does not count.

    Args:
        own: the columns that the rows have.
        types: the types of columns that the rows may lack; those of the lineage are known.

    Raises:
        ConfigurationError: a check is refused.
    """
    return fields_named({name for rule in rules for name in columns_of(rule.name, rule.check)}, own, types)


def fields_named(names: Iterable[str], own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns with these names, as `needed_columns`; a name that no schema has is left out."""
    wanted = sorted({name.lower() for name in names})
    known: dict[str, pa.Field] = {}
    for field in (*own, *types, *LINEAGE):
        known.setdefault(field.name.lower(), field)
    return pa.schema([known[name] for name in wanted if name in known])


def select_needed(rows: pa.Table, rules: Iterable[Rule], types: pa.Schema) -> pa.Table:
    """The rows with the columns of `needed_columns`, and at least one column; those that they lack are NULL."""
    return select_fields(rows, needed_columns(rules, rows.schema, types))


def select_fields(rows: pa.Table, fields: pa.Schema) -> pa.Table:
    """The rows with these columns, and at least one column; those that they lack are NULL."""
    there = set(rows.column_names)
    columns = {f.name: rows.column(f.name) if f.name in there else pa.nulls(len(rows), f.type) for f in fields}
    return pa.table(columns) if columns else rows.select(rows.column_names[:1])
