"""Finds the columns that the checks of rules name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_app.expectations.checks import LINEAGE, columns_of
from spark_app.model.definitions import Rule


def needed_columns(rules: Iterable[Rule], own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns that the rules name, sorted by name; case does not count.

    Args:
        own: the columns that the rows have.
        types: the types of columns that the rows may lack; those of the lineage are known.

    Raises:
        ConfigurationError: a check is refused.
    """
    wanted = sorted({name.lower() for rule in rules for name in columns_of(rule.name, rule.check)})
    known: dict[str, pa.Field] = {}
    for field in (*own, *types, *LINEAGE):
        known.setdefault(field.name.lower(), field)
    return pa.schema([known[name] for name in wanted if name in known])


def select_needed(rows: pa.Table, rules: Iterable[Rule], types: pa.Schema) -> pa.Table:
    """The rows with the columns of `needed_columns`, and at least one column; those that they lack are NULL."""
    fields = needed_columns(rules, rows.schema, types)
    there = set(rows.column_names)
    columns = {f.name: rows.column(f.name) if f.name in there else pa.nulls(len(rows), f.type) for f in fields}
    return pa.table(columns) if columns else rows.select(rows.column_names[:1])
