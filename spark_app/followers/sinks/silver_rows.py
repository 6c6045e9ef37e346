"""Rows of silver for a sink: those that units add, and those that a plan names, wherever compaction has put them."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.followers.follower import MOST_BYTES, MOST_ROWS
from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.model.record_schemas import LANDED, LINEAGE_COORDINATES, LINEAGE_SCHEMA
from spark_app.model.text import near
from spark_app.settings.models import Settings
from spark_app.settings.sinks import SinkSettings
from spark_app.tables.expectations.checks import LINEAGE, binding_problem, columns_in_expression
from spark_app.tables.sql.engine import failures

ENGINE = threading.RLock()  # one SQL engine judges the rows of all sinks
AHEAD = datetime.timedelta(3650)
ROW, FOUND = "_protolake_row", "_protolake_found"
COORDINATES = pa.schema([LINEAGE_SCHEMA.field(name) for name in LINEAGE_COORDINATES])


class SilverRows:
    """
    Attributes:
        tables: read-only handles of the tables.
    """

    def __init__(self, lake: Lake, settings: Settings, name: str, sink: SinkSettings):
        """
        Args:
            name: that of the sink.
        """
        self.tables = Tables(lake, settings.lake, settings.layout)
        self._storage = lake.storage
        self._layout = settings.layout
        self._name = name
        self._sink = sink
        self._judged: dict[str, pa.Schema] = {}  # table -> the columns for which the settings were found right

    def is_sent(self, table: str) -> bool:
        """Whether the rows of the table leave."""
        return self._layout.is_silver(table) and self.name_of(table) in (self._sink.tables or (self.name_of(table),))

    def name_of(self, table: str) -> str:
        return self._layout.name_of(table)

    def columns(self, table: str) -> pa.Schema:
        """The columns that a call has: those of the settings, or all of the message, and the coordinates.

        Raises:
            ConfigurationError: the table lacks a column that the settings name, or `where` has no truth value for it.
        """
        self.tables.look_again(table)
        there = self.tables.columns(table)
        assert there is not None
        if self._judged.get(table) != there:
            with ENGINE:
                self._judge(table, there)
        named = {name.casefold() for name in self._sink.columns}
        wanted = [f for f in there if (f.name.casefold() in named if named else not f.name.startswith("_"))]
        landed = [there.field(LANDED)] if self._sink.postgres and self._sink.postgres.keep_days else []
        about = pa.schema([*COORDINATES, *landed])
        return pa.schema([*(field for field in wanted if field.name not in about.names), *about])

    def _judge(self, table: str, there: pa.Schema) -> None:
        known = {field.name.casefold() for field in there}
        for setting in ("columns", "key"):
            for name in getattr(self._sink, setting):
                if name.casefold() not in known:
                    hint = near(name, there.names)
                    raise ConfigurationError(f"sinks.{self._name}.{setting}: {table} has no column {name}; {hint}")
        if self._sink.where and (problem := binding_problem(self._sink.where, there)):
            raise ConfigurationError(f"sinks.{self._name}.where: {problem}, in {table}")
        self._judged[table] = there

    def added(self, table: str, keys: Iterable[str]) -> Iterator[pa.Table]:
        """The coordinates and the key of the rows in these files that the settings choose.

        Raises:
            FileNotFoundError: compaction has merged a file, and nobody keeps it any more.
        """
        self.columns(table)
        there = self._judged[table]
        with ENGINE:
            tested = columns_in_expression("", self._sink.where) if self._sink.where else frozenset()
        named = {name.casefold() for name in (*tested, *self._sink.key)}
        known = {field.name.casefold(): field for field in (*LINEAGE, *there)}
        fields = pa.schema([*COORDINATES, *(known[one] for one in sorted(named) if one not in COORDINATES.names)])
        own = [known[name.casefold()].name for name in self._sink.key]
        for key in keys:
            for batch in self._batches(key, fields):
                rows = pa.Table.from_batches([batch])
                if self._sink.where:
                    with ENGINE:
                        rows = rows.filter(pa.array(failures(rows, [self._sink.where]) == 0))
                if len(rows):
                    yield rows.select([*COORDINATES.names, *(name for name in own if name not in COORDINATES.names)])

    def find(self, table: str, files: Sequence[str], wanted: pa.Table) -> pa.Table:
        """The rows with these coordinates, in the order of `wanted`, and in `ROW` the place of each there. Rows that
        silver has no longer are left out.

        Args:
            files: those that had the rows when they were planned.
        """
        if self.tables.look_again(table) is None:
            return pa.schema([*COORDINATES, (ROW, pa.int64())]).empty_table()
        columns = self.columns(table)
        places = _coordinates(wanted).append_column(ROW, pa.array(range(len(wanted)), pa.int64()))
        found = self._among(files, columns, places)
        if len(found) < len(places):
            offsets = pc.min_max(wanted["_offset"]).as_py()
            found = self._among(self.between(table, offsets["min"], offsets["max"] + 1), columns, places)
        return found

    def recent(self, table: str) -> list[str]:
        """The keys of the files that may have rows which the target keeps."""
        self.tables.look_again(table)
        days = self._sink.postgres.keep_days if self._sink.postgres else 0
        if not days:
            return self.tables.files(table)
        now = datetime.datetime.now(datetime.UTC)  # the clock of the app may be ahead
        return self.tables.files_between(table, LANDED, now - datetime.timedelta(days + 1), now + AHEAD)

    def between(self, table: str, first: int, end: int) -> list[str]:
        """The keys of the files that may have rows with offsets from `first` up to `end`."""
        return self.tables.files_between(table, "_offset", first, end - 1)

    def _among(self, keys: Iterable[str], columns: pa.Schema, places: pa.Table) -> pa.Table:
        """Those of the rows that these files have; compaction may have removed some of them."""
        found = []
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                for batch in self._batches(key, columns):
                    at = _coordinates(batch).append_column(FOUND, pa.array(range(len(batch)), pa.int64()))
                    at = at.join(places, LINEAGE_COORDINATES, join_type="inner")
                    found.append(pa.Table.from_batches([batch]).take(at[FOUND]).append_column(ROW, at[ROW]))
        if not found:
            return columns.append(pa.field(ROW, pa.int64())).empty_table()
        rows = pa.concat_tables(found)
        return rows.take(pc.sort_indices(rows[ROW]))

    def _batches(self, key: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        return read_batches(self._storage, key, fields, fields.names, MOST_ROWS, MOST_BYTES)


def _coordinates(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """A join finds no NULL, which the topic id of files is."""
    return pa.table(
        {name: pc.fill_null(rows[name], "") if name == "_topic_id" else rows[name] for name in LINEAGE_COORDINATES}
    )
