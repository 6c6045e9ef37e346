"""The plans of a sink: which rows each call has, written down before the first call.

    _protolake/sinks/crm/plans/000000000042-000.plan    a line of JSON, then for each table an Arrow stream

A plan of silver has the coordinates of its rows, by which they are found whatever compaction has made of their files. A
plan of a table whose rows change has the rows themselves: another value later is another call. Plans are numbered by
the last unit that they include, and by their place among those of this unit. They are never changed: a process that has
lost the lease of the sink cannot write one that exists.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from posixpath import basename

import numpy as np
import pyarrow as pa

from spark_app.followers.sinks.sink import ERASE, KEY, OPERATION
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, LeaseLost
from spark_app.model.record_schemas import LINEAGE_COORDINATES
from spark_app.settings.sinks import SinkSettings

CALL, LANE = "_call", "_lane"  # columns: the number of the row's call, and what the call has to wait for
FREE = -1  # the lane of calls that wait for none
ENDING = ".plan"
MOST_PLACES = 999
OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class Part:
    """The rows of one table in a plan.

    Attributes:
        table, name: the table and its routing name; "" = it has none.
        files: those that had the rows when the plan was made, as far as they are known.
        rows: `CALL`, `LANE` and the coordinates, or the rows.
        names, replaces: see `Call`.
    """

    table: str
    name: str
    files: Sequence[str]
    rows: pa.Table
    names: Sequence[str] = ()
    replaces: bool = False

    @staticmethod
    def of(
        sink: SinkSettings, table: str, name: str, files: Iterable[str], rows: pa.Table, names: Sequence[str] = ()
    ) -> Part:
        """The part with the calls that the settings ask for. The rows of a key that change follow one another, whatever
        the settings say: a target would end with an old one otherwise."""
        named = {name.casefold() for name in (names or sink.key)}
        lanes, keys = None, [name for name in rows.column_names if name.casefold() in named]
        if sink.order == "table":
            lanes = np.full(len(rows), lane_of(table))
        elif keys and (sink.order == "key" or names):
            texts = zip(*(rows[key].cast(pa.string()).to_pylist() for key in keys), strict=True)
            lanes = np.fromiter((zlib.crc32(repr(one).encode()) % sink.in_flight for one in texts), np.int64, len(rows))
        return Part(table, name, list(files), cut(rows, sink.rows_per_call, lanes), names)

    @staticmethod
    def of_erased(keys: Sequence[str]) -> Part:
        """One call for each key that is to be forgotten."""
        rows = pa.table({KEY: pa.array(keys, pa.string()), OPERATION: [ERASE] * len(keys)})
        return Part("", "", [], cut(rows, 1, None))

    @property
    def has_rows(self) -> bool:
        return OPERATION in self.rows.column_names

    @property
    def starts(self) -> np.ndarray:
        """The row at which each call begins, and the number of rows."""
        calls = self.rows[CALL].to_numpy()
        return np.append(np.flatnonzero(np.diff(calls, prepend=-1)), len(calls))

    def identity(self, start: int, stop: int) -> str:
        """What a key is made of: the first and last coordinates of the rows from `start` to `stop`, or their values."""
        if self.has_rows:
            stream = io.BytesIO()
            rows = self.rows.slice(start, stop - start).drop_columns([CALL, LANE]).combine_chunks()
            with pa.ipc.new_stream(stream, rows.schema) as writer:
                writer.write_table(rows)
            return hashlib.sha256(stream.getvalue()).hexdigest()
        if start == stop:  # all rows of before go
            return ""
        first, last = ("/".join(str(self.rows[name][at]) for name in LINEAGE_COORDINATES) for at in (start, stop - 1))
        return f"{first} {last}"


@dataclass(frozen=True)
class Head:
    """What is known of a plan whose rows are in its file.

    Attributes:
        rows: how many it has; for the others see `Plan`.
    """

    number: str
    rows: int
    at: int
    lanes: str


@dataclass(frozen=True)
class Plan:
    """
    Attributes:
        number: names the plan, and orders it among the others.
        unit: the last unit that it includes.
        again: the request by which its rows, which were sent before, are sent again; "" = they were not.
        lanes: by which settings its rows got their lanes: plans of others are not sent side by side with it.
        at: when it was made, in microseconds since 1970.
    """

    number: str
    unit: int
    parts: Sequence[Part]
    again: str = ""
    lanes: str = ""
    at: int = field(default_factory=lambda: int(time.time() * 1e6))

    @property
    def rows(self) -> int:
        return sum(len(part.rows) for part in self.parts)

    @property
    def head(self) -> Head:
        return Head(self.number, self.rows, self.at, self.lanes)


def lane_of(table: str) -> int:
    """The lane of calls that follow one another because they are of one table."""
    return zlib.crc32(table.encode()) >> 1


def cut(rows: pa.Table, rows_per_call: int, lanes: np.ndarray | None) -> pa.Table:
    """The rows with `CALL` and `LANE`, those of a lane together; otherwise their order stays.

    Args:
        lanes: of each row: its calls are made one after another; None = no call waits for another one.
    """
    count = len(rows)
    if lanes is None:
        calls = np.arange(count) // rows_per_call
        lanes = np.full(count, FREE)
    else:
        order = np.argsort(lanes, kind="stable")
        rows, lanes = rows.take(pa.array(order)), lanes[order]
        begins = np.flatnonzero(np.diff(lanes, prepend=-1))
        within = np.arange(count) - np.repeat(begins, np.diff(np.append(begins, count)))
        is_new = (within % rows_per_call) == 0
        calls = np.cumsum(is_new) - 1
    return rows.append_column(CALL, pa.array(calls, pa.int32())).append_column(LANE, pa.array(lanes, pa.int32()))


class Plans:
    """The plans of a sink that are not delivered yet, or what a planner keeps in the same form."""

    def __init__(self, lake: Lake, folder: str, kind: str = "plans"):
        self._storage = lake.storage
        self._lease = lake.lease
        self._folder = f"{folder}/{kind}"

    def numbers(self) -> list[str]:
        """Those that exist, the oldest first."""
        names = map(basename, self._storage.list(self._folder))
        return sorted((name.removesuffix(ENDING) for name in names if name.endswith(ENDING)), key=_order)

    def store(self, plan: Plan) -> None:
        """
        Raises:
            LeaseLost: another process delivers for this sink.
        """
        streams = [_to_ipc(part.rows) for part in plan.parts]
        parts = [
            {name: value for name, value in vars(part).items() if name != "rows"} | {"bytes": len(stream)}
            for part, stream in zip(plan.parts, streams, strict=True)
        ]
        more = {name: getattr(plan, name) for name in ("unit", "again", "lanes", "at")}
        head = json.dumps({**more, "parts": parts})
        self._lease.check()
        try:
            with failpoints.around("sink.plan"):
                self._storage.put_if_absent(self._key(plan.number), b"".join([head.encode(), b"\n", *streams]), True)
        except FileExistsError:
            raise LeaseLost(f"plan {plan.number} exists already: another process delivers for this sink now") from None

    def read(self, number: str) -> Plan:
        """
        Raises:
            ContractError: the file is damaged.
        """
        data = self._storage.get(self._key(number))
        try:
            at = data.index(b"\n") + 1
            head, parts = json.loads(data[:at]), list[Part]()
            for one in head["parts"]:
                end = at + one.pop("bytes")
                parts.append(Part(**one, rows=pa.ipc.open_stream(memoryview(data)[at:end]).read_all()))
                at = end
        except (ValueError, LookupError, TypeError, pa.ArrowException) as error:
            path = self._storage.uri(self._key(number))
            raise ContractError(f"{path} is damaged ({error})", "restore it from a backup of the lake") from None
        return Plan(number, head["unit"], parts, head["again"], head["lanes"], head["at"])

    def forget(self, number: str) -> None:
        self._storage.delete(self._key(number))

    def _key(self, number: str) -> str:
        return f"{self._folder}/{number}{ENDING}"


def number_of(unit: int, place: int, request: str = "") -> str:
    """The number of a plan; that of a request ends with its id."""
    return f"{unit:012d}-{place:03d}" + (f"-{request}" if request else "")


def _order(number: str) -> tuple[int, str, int]:
    """That of a request come behind the others up to its unit, and not among those of another request."""
    unit, place, request = (*number.split("-"), "")[:3]
    return int(unit), request, int(place)


def lanes_of(sink: SinkSettings, parts: Iterable[Part], number: str) -> str:
    """The lanes of a plan. One that empties a table whose rows come by other calls is sent beside none of them."""
    is_alone = any(part.replaces and (part.names or not part.has_rows) for part in parts)
    return f"{sink.lanes} whole {number}" if is_alone else sink.lanes


def unit_of(number: str) -> int:
    """The last unit of a plan."""
    return int(number.partition("-")[0])


def _to_ipc(rows: pa.Table) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema, options=OPTIONS) as writer:
        writer.write_table(rows)
    return stream.getvalue()
