"""The gold Delta tables: merges, and what they have already. The only writer of them.

Each commit carries the transaction (lake id + "/gold", last unit folded): a table so knows where it is.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_app import failpoints
from spark_app.driver.opened import OpenLake
from spark_app.gold.definition import FOLDED, Definition
from spark_app.gold.fold import can_fold, fold
from spark_app.ops.events import log
from spark_app.store.delta_log import SEQUENCE
from spark_app.store.maintain import tidy
from spark_app.store.tables import Tables, writer_properties

MOST_NAMED = 20
SMALL_BYTES = 8 << 20  # of a table that is folded in memory: a merge costs four times as much
CLEAN_EVERY = 20  # versions of a table between clean-ups


class GoldTables:
    """The gold tables of a lake, by routing name. Different ones may be written side by side."""

    def __init__(self, opened: OpenLake, definition: Definition):
        lake, settings = opened.lake, opened.settings
        self._definition = definition
        self._layout = settings.tables.layout
        self._app = f"{lake.identity()}/gold"
        self._handles = Tables(lake, settings.lake)
        self._writer = writer_properties(settings.lake)
        self._synced = opened.committer.synced
        # All, at first: what a killed process folded is in the tables, but maybe not on the disk.
        self._unsynced = {name for name in lake.tables() if self._layout.is_gold(name)}

    def get(self, name: str) -> DeltaTable | None:
        """The table's handle, or None when there is no such table yet."""
        return self._handles.get(self._layout.gold_of(name))

    def cursor(self, name: str) -> int:
        """The last unit that is in the table; 0 when there is none."""
        table = self.get(name)
        return (table.transaction_version(self._app) or 0) if table else 0

    def sync(self, folded: int) -> None:
        """Make what was written durable, and with it the last unit that all tables have."""
        self._synced.sync(self._unsynced, folded=folded)
        self._unsynced.clear()

    def merge(self, name: str, part: pa.Table, upto: int) -> int:
        """Fold a row per key into the table, or let it take the row's place where it cannot be folded; returns the
        rows that the table has then."""
        table = self.get(name)
        if table is None:
            return self.replace(name, part, upto)
        gold = self._layout.gold_of(name)
        self._unsynced.add(gold)
        try:
            self._fold(gold, table, part, upto)
            table.update_incremental()
            self._clean(gold, table)
            return _sum(table, "num_records")
        except Exception:
            self._handles.forget(gold)  # it may have been committed: a stale handle must not be used again
            raise

    def _fold(self, gold: str, table: DeltaTable, part: pa.Table, upto: int) -> None:
        columns = pa.schema(table.schema().to_arrow())
        if _sum(table, "size_bytes") <= SMALL_BYTES and can_fold(columns, part.schema):
            rows = fold(_read(self._handles.files(gold), columns), part, self._definition)
            with failpoints.around("gold.merge"):
                write_deltalake(
                    table,
                    rows,
                    mode="overwrite",
                    writer_properties=self._writer,
                    commit_properties=self._transaction(upto),
                )
        else:
            key = _quoted(self._definition.key)
            merge = table.merge(
                part,
                f"t.{key} IS NOT DISTINCT FROM s.{key}",
                source_alias="s",
                target_alias="t",
                writer_properties=self._writer,
                commit_properties=self._transaction(upto),
            )
            with failpoints.around("gold.merge"):
                merge.when_matched_update(_updates(self._definition)).when_not_matched_insert_all().execute()

    def replace(self, name: str, part: pa.Table, upto: int) -> int:
        """Write the whole table anew; returns its rows."""
        gold = self._layout.gold_of(name)
        self._unsynced.add(gold)
        if self._handles.get(gold) is None:
            self._synced.forget(gold)
        with failpoints.around("gold.replace"):
            write_deltalake(
                self._handles.uri(gold),
                part,
                mode="overwrite",
                schema_mode="overwrite",
                configuration=self._handles.configuration,
                writer_properties=self._writer,
                commit_properties=self._transaction(upto),
            )
        self._handles.forget(gold)
        return int(part.num_rows)

    def compare(self, name: str, part: pa.Table) -> dict[str, Any]:
        """The table with what it should be: {"rows": of `part`, "differing": keys with another row, or with one too
        many or too few, "named": some of them}."""
        table = self.get(name)
        if table is not None:
            table.update_incremental()
        key = self._definition.key
        new = {row[key]: row for row in part.to_pylist()}
        old = {row[key]: row for row in table.to_pyarrow_table().to_pylist()} if table else {}
        wrong = [k for k in new.keys() | old.keys() if not _same(new.get(k), old.get(k))]
        return {"rows": part.num_rows, "differing": len(wrong), "named": sorted(map(str, wrong))[:MOST_NAMED]}

    def _transaction(self, upto: int) -> CommitProperties:
        return CommitProperties(custom_metadata={SEQUENCE: upto}, app_transactions=[Transaction(self._app, upto)])

    def _clean(self, gold: str, table: DeltaTable) -> None:
        """A merge rewrites the files it touches: remove the old ones and old log entries now and then."""
        if table.version() % CLEAN_EVERY == 0:
            tidy(gold, table, self._synced)
            log.debug("gold cleaned", table=gold)


def _sum(table: DeltaTable, what: str) -> int:
    """Over the table's files."""
    return int(sum(table.get_add_actions()[what].to_pylist()))


def _read(files: list[str], columns: pa.Schema) -> pa.Table:
    """A small table. Delta's own reader costs eight times as much."""
    parts = [pq.ParquetFile(path).read(use_threads=False).select(columns.names).cast(columns) for path in files]
    return pa.concat_tables(parts) if parts else columns.empty_table()


def _updates(definition: Definition) -> dict[str, str]:
    """Column -> the SQL that folds the new value into the old one."""
    updates = {}
    for name, aggregate in definition.aggregates.items():
        column = _quoted(name)
        how = FOLDED[aggregate.function] if definition.foldable else None
        if how is None:
            updates[column] = f"s.{column}"
        elif how == "+":
            updates[column] = f"coalesce(t.{column} + s.{column}, t.{column}, s.{column})"
        else:
            updates[column] = f"{how}(t.{column}, s.{column})"
    return updates


def _same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Floating-point sums depend on the order of the rows; all else must be equal."""
    if one is None or other is None or one.keys() != other.keys():
        return False
    return all(
        math.isclose(value, other[name], rel_tol=1e-9)
        if isinstance(value, float) and isinstance(other[name], float)
        else value == other[name]
        for name, value in one.items()
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
