"""What a kind of sink is: the protocol that the built-in kinds and those of other packages follow.

`protolake.sinks` is the public name of this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

import pyarrow as pa

from spark_app.followers.sinks.json_rows import json_lines
from spark_app.model.errors import ConfigurationError
from spark_app.model.text import near

GROUP = "protolake.sinks"
OPERATION = "_op"  # a column of rows that change: upsert or delete
UPSERT, DELETE = "upsert", "delete"
ERASE = "erase"  # of a row that has only the column `KEY`: a person who is to be forgotten
KEY = "key"
Result = Literal["accepted", "refused", "retry", "unavailable", "too_large"]


@dataclass(frozen=True)
class Call:
    """Rows that are sent together.

    Attributes:
        key: names the call for ever. A call that is repeated has the same key and the same rows, also after a crash: a
            target that knows the keys it has accepted gets each row once.
        table: the table of the rows.
        name: its routing name; "" if it has none.
        rows: the rows, in the order of the table. Of a table whose rows change, `OPERATION` says for each row whether
            it is the newest one of its key, or whether there is no row of this key any more.
        names: the columns that no two rows have alike, of a table whose rows change; empty = there are none.
        replaces: the rows are all that the table has: what the target has besides goes.
        attempt: 1 at first.
    """

    key: str
    table: str
    name: str
    rows: pa.Table
    names: Sequence[str] = ()
    replaces: bool = False
    attempt: int = 1

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """The rows as Python values."""
        return list(self.rows.to_pylist(maps_as_pydicts="lossy"))

    @cached_property
    def lines(self) -> list[bytes]:
        """The rows as JSON objects, see `json_rows`."""
        return json_lines(self.rows)


@dataclass(frozen=True)
class Outcome:
    """What became of a call.

    Attributes:
        key: that of the call.
        result: accepted; refused for good, because of its rows; to be tried again (`retry`: the target has answered,
            which counts, `unavailable`: it has not, or not about these rows, which does not count); or too_large: it
            was not sent, and is to be divided.
        status: a number of the target, such as that of HTTP; 0 = none.
        answer: the begin of what it has answered, or why there is no answer. No secret may be in it.
        wait_s: seconds until the next attempt that the target has asked for.
    """

    key: str
    result: Result
    status: int = 0
    answer: str = ""
    wait_s: float = 0.0


class Sink(Protocol):
    """A kind of sink. An object has one thread.

    It may have a method `forget(keys)`: the ledger has the end of the calls with these keys now, so that they are never
    repeated. At most 100 calls, and those in flight, are neither forgotten nor unanswered.

    Attributes:
        can_replace: whether it takes calls that replace a table, in one step for who reads the target.
    """

    can_replace: bool

    def open(self, options: Mapping[str, Any]) -> None:
        """Make ready; called once, before the first call.

        Raises:
            ValueError: an option is wrong.
        """

    def send(self, calls: Sequence[Call]) -> Sequence[Outcome] | Awaitable[Sequence[Outcome]]:
        """Send calls, and return an outcome for each. An `async` method has `in_flight` runs at a time.

        Raises:
            LeaseLost: another process sends for this sink; this one ends.
            Exception: all of the calls are unavailable.
        """

    def close(self) -> Awaitable[None] | None:
        """Give back what `open` and `send` have made."""


def made_by(kind: str) -> Sink:
    """A sink of an installed package.

    Raises:
        ConfigurationError: there is no such entry point, or it cannot be loaded.
    """
    found = {one.name: one for one in entry_points(group=GROUP)}
    if kind not in found:
        hint = near(kind, found) if found else "no package with such kinds is installed"
        raise ConfigurationError(f"no package has a sink {kind} in its entry points of {GROUP}; {hint}")
    try:
        made: Sink = found[kind].load()()
    except Exception as error:
        raise ConfigurationError(f"the sink {kind} of {found[kind].value} cannot be loaded: {error}") from None
    return made
