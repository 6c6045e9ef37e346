"""Compares the expectations of the settings with the columns of the lake, before a row is checked by them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from spark_app.model.catalog import Catalog
from spark_app.model.columns import Aliases, merge_aliases
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf.columns.fit import table_columns
from spark_app.settings.models import ExpectationSettings
from spark_app.tables.aliases import table_aliases
from spark_app.tables.expectations.checks import check_columns
from spark_app.tables.route import Routing


def check_expectations_fit(
    expectations: Mapping[str, ExpectationSettings], catalog: Catalog, routing: Routing, wrapper: Wrapper | None
) -> None:
    """Check that each expectation is an expression on columns that some schema has, and is true or false for the types
    of all its tables. While no schema is known, only the expressions are checked.

    Raises:
        ConfigurationError: the text names the expectation.
    """
    tables = {
        name: table_columns(messages, catalog.columns, wrapper, routing.fixed.get(name))
        for name, messages in routing.messages.items()
    }
    aliases: dict[pa.Schema, Aliases] = {catalog.columns[kind]: names for kind, names in catalog.aliases.items()}
    for name, messages in routing.messages.items():
        aliases[tables[name]] = merge_aliases((aliases.get(tables[name], {}), table_aliases(messages, catalog)))
    known = _distinct([*tables.values(), *catalog.columns.values()])
    for name, expectation in expectations.items():
        required = _distinct([tables[table] for table in expectation.tables or tables if table in tables])
        check_columns(name, expectation.check, known, required, aliases)


def _distinct(schemas: list[pa.Schema]) -> list[pa.Schema]:
    return list(dict.fromkeys(schemas))
