"""Reads and writes the gold Delta tables; no other module writes to them.

Each commit has the Delta transaction (lake id + "/gold", last merged unit), which records the units that a table
includes.

The reasons: docs/decisions/gold.md.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from spark_app.followers.gold.merging import INTEGER, WIDE_SUM, beyond_64_bits, can_fold, codes_of, fold, values_of
from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.log import SEQUENCE
from spark_app.lake.delta.maintenance import vacuum_and_clean_log
from spark_app.lake.delta.table_handles import Tables, writer_properties
from spark_app.lake.delta.table_schema import columns_of, table_comment, with_comments
from spark_app.lake.files import failpoints
from spark_app.model.gold_functions import STATE
from spark_app.model.log import log
from spark_app.model.reports import FileEntry
from spark_app.model.text import quoted
from spark_app.units.driver.open_lake import OpenLake

MOST_NAMED = 20
SMALL_BYTES = 8 << 20  # up to this size a table is merged in memory: Delta's MERGE costs four times as much
CLEAN_EVERY = 20  # versions of a table between clean-ups
GONE = "_protolake_gone"
CLOSE = 1e-9  # relative: floating-point sums depend on the order of the rows


@dataclass(frozen=True)
class Content:
    """The files and columns of one version of a gold table.

    Attributes:
        paths: the files, relative to the table's folder.
        size: bytes of the files.
        upto: the last unit in the files.
    """

    version: int
    columns: pa.Schema
    paths: list[str]
    size: int
    upto: int


class GoldTables:
    """The gold tables of a lake, by routing name. Different tables may be written in parallel."""

    def __init__(self, opened: OpenLake, spec: GoldSpec, table: str = ""):
        """`table`: the only one, whatever the routing name; "" = those of the spec's kind."""
        lake, settings = opened.lake, opened.settings
        self._spec = spec
        of_kind = partial(settings.layout.gold_of, kind=spec.kind)
        self._gold_of: Callable[[str], str] = (lambda name: table) if table else of_kind
        self._app = f"{lake.identity()}/gold"
        self._handles = Tables(lake, settings.lake)
        self._settings = settings.lake
        self._synced = opened.units.committer.synced
        self._known: dict[str, Content] = {}  # of the tables that nobody but `_overwrite` has written to since
        # All, at first: what a killed process folded is in the tables, but maybe not on the disk.
        if table:
            self._unsynced = {table} if lake.has_table(table) else set()
        else:
            self._unsynced = {name for name in lake.tables() if settings.layout.gold_kind(name) == spec.kind}

    def get(self, name: str) -> DeltaTable | None:
        """The table's handle; None if there is no such table yet."""
        return self._handles.get(self._gold_of(name))

    def is_there(self, name: str) -> bool:
        """Whether the table exists."""
        return self._content(name) is not None or self.get(name) is not None

    def cursor(self, name: str) -> int:
        """The last unit that the table includes; 0 if there is none."""
        content = self._content(name)
        if content is not None:
            return content.upto
        table = self.get(name)
        return (table.transaction_version(self._app) or 0) if table else 0

    def version(self, name: str) -> int:
        """The newest version of the table."""
        return self._handles.version(self._gold_of(name)) or 0

    def sync(self) -> None:
        """Make all written tables durable."""
        if self._unsynced:
            self._synced.sync(self._unsynced)
            self._unsynced.clear()

    def merge(self, name: str, part: pa.Table, upto: int) -> int:
        """Merge one row per key into the table, or replace the key's row if the spec is not incremental.

        Returns:
            The number of rows of the table.

        Raises:
            DeltaError, pa.ArrowException: the table could not be written.
        """
        gold = self._gold_of(name)
        content = self._content(name) or self._look(name)
        if content is None:
            return self.replace(name, part, upto)
        self._unsynced.add(gold)
        try:
            if content.size <= SMALL_BYTES and can_fold(content.columns, part.schema):
                return self._fold(gold, content, part, upto)
            return self._fold_large(gold, part, upto)
        except Exception:
            self._forget(gold)  # the commit may exist: a stale handle must not be used again
            raise

    def _content(self, name: str) -> Content | None:
        """The cached content of the table; None if there is none, or if its log has a newer version."""
        gold = self._gold_of(name)
        content = self._known.get(gold)
        if content is not None and not self._handles.ends_with(gold, content.version):
            self._forget(gold)
            return None
        return content

    def _look(self, name: str) -> Content | None:
        """Read the content from the table; None if there is no such table yet."""
        table = self.get(name)
        if table is None:
            return None
        paths = list(map(str, table.get_add_actions()["path"].to_pylist()))
        upto = table.transaction_version(self._app) or 0
        return Content(table.version(), columns_of(table), paths, _sum(table, "size_bytes"), upto)

    def _fold_large(self, gold: str, part: pa.Table, upto: int) -> int:
        table = self._current(gold)
        columns = columns_of(table)
        gone = columns.empty_table()
        if self._spec.gap_s:
            old = self._touched_rows(gold, columns, part)
            both = old, part.cast(_as(columns, part))
            found, new = codes_of(both, self._spec.group)
            of_key, touched = codes_of(both, self._spec.touched)
            is_touched = pc.is_valid(pc.index_in(of_key, value_set=touched))
            gone = old.filter(pc.and_(is_touched, pc.is_null(pc.index_in(found, value_set=new))))
        self._merge(table, columns, part, gone, upto)
        table.update_incremental()
        if table.version() % CLEAN_EVERY == 0:
            self._clean(gold)
        return _sum(table, "num_records")

    def _fold(self, gold: str, content: Content, part: pa.Table, upto: int) -> int:
        keys = [f"{gold}/{path}" for path in content.paths]
        rows = fold(self._read(keys, content.columns), part, self._spec)
        self._warn_wide_sums(gold, content.columns, rows)
        self._overwrite(gold, content, rows, upto)
        return int(rows.num_rows)

    def _overwrite(self, gold: str, content: Content, rows: pa.Table, upto: int) -> None:
        """Replace the rows. The file and the log entry are written directly: delta-rs takes four times as long. `sync`
        makes both durable."""
        demanding = gold not in self._known and delta_log.unsupported_features(self._handles.handle(gold))
        if demanding or rows.schema.types != content.columns.types:
            self._rewrite(gold, rows, upto)
            return
        entry = self._write(gold, rows)
        with failpoints.around("gold.merge"), self._or_nothing(gold, [entry]):
            version = self._handles.replace_rows(gold, [entry], content.paths, upto, self._app)
        self._known[gold] = Content(version, content.columns, [entry.path], entry.size, upto)
        self._tidy(gold, version)

    def _write(self, gold: str, rows: pa.Table) -> FileEntry:
        name = f"folded-{uuid.uuid4().hex}.parquet"
        return files.write_file(self._handles.storage, gold, name, rows, self._settings.compression, durable=False)

    @contextlib.contextmanager
    def _or_nothing(self, gold: str, entries: Sequence[FileEntry]) -> Iterator[None]:
        """Remove the data files if another process has written the log entry. After any other error they stay, because
        the log entry may exist.

        Raises:
            DeltaError: another process changed or removed the table.
        """
        try:
            yield
        except (FileExistsError, FileNotFoundError) as error:
            self._handles.storage.delete(*(f"{gold}/{entry.path}" for entry in entries))
            raise DeltaError(f"another writer has changed or removed the table ({error})") from None

    def _rewrite(self, gold: str, rows: pa.Table, upto: int) -> None:
        """Replace the rows through delta-rs, also with other column types."""
        table = self._current(gold)
        with failpoints.around("gold.merge"):
            write_deltalake(
                table,
                self._commented(rows),
                mode="overwrite",
                schema_mode="overwrite",
                writer_properties=writer_properties(self._settings, rows.schema),
                commit_properties=self._transaction(upto),
            )
        table.update_incremental()

    def _touched_rows(self, gold: str, columns: pa.Schema, part: pa.Table) -> pa.Table:
        """The rows of the table with a first key of `part`, and maybe others."""
        files_of_table, storage = self._handles.files(gold), self._handles.storage.arrow()
        rows = ds.dataset(files_of_table, schema=_as(columns, part), format="parquet", filesystem=storage)
        keys = {name: part[name].cast(columns.field(name).type).unique() for name in self._spec.key[:1]}
        # Without a filter: the files of delta-rs have string_view, with whose bounds Arrow cannot compare a string.
        found = [rows.schema.empty_table()]
        for batch in rows.to_batches():
            for name, values in keys.items():
                batch = batch.filter(pc.is_in(batch[name], value_set=values))
            found.append(pa.Table.from_batches([batch]))
        return pa.concat_tables(found).select(columns.names).cast(columns)

    def _merge(self, table: DeltaTable, columns: pa.Schema, part: pa.Table, gone: pa.Table, upto: int) -> None:
        """Merge with Delta's MERGE, which also removes the rows that are `gone`.

        Raises:
            DeltaError, pa.ArrowInvalid: a sum exceeds its column, or the table could not be written.
        """
        keys = (f"(t.{key} IS NOT DISTINCT FROM s.{key})" for key in map(quoted, self._spec.group))
        rows = part.cast(_as(columns, part))
        if len(gone):
            marks = [pa.array(np.full(len(one), one is gone)) for one in (rows, gone)]
            several = (rows.append_column(GONE, marks[0]), gone.select(rows.column_names).append_column(GONE, marks[1]))
            rows = pa.concat_tables(several)
        merge = table.merge(
            rows,
            " AND ".join(keys) or "true",
            source_alias="s",
            target_alias="t",
            writer_properties=writer_properties(self._settings, columns),
            commit_properties=self._transaction(upto),
        )
        with failpoints.around("gold.merge"):
            if len(gone):
                merge = merge.when_matched_delete(f"s.{GONE}")
            inserts = {quoted(name): f"s.{quoted(name)}" for name in part.column_names}
            merge.when_matched_update(_updates(self._spec, columns)).when_not_matched_insert(inserts).execute()

    def replace(self, name: str, part: pa.Table, upto: int) -> int:
        """Replace all rows of the table, or create it; returns its number of rows."""
        gold = self._gold_of(name)
        self._unsynced.add(gold)
        table = self._handles.get(gold)
        self._warn_wide_sums(gold, columns_of(table) if table else pa.schema([]), part)
        if table is None:
            columns = pa.schema(Schema.from_arrow(part.schema).to_arrow())
            entry = self._write(gold, part.cast(columns))
            self._begin(gold, columns, [entry], upto)
            self._known[gold] = Content(0, columns, [entry.path], entry.size, upto)
            return int(part.num_rows)
        with failpoints.around("gold.replace"):
            write_deltalake(
                self._handles.uri(gold),
                self._commented(part),
                mode="overwrite",
                schema_mode="overwrite",
                configuration=self._handles.configuration,
                writer_properties=writer_properties(self._settings, part.schema),
                commit_properties=self._transaction(upto),
                storage_options=self._handles.storage.delta_options,
            )
        self._forget(gold)
        return int(part.num_rows)

    def _begin(self, gold: str, columns: pa.Schema, entries: Sequence[FileEntry], upto: int) -> None:
        self._synced.forget(gold)
        with failpoints.around("gold.replace"), self._or_nothing(gold, entries):
            self._handles.begin_by_rows(gold, columns, entries, [(self._app, upto)], self._spec.comments())

    def replace_by_files(self, name: str, columns: pa.Schema, entries: Sequence[FileEntry], upto: int) -> int:
        """As `replace`, for files in the table's folder, in one commit."""
        gold, comments = self._gold_of(name), self._spec.comments()
        columns = pa.schema(Schema.from_arrow(columns).to_arrow())
        self._begin_write(gold)
        table = self._handles.get(gold)
        if table is None:
            self._begin(gold, columns, entries, upto)
        else:
            before = table.metadata().description
            is_same = columns == columns_of(table) and before == table_comment(before, comments)
            paths, changed = table.get_add_actions()["path"].to_pylist(), None if is_same else columns
            with failpoints.around("gold.replace"), self._or_nothing(gold, entries):
                version = self._handles.replace_rows(gold, entries, paths, upto, self._app, changed, comments)
            self._tidy(gold, version)
        return sum(entry.rows for entry in entries)

    def append_files(self, name: str, entries: Sequence[FileEntry], upto: int) -> int:
        """Add files in the table's folder to an existing table; returns its number of rows."""
        gold = self._gold_of(name)
        self._begin_write(gold)
        self._current(gold)
        with failpoints.around("gold.merge"), self._or_nothing(gold, entries):
            version = self._handles.commit_rows(gold, entries, [], [(self._app, upto)])
        if version % CLEAN_EVERY == 0:
            table, how = self._current(gold), CommitProperties(max_commit_retries=0)
            self._handles.lake.lease.check()
            with failpoints.around("gold.merge"):
                table.optimize.compact(
                    writer_properties=writer_properties(self._settings, columns_of(table)), commit_properties=how
                )
        self._tidy(gold, version)
        return _sum(self._current(gold), "num_records")

    def _begin_write(self, gold: str) -> None:
        self._unsynced.add(gold)
        self._known.pop(gold, None)

    def _tidy(self, gold: str, version: int) -> None:
        self._handles.checkpoint_if_due(gold, version)
        if version % CLEAN_EVERY == 0:
            self._clean(gold)

    def compare(self, name: str, part: pa.Table) -> dict[str, Any]:
        """Compare the exact columns with the expected rows: {"rows": number of these, "differing": number of keys whose
        row differs, is missing, is doubled or should not exist, "named": some of these keys}."""
        table = self.get(name)
        if table is not None:
            table.update_incremental()
        found = None if table is None else self._read(self._handles.files(self._gold_of(name)), columns_of(table))
        part, found = (one if one is None else one.drop_columns(self._inexact(one)) for one in (part, found))
        wrong = differing_keys(part.slice(0, 0) if found is None else found, part, self._spec.group)
        return {"rows": part.num_rows, "differing": len(wrong), "named": sorted(map(str, wrong))[:MOST_NAMED]}

    def _inexact(self, rows: pa.Table) -> list[str]:
        """The columns of sketches and of their values, which depend on the order of the rows."""
        inexact = {name for one in self._spec.sketched for name in (one, STATE + one)}
        return [name for name in rows.column_names if name in inexact]

    def files_of(self, name: str) -> list[str]:
        """The keys of the table's files."""
        gold, content = self._gold_of(name), self._content(name)
        return [f"{gold}/{path}" for path in content.paths] if content else self._handles.files(gold)

    def _read(self, keys: list[str], columns: pa.Schema) -> pa.Table:
        """Read a small table. delta-rs's reader costs eight times as much."""
        found = (pq.ParquetFile(self._handles.storage.open_input(key)) for key in keys)
        parts = [file.read(use_threads=False).select(columns.names).cast(columns) for file in found]
        return pa.concat_tables(parts) if parts else columns.empty_table()

    def _warn_wide_sums(self, gold: str, before: pa.Schema, rows: pa.Table) -> None:
        """Warn once per column that becomes `WIDE_SUM`: its type changes for the readers of the table."""
        for name, keys in beyond_64_bits(rows, self._spec.group).items():
            if name not in before.names or before.field(name).type != WIDE_SUM:
                words = "sums exceed 64 bits: the column type changes to DECIMAL(38,0)"
                log.warning(words, table=gold, column=name, keys=len(keys), named=keys[:MOST_NAMED])

    def _commented(self, rows: pa.Table) -> pa.Table:
        """The rows with the comments of their columns: an overwrite also replaces the schema of the table."""
        return rows.cast(with_comments(rows.schema, self._spec.comments().own))

    def _transaction(self, upto: int) -> CommitProperties:
        """The properties of the next commit. It is made for one version: delta-rs would otherwise try the next ones,
        although a process that has the lease by now may have removed the files.

        Raises:
            LeaseLost: another process has acquired the lease.
        """
        self._handles.lake.lease.check()
        transactions = [Transaction(self._app, upto)]
        return CommitProperties({SEQUENCE: upto}, max_commit_retries=0, app_transactions=transactions)

    def _clean(self, gold: str) -> None:
        """Remove replaced files and old log entries. Each write leaves the files that it replaces."""
        vacuum_and_clean_log(self._handles.lake, gold, self._current(gold), self._synced)
        log.debug("old files of gold removed", table=gold)

    def _current(self, gold: str) -> DeltaTable:
        """The table's handle, to write through delta-rs. It invalidates the cached content.

        Raises:
            DeltaError: the table was removed.
        """
        self._known.pop(gold, None)
        table = self._handles.get(gold)
        if table is None:
            raise DeltaError(f"table {gold} was removed")
        return table

    def _forget(self, gold: str) -> None:
        self._known.pop(gold, None)
        self._handles.forget(gold)


