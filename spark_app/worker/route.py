"""The routing field names the table.

In: the decoded rows and the closed set of tables. Out: for each row its routing name, or the cause why it has none, or
a report that the value is new. Names become folders and SQL identifiers, so only what the pattern allows is a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.records import Cause, Reject

NAME = re.compile(r"[a-z0-9_]{1,64}")
LONGEST_DETAIL = 200  # characters of a hostile value that are worth keeping; the raw record has all of it


@dataclass(frozen=True)
class Routing:
    """The closed set of tables a pass works with.

    Attributes:
        field: the message's routing field.
        admitted: routing value -> routing name, for every admitted table.
        allowed: routing names that may become tables; empty = any.
        room: whether a new value may be reported, or is over the cap (or this is the pass after settling).
    """

    field: str
    admitted: Mapping[str, str]
    allowed: frozenset[str]
    room: bool

    @cached_property
    def owned(self) -> frozenset[str]:
        return frozenset(self.admitted.values())


@dataclass(frozen=True)
class Verdict:
    """What a routing value means: exactly one of the three is set."""

    name: str | None = None
    cause: Cause | None = None
    new: bool = False


def normalize(value: str) -> str:
    """Spellings that a reader or a file system may take for the same become one name."""
    return unicodedata.normalize("NFKC", value).casefold()


def judge(value: str | None, routing: Routing) -> Verdict:
    """The table of one routing value."""
    if value is None or value == "":
        return Verdict(cause=Cause.ROUTE_MISSING)
    name = routing.admitted.get(value)
    if name is not None:
        return Verdict(name=name)
    name = normalize(value)
    if not NAME.fullmatch(name):
        return Verdict(cause=Cause.ROUTE_NAME)
    if routing.allowed and name not in routing.allowed:
        return Verdict(cause=Cause.ROUTE_REFUSED)
    if name in routing.owned:
        return Verdict(cause=Cause.ROUTE_COLLISION)
    return Verdict(new=True) if routing.room else Verdict(cause=Cause.ROUTE_CAP)


@dataclass(frozen=True)
class Routed:
    """One code per row of a table: a position in `values` and `verdicts`."""

    codes: np.ndarray
    values: list[str | None]
    verdicts: list[Verdict]

    def rejects(self) -> list[Reject]:
        """The rows that have no table, with the cause."""
        bad = {c: (v.cause, repr(self.values[c])[:LONGEST_DETAIL]) for c, v in enumerate(self.verdicts) if v.cause}
        if not bad:
            return []
        return [(row, *bad[self.codes[row]]) for row in np.flatnonzero(np.isin(self.codes, list(bad))).tolist()]


def route(table: pa.Table, routing: Routing) -> Routed:
    """Judge each distinct routing value once. A message without the field, or where it is no string, has none."""
    index = table.schema.get_field_index(routing.field)
    if index < 0 or not pa.types.is_string(table.schema.field(index).type):
        return Routed(np.zeros(table.num_rows, np.int64), [None], [Verdict(cause=Cause.ROUTE_MISSING)])
    encoded = pc.dictionary_encode(table.column(index).combine_chunks(), null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Routed(codes, values, [judge(value, routing) for value in values])
