"""What becomes of the rows of silver before they are aggregated: those that fail the condition leave, and each other
one is there once for every window that it is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.gold_functions import WINDOW_COLUMNS
from spark_app.model.record_schemas import TIMESTAMP
from spark_app.tables.sql.engine import failures

WINDOW_START, WINDOW_END, WATERMARK = WINDOW_COLUMNS
CONDITION = "_protolake_where_"  # + a column that the condition names
RECORD_TIMES = {"_protolake_kafka_time": "_kafka_timestamp", "_protolake_landed_at": "_landed_at"}
SECOND = 1_000_000  # microseconds


@dataclass(frozen=True)
class InputRows:
    """
    Attributes:
        where: SQL over the columns of silver that `CONDITION` names; "" = none.
        time: the column of the windows; "" = none. The durations are in microseconds.
        gap: of sessions, which only the rows of a whole group show: here they get no windows.
    """

    where: str = ""
    time: str = ""
    size: int = 0
    slide: int = 0
    gap: int = 0
    late: int = 0

    def schema(self, fields: pa.Schema) -> pa.Schema:
        """The columns of `of` from rows with these."""
        if self == ALL_ROWS:
            return fields
        added = (WATERMARK,) if self.gap else WINDOW_COLUMNS if self.time else ()
        kept = (field for field in fields if not _is_input(field.name))
        return pa.schema([*kept, *(pa.field(name, TIMESTAMP) for name in added)])

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows that count, with the columns of their windows, and without those that only this needs."""
        if self == ALL_ROWS:
            return rows
        if self.where:
            named = [name for name in rows.column_names if name.startswith(CONDITION)]
            checked = rows.select(named).rename_columns([name.removeprefix(CONDITION) for name in named])
            rows = rows.filter(pa.array(failures(checked, [self.where]) == 0))
        if self.gap:
            rows = rows.filter(rows[self.time].is_valid())
            rows = rows.append_column(WATERMARK, self._credible(rows))
        elif self.time:
            rows = self._in_windows(rows)
        return rows.select([name for name in rows.column_names if not _is_input(name)])

    def _in_windows(self, rows: pa.Table) -> pa.Table:
        """A row without a time is once there, without a window."""
        times = rows[self.time].cast(pa.int64())
        moments, known = times.fill_null(0).to_numpy(), times.is_valid().to_numpy()
        since = np.mod(moments, self.slide)  # the begin of its newest window
        at, starts = [np.arange(0)], [np.arange(0)]
        for back in range(0, self.size, self.slide):
            inside = np.flatnonzero(since + back < self.size if not back else known & (since + back < self.size))
            at.append(inside)
            starts.append(moments[inside] - since[inside] - back)
        order, start = np.concatenate(at), np.concatenate(starts)
        unknown = ~known[order]
        found = rows.take(pa.array(order))
        columns = [_moments(start, unknown), _moments(start + self.size, unknown), self._credible(found)]
        for name, column in zip(WINDOW_COLUMNS, columns, strict=True):
            found = found.append_column(name, column)
        return found

    def _credible(self, rows: pa.Table) -> pa.ChunkedArray:
        """The times that are not ahead of their record's by more than `late`: a wrong clock closes no window."""
        kafka, landed = (rows[name].cast(pa.int64()) for name in RECORD_TIMES)
        latest = pc.add(pc.coalesce(kafka, landed), self.late)
        times = rows[self.time]
        return pc.if_else(pc.less_equal(times.cast(pa.int64()), latest), times, pa.scalar(None, times.type))


ALL_ROWS = InputRows()


def _is_input(name: str) -> bool:
    return name.startswith(CONDITION) or name in RECORD_TIMES


def _moments(micros: np.ndarray, unknown: np.ndarray) -> pa.Array:
    return pa.array(micros, pa.int64(), mask=unknown).cast(TIMESTAMP)
