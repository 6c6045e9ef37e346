"""The tables that a statement reads, as views of one Spark session at one moment.

Each statement has a session of its own, in which the views have the names of the tables. A view reads the files of one
version, or only the files that some units have added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.followers.gold.sql_tables.plans import Refused
from spark_app.followers.gold.sql_tables.statements import SqlFiles, Statement
from spark_app.lake.delta.table_schema import columns_of, open_table
from spark_app.lake.files.reference_files import read_named_copy
from spark_app.model.columns import types_of
from spark_app.model.text import in_backticks, near
from spark_app.model.views import TABLE, Views
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FOLDER, read_rows

REOPEN_AFTER = 100  # versions: a handle keeps what it has read of each


class Waits(Exception):
    """A table that the statement reads is not there yet."""


@dataclass(frozen=True)
class Sources:
    """What a statement reads, between two units.

    Attributes:
        silver: silver table -> its columns.
        derived: gold table, table by SQL, or quarantine -> its columns.
        references: reference table -> the content in force.
        views: temporary view -> its query; one reads those before it.
        united: the views of the lake, such as silver_all.
        named: the tables that a query names; others are read by a view of the lake.
        versions: table or reference table -> version.
        files: table -> keys of its files in that version, as far as they were asked for.
    """

    silver: dict[str, pa.Schema] = field(default_factory=dict)
    derived: dict[str, pa.Schema] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    united: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    versions: dict[str, int | str] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, pa.Schema]:
        return self.silver | self.derived

    @property
    def names(self) -> set[str]:
        """Of all views but the temporary ones."""
        return {*self.columns, *self.references, *self.united}

    @property
    def growing(self) -> set[str]:
        """Those of them whose rows do not change."""
        return {*self.silver, "silver_all"} & self.names

    @property
    def types(self) -> dict[str, dict[str, str]]:
        """Table -> column -> its type as text."""
        return {table: types_of(columns) for table, columns in self.columns.items()}

    def adding(self, files: Mapping[str, list[str]]) -> Sources:
        """The same with these files, and none of other tables."""
        return replace(self, files={name: files.get(name, []) for name in self.columns})


class SourceReader:
    """The sources of one statement's tables. Call it from one thread."""

    def __init__(self, session: SparkSession, opened: OpenLake, files: SqlFiles):
        self._session = session
        self._opened = opened
        self._files = files
        self._handles: dict[str, tuple[DeltaTable, int]] = {}  # handle and the version at which it was opened

    def moment(self) -> tuple[set[str], Views]:
        """The tables and views of the lake."""
        tables = self._opened.lake.tables()
        return set(tables), self._opened.settings.views(tables)

    def look(self, statement: Statement, name: str, moment: tuple[set[str], Views]) -> Sources:
        """The sources of a statement, without what `pin` adds.

        Args:
            name: the routing name if the statement is of each one; else "".
            moment: what `moment` gives now.

        Raises:
            Waits: a table is not there yet.
            Refused: the lake will never have it.
        """
        views, (tables, of_lake) = self._files.views_of(name), moment
        named = set(statement.reads)
        for view in reversed(views.values()):  # one reads those before it
            named |= view.reads if view.name in named else frozenset()
        united = tuple(sorted(named & of_lake.sources.keys() - views.keys()))
        own = {view.name: view.query for view in views.values() if view.name in named}
        found = Sources(views=own, united=united, named=frozenset(named))
        for one in sorted(named.union(*(of_lake.sources[view] for view in united)) - own.keys() - set(united)):
            self._add(found, one, tables, statement)
        return found

    def _add(self, found: Sources, one: str, tables: set[str], statement: Statement) -> None:
        layout = self._opened.settings.layout
        if one in self._opened.settings.reference:
            version = self._opened.projections.joins.references.versions()[one]
            found.references[one] = found.versions[one] = version.content
        elif layout.is_silver(one) and one in tables:
            found.silver[one] = pa.schema([])
        elif self._is_derived(one) and one in tables:
            handle = self._handle(one)
            found.derived[one] = columns_of(handle)
            found.versions[one] = handle.version()
        elif layout.is_silver(one) or Views.is_reserved(one) or self._is_derived(one):
            raise Waits(f"it waits for {one}, which is not there yet")
        else:
            self._refuse(one, tables, statement)

    def _is_derived(self, table: str) -> bool:
        """Whether each run reads the whole table, as far as the lake has it."""
        layout = self._opened.settings.layout
        return layout.is_gold(table) or table == layout.quarantine or self.is_made(table)

    def is_made(self, table: str) -> bool:
        """Whether a statement of the files makes this table."""
        return self._files.makes(table, self._opened.admission.admitted.values())

    def _refuse(self, one: str, tables: set[str], statement: Statement) -> NoReturn:
        settings = self._opened.settings
        if one in settings.tables.fixed:
            raise Refused(
                f"{one} cannot be read here: only silver, gold, quarantine, reference tables and tables by SQL can"
            )
        known = {*tables, *settings.reference, *self._files.views_of(""), *settings.views(tables).sources}
        known |= {made.name for made in self._files.tables}
        known -= {*settings.tables.fixed, statement.name}
        raise Refused(f"there is no table {one}; {near(one, known)}")

    def _handle(self, table: str) -> DeltaTable:
        handle, opened_at = self._handles.get(table, (None, 0))
        if handle is None or handle.version() - opened_at > REOPEN_AFTER:
            handle = open_table(self._opened.lake, table)
            self._handles[table] = handle, handle.version()
        else:
            handle.update_incremental()
        return handle

    def pin(self, sources: Sources) -> Sources:
        """The same with the columns and versions of silver at this moment; no unit may be built meanwhile.

        Raises:
            Waits: a table was removed.
        """
        tables, silver, versions = self._opened.units.committer.tables, dict[str, pa.Schema](), dict(sources.versions)
        for name in sources.silver:
            columns = tables.columns(name)
            if columns is None:
                raise Waits(f"it waits for {name}, which was removed")
            silver[name], versions[name] = columns, tables.version(name) or 0
        return replace(sources, silver=silver, versions=versions)

    def files_of(self, sources: Sources) -> Sources:
        """The same with all files of the sources; no unit may be built meanwhile."""
        files = {table: self.silver_files(table) for table in sources.silver}
        versions = dict(sources.versions)
        for table in sources.derived:  # for another table of the statement its handle may have gone on since
            handle = self._handles[table][0]
            files[table] = [f"{table}/{path}" for path in handle.get_add_actions()["path"].to_pylist()]
            versions[table] = handle.version()
        return replace(sources, files=files, versions=versions)

    def silver_files(self, table: str) -> list[str]:
        """All files of a silver table; no unit may be built meanwhile."""
        self._opened.units.refresh(table)
        return self._opened.units.committer.tables.files(table)

    def register(self, sources: Sources) -> None:
        """Make the views of the session read these files."""
        views, types = self._opened.settings.views(sources.columns), sources.types
        one_by_one = {name for name in sources.united if views.mixed(name, types) or not views.is_united(name)}
        needed = sources.named.union(*(views.sources[name] for name in one_by_one))
        for table in sorted(needed & sources.columns.keys()):
            rows = self._read(sources.files[table], sources.columns[table])
            rows.drop(FOLDER).createOrReplaceTempView(table)
        for name, content in sources.references.items():
            key = self._opened.settings.reference[name].key
            copy = read_named_copy(self._opened.lake.storage, name, content, key)
            self._session.createDataFrame(copy).createOrReplaceTempView(name)
        for name in sources.united:
            if name in one_by_one:
                rows = self._session.sql(views.sql(name, types, in_backticks))
            else:
                rows = self._unite(views.sources[name], sources)
            rows.createOrReplaceTempView(name)
        for name, query in sources.views.items():
            self._session.sql(query).createOrReplaceTempView(name)

    def mixed(self, sources: Sources) -> dict[str, list[str]]:
        """View of the lake -> its columns that are text because their types differ."""
        views = self._opened.settings.views(sources.columns)
        return {name: views.mixed(name, sources.types) for name in sources.united}

    def _read(self, keys: list[str], columns: pa.Schema) -> DataFrame:
        return read_rows(self._session, self._opened.lake.storage, keys, from_arrow_schema(columns))

    def _unite(self, tables: Sequence[str], sources: Sources) -> DataFrame:
        """The rows of tables whose types agree, read at once: a union of a thousand tables takes Spark seconds to
        plan."""
        layout, columns = self._opened.settings.layout, sources.columns
        fields = {one.name: one for table in tables for one in columns[table]}
        rows = self._read([key for table in tables for key in sources.files[table]], pa.schema(list(fields.values())))
        kind = layout.gold_kind(tables[0])
        before, after = (layout.silver if kind is None else layout.pattern_of(kind)).split("{name}")
        routing = F.regexp_extract(F.col(FOLDER), f"^{before}(.*){after}$", 1)
        return rows.select(routing.alias(TABLE), *(F.col(in_backticks(one)) for one in fields))
