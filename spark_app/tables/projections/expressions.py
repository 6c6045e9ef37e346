"""Which SQL an expression of a projection may be, and which type its column has."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_app.model.errors import ConfigurationError
from spark_app.tables.expectations.checks import LINEAGE, columns_in_expression, short_message
from spark_app.tables.expectations.needed_columns import fields_named
from spark_app.tables.projections import keyed_hash
from spark_app.tables.projections.written_types import NotWritable, Written, written_type
from spark_app.tables.sql.engine import open_database, type_of_expression

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FUNCTIONS = frozenset({keyed_hash.NAME})


@functools.cache
def connection() -> DuckDBPyConnection:
    """The connection of this process for expressions, which has `hmac()`; see `engine.open_database`."""
    made = open_database()
    keyed_hash.add_function(made)
    return made


def columns_of(setting: str, text: str) -> frozenset[str]:
    """The columns that an expression names, as it spells them.

    Raises:
        ConfigurationError: it is not one pure expression over the columns of a row.
    """
    return columns_in_expression(setting, text, FUNCTIONS)


@functools.cache
def calls_hmac(text: str) -> bool:
    """Whether an expression that may be one needs the key."""
    try:
        columns_in_expression("", text)
    except ConfigurationError:
        return True
    return False


def fields_of(text: str, own: pa.Schema, types: pa.Schema) -> pa.Schema:
    """The columns that an expression needs; at least one, because a table has one.

    Args:
        own, types: as for `needed_columns.needed_columns`.
    """
    return fields_named(columns_of("", text), own, types) or pa.schema([LINEAGE.field("_offset")])


@functools.lru_cache(maxsize=4096)
def type_of(text: str, fields: pa.Schema) -> Written | str:
    """The type of an expression's column; or, as a text, why it has none.

    Args:
        fields: the columns of the rows.
    """
    import duckdb

    try:
        return written_type(type_of_expression(connection(), text, fields))
    except (duckdb.Error, pa.ArrowException) as error:
        return short_message(str(error))
    except NotWritable as error:
        return str(error)
