"""Selects the columns that the checks of rules name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_app.expectations.checks import LINEAGE, columns_of
from spark_app.model.definitions import Rule


def named_columns(rules: Iterable[Rule]) -> frozenset[str]:
    """The names in the checks, in lower case: case does not count.

    Raises:
        ConfigurationError: a check is refused.
    """
    return frozenset(name.lower() for rule in rules for name in columns_of(rule.name, rule.check))


def select_needed(rows: pa.Table, rules: Iterable[Rule], types: pa.Schema) -> pa.Table:
    """The rows with the columns that the rules name, and at least one column.

    Args:
        types: the types of columns that the rows may lack: such a column is NULL, and so is one of the lineage.
    """
    wanted = named_columns(rules)
    there = {name.lower(): name for name in rows.column_names}
    known = {field.name.lower(): field for field in (*LINEAGE, *types)}
    columns = {there[name]: rows.column(there[name]) for name in sorted(wanted & there.keys())}
    for name in sorted(wanted & known.keys() - there.keys()):
        columns[known[name].name] = pa.nulls(len(rows), known[name].type)
    return pa.table(columns) if columns else rows.select(rows.column_names[:1])