def _sum(table: DeltaTable, what: str) -> int:
    """The sum of a statistic over the table's files."""
    return int(sum(table.get_add_actions()[what].to_pylist()))


def _updates(spec: GoldSpec, columns: pa.Schema) -> dict[str, str]:
    """Column -> the SQL that merges the new value (`s`) into the old one (`t`)."""
    updates = {}
    for name in spec.all_columns[len(spec.group) :]:
        column, how = quoted(name), spec.merge_of(name)
        if how is None:
            updates[column] = f"s.{column}"
        elif how == "+":
            total = _checked_sum(column) if columns.field(name).type == INTEGER else f"t.{column} + s.{column}"
            updates[column] = f"coalesce({total}, t.{column}, s.{column})"
        else:
            updates[column] = f"{how}(t.{column}, s.{column})"
    return updates


def _as(columns: pa.Schema, rows: pa.Table) -> pa.Schema:
    return pa.schema([columns.field(name) for name in rows.column_names])


def _checked_sum(column: str) -> str:
    """SQL of a sum that fails on overflow: integers wrap around silently, the cast of a too large decimal fails."""
    wide = (f"CAST({table}.{column} AS DECIMAL(38, 0))" for table in "ts")
    return f"CAST({' + '.join(wide)} AS BIGINT)"


