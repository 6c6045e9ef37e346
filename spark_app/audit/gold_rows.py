"""The rows of silver that a kind of gold tables aggregates: those of its condition, in each of their windows, by a
number for each group. It has its own derivation, besides the engine that evaluates conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_app.audit.snapshot import Snapshot, Table
from spark_app.model.gold_functions import WINDOW_COLUMNS
from spark_app.settings.gold import GoldTable, Window
from spark_app.tables.sql.engine import failures
from spark_app.tables.sql.names import columns_in

MICROS = 1_000_000
TIME, KAFKA, LANDED, CREDIBLE = "*time", "*kafka", "*landed", "*credible"
*WINDOW, WATERMARK = WINDOW_COLUMNS


class GoldRows:
    """
    Attributes:
        group: the columns of gold that no two rows have alike.
        numbers: the group of each row.
        keys: number of a group -> its values of these columns.
    """

    def __init__(self, snapshot: Snapshot, silver: Table, key: tuple[str, ...], own: GoldTable, fields: Iterable[str]):
        """
        Args:
            fields: those that are aggregated, by the names of the settings.
        """
        self.group = (*key, *(WINDOW if own.window else ()))
        conditions = columns_in(own.where) or {"_offset"} if own.where else set()
        wanted = {f"key {name}": name for name in key} | {f"field {name}": name for name in fields}
        wanted |= {f"where {name}": name for name in {one.lower(): one for one in conditions}.values()}
        wanted |= {TIME: snapshot.settings.event.time} if own.window else {}
        paths = {name: snapshot.path_of(silver, wanted[name]) for name in wanted}
        paths |= {KAFKA: ("_kafka_timestamp",), LANDED: ("_landed_at",)} if own.window else {}
        rows = silver.read({name: ds.field(path) for name, path in paths.items() if path} or ["_offset"])
        if own.where:
            rows = _that_count(rows, own.where)
        columns = [f"key {name}" for name in key]
        if own.window is not None:
            rows = in_sessions(rows, columns, own.window) if own.window.gap else in_windows(rows, own.window)
            rows = _with_credible(rows, own.window)
        self._rows = rows
        columns += [name for name in WINDOW if own.window]
        self.numbers, self.keys = numbered([rows[name] for name in columns], rows.num_rows)

    def of(self, field: str) -> pa.ChunkedArray:
        """The values of a field; NULL if silver does not have it."""
        column = CREDIBLE if field == CREDIBLE else f"field {field}"
        if column in self._rows.column_names:
            return self._rows[column]
        return pa.chunked_array([pa.nulls(self._rows.num_rows, pa.string())])


def _that_count(rows: pa.Table, where: str) -> pa.Table:
    named = [name for name in rows.column_names if name.startswith("where ")]
    checked = rows.select(named).rename_columns([name.removeprefix("where ") for name in named])
    return rows.filter(pa.array(failures(checked, [where]) == 0))


def in_sessions(rows: pa.Table, keys: list[str], window: Window) -> pa.Table:
    """The rows with a time, each with its session: that of the rows of its key that follow within the gap."""
    rows = rows.filter(rows[TIME].is_valid())
    numbers, _ = numbered([rows[name] for name in keys], rows.num_rows)
    gap = window.durations[2] * MICROS
    last: dict[int, list[int]] = {}  # key -> [begin, end] of its newest session
    sessions: list[list[int]] = []
    times = rows[TIME].cast(pa.int64()).to_numpy()
    order = np.argsort(times, kind="stable")
    for number, time in zip(numbers[order].tolist(), times[order].tolist(), strict=True):
        own = last.get(number)
        if own is None or time > own[1]:
            own = last[number] = [time, time]
        own[1] = time + gap
        sessions.append(own)
    return _with_bounds(rows.take(pa.array(order)), *zip(*sessions, strict=True)) if sessions else _with_bounds(rows)


def in_windows(rows: pa.Table, window: Window) -> pa.Table:
    """Each row with each of its windows, one without a time once and without any."""
    size, slide = (seconds * MICROS for seconds in window.durations[:2])
    at: list[int] = []
    starts: list[int | None] = []
    for number, time in enumerate(rows[TIME].cast(pa.int64()).to_pylist()):
        own: Iterable[int | None] = [None]
        if time is not None:
            own = range(time // slide * slide, time - size, -slide)
        for start in own:
            at.append(number)
            starts.append(start)
    ends = [None if start is None else start + size for start in starts]
    return _with_bounds(rows.take(pa.array(at, pa.int64())), starts, ends)


def _with_bounds(rows: pa.Table, starts: Sequence[Any] = (), ends: Sequence[Any] = ()) -> pa.Table:
    for name, values in zip(WINDOW, (starts, ends), strict=True):
        rows = rows.append_column(name, pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC")))
    return rows


def _with_credible(rows: pa.Table, window: Window) -> pa.Table:
    """With `CREDIBLE`: the time of a row, unless it is too far ahead of the record's."""
    came = pc.coalesce(rows[KAFKA], rows[LANDED]).cast(pa.int64())
    ahead = pc.subtract(rows[TIME].cast(pa.int64()), came)
    none = pa.scalar(None, rows[TIME].type)
    return rows.append_column(
        CREDIBLE, pc.if_else(pc.less_equal(ahead, window.durations[3] * MICROS), rows[TIME], none)
    )


def numbered(columns: Sequence[Any], count: int) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """(a number for each row, number -> values) of the distinct values of the columns."""
    codes = np.zeros((count, max(len(columns), 1)), np.int64)
    texts = []
    for position, column in enumerate(columns):
        plain = pc.add(column, 0.0) if pa.types.is_floating(column.type) else column  # 0.0 of -0.0
        values = plain.unique()
        codes[:, position] = pc.index_in(plain, value_set=values).to_numpy()
        texts.append(values.to_pylist())
    distinct, numbers = np.unique(codes, axis=0, return_inverse=True)
    keys = [tuple(values[code] for values, code in zip(texts, row, strict=False)) for row in distinct]
    return numbers.reshape(-1), keys
