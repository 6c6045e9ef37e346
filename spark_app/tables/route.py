"""Chooses a record's table by the routing field, the message type, or both.

Input: the decoded rows of one message type, and the known tables. Output: for each row its routing name, or the cause
for which it has none, or that its routing value is new. Names become folders and SQL identifiers, so a name must match
the pattern.

A routing value is the field's value, the full name of the message type, or both as `package.Message/value`. A routing
name belongs to the first routing value that gets it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.causes import Cause, Reject

NAME = re.compile(r"[a-z0-9_]{1,64}")
LONGEST_DETAIL = 200  # characters of a routing value in quarantine; the raw record contains all of it
NAMING = "a text, an enum, an integer or a boolean can"
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
By = Literal["field", "message", "both"]
T = TypeVar("T", pa.Table, pa.Array)


@dataclass(frozen=True)
class Routing:
    """The tables that a task knows; it reports any other routing value as new.

    Attributes:
        field: the message's routing field, as the settings call it.
        admitted: routing value -> routing name, for every admitted table.
        allowed: routing names that may become tables; empty = any.
        room: True = a new table is possible; False = the limit on tables is reached.
        by: the source of the routing value.
        messages: routing name -> the message types of its rows, in the order of admission; any other type is new.
        fixed: routing name -> existing columns of a table with several message types.
    """

    field: str
    admitted: Mapping[str, str]
    allowed: frozenset[str]
    room: bool
    by: By = "field"
    messages: Mapping[str, tuple[str, ...]] = attribute(default_factory=dict)
    fixed: Mapping[str, pa.Schema] = attribute(default_factory=dict)

    @cached_property
    def owned(self) -> frozenset[str]:
        return frozenset(self.admitted.values())


@dataclass(frozen=True)
class RouteResult:
    """The result for a routing value; exactly one of the four is set. `paused` is the name of a paused table."""

    name: str | None = None
    cause: Cause | None = None
    new: bool = False
    paused: str | None = None


def normalize(value: str) -> str:
    """Unify spellings that a reader or a file system may treat as equal."""
    return unicodedata.normalize("NFKC", value).casefold()


def name_of(value: str, by: By) -> str:
    """The routing name for a routing value; it may not be valid."""
    if by == "field":
        return normalize(value)
    message, _, rest = value.partition("/")
    name = HUMP.sub("_", message.rpartition(".")[2])
    return normalize(f"{name}_{rest}" if by == "both" else name)


def classify(value: str | None, routing: Routing, message: str) -> RouteResult:
    """Find the table of one routing value, for rows of a message type."""
    if value is None or value == "":
        return RouteResult(cause=Cause.ROUTE_MISSING)
    name = routing.admitted.get(value)
    if name is not None:
        known = message in routing.messages.get(name, ())
        return RouteResult(name=name) if known else RouteResult(new=True)
    name = name_of(value, routing.by)
    if not NAME.fullmatch(name):
        return RouteResult(cause=Cause.ROUTE_NAME)
    if routing.allowed and name not in routing.allowed:
        return RouteResult(cause=Cause.ROUTE_REFUSED)
    if name in routing.owned:
        return RouteResult(cause=Cause.ROUTE_COLLISION)
    return RouteResult(new=True) if routing.room else RouteResult(cause=Cause.ROUTE_CAP)


@dataclass(frozen=True)
class Routed:
    """One code per row of a table: a position in `values` and `results`. `none` says why a row has no value."""

    codes: np.ndarray
    values: list[str | None]
    results: list[RouteResult]
    none: str = ""

    def with_paused(self, names: Collection[str]) -> Routed:
        """The same, where these tables are paused."""
        results = [RouteResult(paused=result.name) if result.name in names else result for result in self.results]
        return replace(self, results=results)

    def rejects(self) -> list[Reject]:
        """The rows that have no table, with the cause."""
        bad = {c: (v.cause, self._detail(self.values[c])) for c, v in enumerate(self.results) if v.cause}
        if not bad:
            return []
        return [(row, *bad[self.codes[row]]) for row in np.flatnonzero(np.isin(self.codes, list(bad))).tolist()]

    def _detail(self, value: str | None) -> str:
        return self.none if value is None else repr(value)[:LONGEST_DETAIL] if value else "the routing field is empty"


def route(table: pa.Table, count: int, routing: Routing, message: str, column: str = "") -> Routed:
    """Find the tables of `count` rows; each distinct routing value is checked once.

    Args:
        table: the rows, or their wrappers. Without a routing field of a kind that can name tables, there is no value.
        column: has the routing values; "" = it is called as the routing field.
        message: the message type, with the wrapper's type and "/" before it if there is a wrapper.
    """
    full_name = message.rpartition("/")[2].partition("#")[0]
    if routing.by == "message":
        return Routed(np.zeros(count, np.int64), [full_name], [classify(full_name, routing, message)])
    codes, values, none = _field_values(table, count, column or routing.field)
    if routing.by == "both":
        values = [value and f"{full_name}/{value}" for value in values]
    return Routed(codes, values, [classify(value, routing, message) for value in values], none)


def _field_values(table: pa.Table, count: int, name: str) -> tuple[np.ndarray, list[str | None], str]:
    """(codes of the rows, the values as text, why a row has none)."""
    index = table.schema.get_field_index(name)
    if index < 0:
        return np.zeros(count, np.int64), [None], f"the message has no field {name}"
    column = table.column(index)
    if not names_tables(column.type):
        return np.zeros(count, np.int64), [None], f"{name} is {column.type}, which cannot name a table: {NAMING}"
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    texts = encoded.dictionary.cast(pa.string()).to_pylist()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), texts, f"{name} is NULL"


def names_tables(kind: pa.DataType) -> bool:
    """Whether values of a column can be routing values. An unsigned integer of 64 bits is a decimal without places."""
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    return bool(whole or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def pick(source: T, rows: np.ndarray) -> T:
    """The rows of a table or an array, without a copy when they are all of them in order."""
    if len(rows) == len(source) and (len(rows) < 2 or bool((np.diff(rows) == 1).all())):
        return source
    return source.take(pa.array(rows))