def differing_keys(found: pa.Table, due: pa.Table, key: Sequence[str]) -> list[Any]:
    """Keys whose row differs, is missing, is doubled or should not exist. NaN equals NaN."""
    if any(name not in found.column_names or found[name].type != due[name].type for name in key):
        return values_of(due, key)  # no row can be compared
    old, new = codes_of((found, due), key)
    counted = old.value_counts()
    often = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    doubled = found.filter(pc.is_in(old, value_set=often))
    strange = found.filter(pc.is_null(pc.index_in(old, value_set=new)))
    at = pc.index_in(new, value_set=old)
    same = np.asarray(at.is_valid()) & _same_rows(found.take(at), due)
    wrong = due.filter(pa.array(~same))
    return list(dict.fromkeys(value for rows in (wrong, strange, doubled) for value in values_of(rows, key)))


def _same_rows(found: pa.Table, due: pa.Table) -> np.ndarray:
    """For each row of `due` whether the row of `found` at the same position is equal."""
    if set(found.column_names) != set(due.column_names):
        return np.zeros(due.num_rows, bool)
    same: np.ndarray = np.logical_and.reduce([_same(found[name], due[name]) for name in due.column_names])
    return same


def _same(found: pa.ChunkedArray, due: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_nested(due.type):
        return np.array([one == other for one, other in zip(found.to_pylist(), due.to_pylist(), strict=True)], bool)
    neither = pc.and_(found.is_null(), due.is_null())
    try:
        equal = _close(found, due) if _is_floating(found, due) else pc.equal(found, due)
    except pa.ArrowException:  # the types cannot be compared
        equal = pa.scalar(False)
    same: np.ndarray = np.broadcast_to(np.asarray(pc.or_(neither, pc.fill_null(equal, False))), len(due))
    return same


def _is_floating(found: pa.ChunkedArray, due: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_floating(found.type) or pa.types.is_floating(due.type))


def _close(found: pa.ChunkedArray, due: pa.ChunkedArray) -> pa.Array:
    one, other = (column.cast(pa.float64()).to_numpy() for column in (found, due))  # NULL is NaN here
    valid = pc.and_(found.is_valid(), due.is_valid())
    return pc.and_(valid, pa.array(np.isclose(one, other, rtol=CLOSE, atol=0.0, equal_nan=True)))
