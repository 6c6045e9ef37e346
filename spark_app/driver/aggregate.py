"""Gold: what is new in silver, folded into one row per key and table.

The manifests since the last run name the new silver files. One Spark job folds them for all tables; then one merge per
touched table, side by side, with the last manifest folded as its transaction, so that a crash between two merges is
seen by the next run. `count`, `sum`, `min` and `max` are folded; tables with any other function have the touched keys
recomputed; a changed definition or a missing file recomputes the table. A silver table without the key has no gold; a
field that does not suit its function in one table (a sum over text that is no number) is NULL there.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app import failpoints
from spark_app.config import Aggregate
from spark_app.driver.opened import OpenLake
from spark_app.errors import ContractError
from spark_app.lake import read_json, write_durably
from spark_app.ops.events import log
from spark_app.store.commit import THREADS, Tables, writer_properties
from spark_app.store.delta_log import SEQUENCE
from spark_app.store.maintain import tidy
from spark_app.worker.tables import split_by_value

TABLE = "_protolake_table"
FUNCTIONS: dict[str, Callable[[Column], Column]] = {
    "count": F.count,
    "sum": F.sum,
    "min": F.min,
    "max": F.max,
    "mean": F.mean,
    "distinct": F.countDistinct,
    "median": F.median,
}
OF_NUMBERS, OF_ORDER = ("sum", "mean", "median"), ("min", "max")
FOLDED = {"count": "+", "sum": "+", "min": "least", "max": "greatest"}
MOST_NAMED = 20
SYNC_EVERY_S = 30.0
CLEAN_EVERY = 20  # versions of a table between clean-ups


@dataclass
class Work:
    """What one run has to do. Paths are absolute.

    Attributes:
        fields: routing name -> key and aggregated fields of the table.
        definitions: routing name -> digest of how its gold is made.
        rebuilt: routing names whose silver a rebuild has added to.
    """

    upto: int
    fields: dict[str, pa.Schema]
    definitions: dict[str, str]
    fold: dict[str, list[str]] = field(default_factory=dict)  # routing name -> new silver files
    whole: dict[str, list[str]] = field(default_factory=dict)  # routing name -> all silver files, recompute everything
    rows: dict[str, list[str]] = field(default_factory=dict)  # of `fold`: all silver files, to recompute touched keys
    rebuilt: set[str] = field(default_factory=set)


class Aggregator:
    """Keeps the gold tables; the only writer of them."""

    def __init__(self, session: SparkSession, opened: OpenLake, between_units: AbstractContextManager[object]):
        lake, settings = opened.lake, opened.settings
        self._session = session
        self._opened = opened
        self._lake = lake
        self._settings = settings
        self._layout = settings.tables.layout
        self._manifests = opened.manifests
        self._between_units = between_units
        self._app = f"{lake.identity()}/gold"
        self._gold = Tables(lake, settings.lake)
        self._writer = writer_properties(settings.lake)
        self._synced = opened.committer.synced
        self._folded = self._synced.folded
        # All, at first: what a killed process folded is in the tables, but maybe not on the disk.
        self._unsynced = {name for name in lake.tables() if self._layout.is_gold(name)}
        self._next_sync = time.monotonic() + SYNC_EVERY_S
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gold")
        self._running = threading.Lock()  # `run` and `renew` must not meet
        self._aggregates = settings.gold.columns
        self._foldable = all(a.function in FOLDED for a in self._aggregates.values())

    def _names(self) -> set[str]:
        return set(self._opened.tables.admitted.values())

    def folded(self) -> int:
        """The last manifest that is in every gold table."""
        return self._folded

    def close(self) -> None:
        """Make gold durable; the next start then has nothing to fold again."""
        with self._running:
            self._sync()

    def _sync(self) -> None:
        self._synced.sync(self._unsynced, folded=self._folded)
        self._unsynced.clear()
        self._next_sync = time.monotonic() + SYNC_EVERY_S

    def run(self) -> dict[str, int]:
        """Bring gold up to the last finished unit; returns rows of each touched gold table."""
        with self._running:
            return self._run()

    def renew(self, names: set[str], dry_run: bool) -> dict[str, dict[str, Any]]:
        """Compute gold of the routing names from silver; returns per gold table what differed and was replaced.

        {"rows": computed, "differing": keys with another row, or with one too many or too few, "named": some of them}

        What is only behind does not differ: new files are folded first, but for tables that are gone, or whose silver
        was rebuilt.
        """
        with self._running:
            with self._between_units:
                work = self._plan_now()
                if work is None:
                    raise ContractError("a decided unit is not finished yet: ask again")
                files = {name: self._snapshot(name) for name in work.fields if name in names}
            first = {name for name in files if self._gold.get(self._layout.gold_of(name)) is None}
            first |= set() if dry_run else work.rebuilt & files.keys()
            found = self._check({name: files.pop(name) for name in first}, work, replace=not dry_run)
            for name in first:
                work.whole.pop(name, None)
            self._carry_out(work)
            return found | self._check(files, work, replace=not dry_run)

    def _check(self, files: dict[str, list[str]], work: Work, replace: bool) -> dict[str, dict[str, Any]]:
        """Compare gold with what the silver files say. Tables whose silver was rebuilt are replaced in any case: their
        transaction has to move on."""
        found = {}
        for name, part in self._compute(files, work.fields).items():
            found[self._layout.gold_of(name)] = difference = self._compare(name, part)
            if replace and (difference["differing"] or name in work.rebuilt):
                self._replace(name, part, work.upto)
        return found

    def _compare(self, name: str, part: pa.Table) -> dict[str, Any]:
        table = self._gold.get(self._layout.gold_of(name))
        if table is not None:
            table.update_incremental()
        key = self._settings.event.key
        new = {row[key]: row for row in part.to_pylist()}
        old = {row[key]: row for row in table.to_pyarrow_table().to_pylist()} if table else {}
        wrong = [k for k in new.keys() | old.keys() if not _same(new.get(k), old.get(k))]
        named = sorted(map(str, wrong))[:MOST_NAMED]
        return {"rows": part.num_rows, "differing": len(wrong), "named": named}

    def _run(self) -> dict[str, int]:
        with self._between_units:
            work = self._plan_now()
        return {} if work is None else self._carry_out(work)

    def _carry_out(self, work: Work) -> dict[str, int]:
        if not work.fold and not work.whole:
            return self._finish(work)
        parts = self._compute(work.fold, work.fields) if self._foldable else self._recompute_keys(work)
        whole = self._compute(work.whole, work.fields)
        jobs = [self._pool.submit(self._merge, name, part, work.upto) for name, part in parts.items()]
        jobs += [self._pool.submit(self._replace, name, part, work.upto) for name, part in whole.items()]
        wait(jobs)  # all, or one that failed would let the next run fold the same files beside those that go on
        for job in jobs:
            job.result()
        return self._finish(work, {*parts, *whole})

    def _finish(self, work: Work, touched: set[str] | None = None) -> dict[str, int]:
        self._folded = max(work.upto, self._folded)
        changed = self._definitions() != work.definitions
        if changed or (self._folded > self._synced.folded and time.monotonic() > self._next_sync):
            self._sync()
        if changed:
            self._define(work.definitions)
        return {name: self._rows(name) for name in touched or ()}

    def _definitions(self) -> dict[str, str]:
        """Those of the gold tables as they are."""
        stored = read_json(self._lake.gold)  # without it all gold is computed anew
        return stored if isinstance(stored, dict) else {}

    def _define(self, definitions: dict[str, str]) -> None:
        write_durably(self._lake.gold, json.dumps(definitions), "gold.state")

    def _definition(self, fields: pa.Schema) -> str:
        """Of the settings and the types of the fields, for a field may have no version yet that knows its type."""
        event = self._settings.event
        declared = {name: aggregate.model_dump() for name, aggregate in self._aggregates.items()}
        return hashlib.sha256(json.dumps([event.key, event.time, declared, str(fields)]).encode()).hexdigest()

    def _plan_now(self) -> Work | None:
        """Called between two units, so that the manifests and the snapshots of silver say the same; None when they do
        not."""
        if self._manifests.finished() < self._manifests.last:
            return None  # a commit failed: some tables are ahead of the others until it is made again
        fields = self._all_fields(self._names())
        work = Work(self._manifests.finished(), fields, {n: self._definition(f) for n, f in fields.items()})
        known = self._definitions()
        same = {name: digest for name, digest in work.definitions.items() if known.get(name) == digest}
        same = {name: digest for name, digest in same.items() if self._has_gold(name) or not self._snapshot(name)}
        if len(same) < len(fields):
            self._define(same)  # some tables will be ahead
            work.whole = {name: self._snapshot(name) for name in fields if name not in same}
        new, work.rebuilt = self._new_files(work.upto, set(same))
        for name, files in new.items():
            if self._has_gold(name) and name not in work.rebuilt and all(self._lake.exists(path) for path in files):
                work.fold[name] = files
            else:
                work.whole[name] = self._snapshot(name)
        if not self._foldable:
            work.rows = {name: self._snapshot(name) for name in work.fold}
        return work

    def _new_files(self, upto: int, of: set[str]) -> tuple[dict[str, list[str]], set[str]]:
        """Silver files that are not yet in their gold table, by routing name; and the names that a rebuild touched,
        whose gold may have rows of these files already: silver was removed, gold was not."""
        names = {self._layout.silver_of(name): name for name in of}
        files: dict[str, list[str]] = {}
        rebuilt = set()
        for manifest in self._manifests.since(self._folded):
            for table, change in manifest.tables.items():
                name = names.get(table)
                if name is not None and manifest.sequence <= upto and manifest.sequence > self._cursor(name):
                    files.setdefault(name, []).extend(f"{self._lake.table(table)}/{f.path}" for f in change.adds)
                    rebuilt |= {name} if manifest.kind == "rebuild" else set()
        return files, rebuilt

    def _cursor(self, name: str) -> int:
        table = self._gold.get(self._layout.gold_of(name))
        return (table.transaction_version(self._app) or 0) if table else 0

    def _has_gold(self, name: str) -> bool:
        return self._gold.get(self._layout.gold_of(name)) is not None

    def _exists(self, name: str) -> bool:
        return (self._lake.table(self._layout.silver_of(name)) / "_delta_log").is_dir()

    def _snapshot(self, name: str) -> list[str]:
        folder = self._lake.table(self._layout.silver_of(name))
        return [f"{folder}/{path}" for path in DeltaTable(str(folder)).get_add_actions()["path"].to_pylist()]

    def _compute(self, files: dict[str, list[str]], fields: dict[str, pa.Schema]) -> dict[str, pa.Table]:
        """Aggregates of the rows of the files, by routing name."""
        parts: dict[str, pa.Table] = {}
        for schema, names in _alike(files, fields):
            parts |= self._collect(self._read({name: files[name] for name in names}, schema))
        return parts

    def _recompute_keys(self, work: Work) -> dict[str, pa.Table]:
        """Aggregates over all rows of the keys that the new files touch."""
        key = self._settings.event.key
        parts: dict[str, pa.Table] = {}
        for schema, names in _alike(work.fold, work.fields):
            touched = self._read({name: work.fold[name] for name in names}, schema)
            touched = touched.select(F.col(key).alias("touched_key"), F.col(TABLE).alias("touched_table")).distinct()
            rows = self._read({name: work.rows[name] for name in names}, schema)
            same = (F.col(TABLE) == F.col("touched_table")) & F.col(key).eqNullSafe(F.col("touched_key"))
            parts |= self._collect(rows.join(touched, same, "left_semi"))
        return parts

    def _read(self, files: dict[str, list[str]], fields: pa.Schema) -> DataFrame:
        """The fields of all files in one DataFrame, with the routing name. Missing columns are NULL."""
        paths = [path for group in files.values() for path in group]
        rows = self._session.read.schema(from_arrow_schema(fields)).parquet(*paths)
        return rows.withColumn(TABLE, folder_of_row())

    def _all_fields(self, names: set[str]) -> dict[str, pa.Schema]:
        """Routing name -> `_fields`, of the silver tables that exist and have the key."""
        fields = {name: self._fields(name) for name in sorted(names) if self._exists(name)}
        return {name: found for name, found in fields.items() if self._settings.event.key in found.names}

    def _fields(self, name: str) -> pa.Schema:
        """Key and aggregated fields of a table, the key only if it has it; another that no version knows yet is taken
        for text."""
        columns = self._opened.tables.columns(name, self._opened.schemas.ledger.catalog().columns)
        wanted = {self._field(a) for a in self._aggregates.values()} - {""}
        wanted |= {self._settings.event.key} & set(columns.names)
        return pa.schema([columns.field(f) if f in columns.names else (f, pa.string()) for f in sorted(wanted)])

    def _collect(self, rows: DataFrame) -> dict[str, pa.Table]:
        key = self._settings.event.key
        columns = [self._column(rows, name, aggregate) for name, aggregate in self._aggregates.items()]
        result = rows.groupBy(TABLE, key).agg(*columns).toArrow()
        names = {self._layout.silver_of(name): name for name in self._names()}
        return {names[table]: rows for table, rows in split_by_value(result, TABLE)}

    def _field(self, aggregate: Aggregate) -> str:
        return aggregate.field or ("" if aggregate.function == "count" else self._settings.event.time)

    def _column(self, rows: DataFrame, name: str, aggregate: Aggregate) -> Column:
        field = self._field(aggregate)
        value = _suited(rows, field, aggregate.function) if field else F.lit(1)
        return FUNCTIONS[aggregate.function](value).alias(name)

    def _merge(self, name: str, part: pa.Table, upto: int) -> None:
        gold = self._layout.gold_of(name)
        table = self._gold.get(gold)
        if table is None:
            return self._replace(name, part, upto)
        self._unsynced.add(gold)
        key = _quoted(self._settings.event.key)
        merge = table.merge(
            part,
            f"t.{key} IS NOT DISTINCT FROM s.{key}",
            source_alias="s",
            target_alias="t",
            writer_properties=self._writer,
            commit_properties=self._transaction(upto),
        )
        try:
            with failpoints.around("gold.merge"):
                merge.when_matched_update(self._updates()).when_not_matched_insert_all().execute()
            table.update_incremental()
            self._clean(gold, table)
        except Exception:
            self._gold.forget(gold)  # it may have been committed: a stale handle must not be used again
            raise

    def _updates(self) -> dict[str, str]:
        """Column -> the SQL that folds the new value into the old one."""
        updates = {}
        for name, aggregate in self._aggregates.items():
            column = _quoted(name)
            how = FOLDED.get(aggregate.function) if self._foldable else None
            if how is None:
                updates[column] = f"s.{column}"
            elif how == "+":
                updates[column] = f"coalesce(t.{column} + s.{column}, t.{column}, s.{column})"
            else:
                updates[column] = f"{how}(t.{column}, s.{column})"
        return updates

    def _replace(self, name: str, part: pa.Table, upto: int) -> None:
        """Write the whole table anew."""
        gold = self._layout.gold_of(name)
        self._unsynced.add(gold)
        if self._gold.get(gold) is None:
            self._synced.forget(gold)
        with failpoints.around("gold.replace"):
            write_deltalake(
                self._gold.uri(gold),
                part,
                mode="overwrite",
                schema_mode="overwrite",
                configuration=self._gold.configuration,
                writer_properties=self._writer,
                commit_properties=self._transaction(upto),
            )
        self._gold.forget(gold)

    def _transaction(self, upto: int) -> CommitProperties:
        return CommitProperties(custom_metadata={SEQUENCE: upto}, app_transactions=[Transaction(self._app, upto)])

    def _clean(self, gold: str, table: DeltaTable) -> None:
        """A merge rewrites the files it touches: remove the old ones and old log entries now and then."""
        if table.version() % CLEAN_EVERY == 0:
            tidy(gold, table, self._synced)
            log.debug("gold cleaned", table=gold)

    def _rows(self, name: str) -> int:
        table = self._gold.get(self._layout.gold_of(name))
        return int(pc.sum(pa.array(table.get_add_actions()["num_records"].to_pylist())).as_py() or 0) if table else 0


def folder_of_row() -> Column:
    """The name of the folder, and so of the table, whose file a row is from. A regular expression costs far more."""
    return F.substring_index(F.substring_index(F.col("_metadata.file_path"), "/", -2), "/", 1)


def _suited(rows: DataFrame, field: str, function: str) -> Column:
    """The field as the function takes it, NULL where it cannot: each table has types of its own, and one that does not
    suit must not end the gold of all."""
    kind = rows.schema[field].dataType
    if function in OF_NUMBERS and isinstance(kind, T.StringType):
        return F.col(field).try_cast("double")
    if function in OF_NUMBERS and not isinstance(kind, T.NumericType):
        return F.lit(None).cast("double")
    if function in OF_ORDER and "map<" in kind.simpleString():
        return F.lit(None).cast("string")
    return F.col(field)


def _alike(names: Iterable[str], fields: dict[str, pa.Schema]) -> list[tuple[pa.Schema, list[str]]]:
    """The tables by their fields: one Spark job reads all that have the same."""
    found: dict[pa.Schema, list[str]] = {}
    for name in names:
        found.setdefault(fields[name], []).append(name)
    return list(found.items())


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
