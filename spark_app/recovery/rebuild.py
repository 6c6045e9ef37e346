"""Compares silver and gold with bronze, adds missing rows and lists rows that differ. Kafka is not used.

A rebuild works in chunks of bronze: a job writes into a scratch folder, its rows are compared with the tables, and
records that are in no table (silver, open quarantine, deferred) are added to the table where the job has them. Silver
is only appended to: rows that differ, are doubled or have no record in bronze are listed for a person.

The reasons: docs/decisions/replay.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.followers.gold.aggregate import Aggregator, renew_all
from spark_app.lake.delta.commit import schemas_of
from spark_app.lake.delta.merged_columns import merge_columns
from spark_app.model.causes import Cause
from spark_app.model.errors import ExitCode
from spark_app.model.log import log
from spark_app.model.record_schemas import COORDINATES, LINEAGE_COORDINATES
from spark_app.model.reports import FileEntry, Report, add_counts
from spark_app.recovery import classification
from spark_app.recovery.classification import (
    ACTUAL,
    DIFFERING,
    DOUBLED,
    EXPECTED,
    KEPT_OUT,
    MISSING,
    PHANTOM,
    PRESENT,
    REPLAYABLE,
    RESOLVED,
    Range,
    Silver,
)
from spark_app.recovery.replay import open_dropped, open_quarantine
from spark_app.recovery.requests import Request, key_of, load_progress, save_progress
from spark_app.recovery.scratch_projections import ScratchProjections
from spark_app.sources.bronze import ranges_of
from spark_app.units.driver.ingest import SizeBackoff
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze, read_rows, read_silver, read_table
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.worker.table_rows import count_values

MOST_NAMED = 20
MAX_EXTRA_ROWS = 1_000_000  # phantoms are counted up to this number
NAMED = (DIFFERING, DOUBLED, PHANTOM)
COLUMNS = ("expected", PRESENT, "added", *NAMED)


@dataclass
class Found:
    """The progress of a rebuild, in records. It is stored as JSON.

    Attributes:
        spans: [topic, topic id, partition, first, end] of bronze at the start of the request.
        at: [position in `spans`, offset] of the next record to compare.
        tables: table -> column of `COLUMNS` -> number of records.
        named: table -> the first identities that differ, are doubled or are phantoms.
        replayable: number of records that are open in quarantine but decode now.
        skipped: identities of records that make the job fail.
        closed: whether the rows outside the spans were checked.
    """

    spans: list[list[Any]] = field(default_factory=list)
    at: list[int] = field(default_factory=lambda: [0, 0])
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)
    replayable: int = 0
    skipped: list[str] = field(default_factory=list)
    closed: bool = False


class Rebuild:
    """One rebuild request. Call `step` between two units, with the unit lock."""

    def __init__(
        self, session: SparkSession, opened: OpenLake, units: UnitRunner, gold: Sequence[Aggregator], request: Request
    ):
        self._session = session
        self._opened = opened
        self._units = units
        self._gold = gold
        self._request = request
        self._layout = opened.settings.layout
        self._others = (self._layout.quarantine, self._layout.deferred)
        self._attempts = SizeBackoff(
            opened.lake.storage, key_of(request, "attempts"), opened.settings.batch.max_attempts
        )
        # A process that has lost the lease clears its own folder only.
        self._scratch_folder = f"{opened.lake.rebuild}/{request.id}-{opened.lake.lease.epoch}"
        self._scratch = opened.lake.storage.within(self._scratch_folder)
        stored = load_progress(opened.lake, opened.units.manifests, request)
        self._found = Found(**stored) if stored else None

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Execute one step: plan, compare one chunk, or check the rows outside the spans.

        Returns:
            (report of the added rows, {}); None if the request is done.

        Raises:
            UsageError: no table has a requested name.
        """
        if self._found is None:
            self._opened.admission.check_names(self._request.arguments.get("names", []))
            self._found = self._plan()
            return self._keep()
        if self._found.at[0] < len(self._found.spans):
            return self._compare_chunk()
        if not self._found.closed:
            self._find_extra_rows()
            self._found.closed = True
            return self._keep()
        return None

    def conclude(self) -> dict[str, Any]:
        """Recompute gold, then return the result. Call it without the unit lock, which the gold run acquires."""
        assert self._found is not None
        self._clear_scratch()
        gold = renew_all(self._gold, self._names(), dry_run=self._request.dry_run)
        wrong = any(table.get(what) for table in self._found.tables.values() for what in NAMED)
        return {
            "tables": {name: dict.fromkeys(COLUMNS, 0) | table for name, table in sorted(self._found.tables.items())},
            "named": self._found.named,
            "replayable": self._found.replayable,
            "skipped": self._found.skipped,
            "gold": gold,
            "exit_code": int(ExitCode.LOSS if wrong else ExitCode.DONE),
        }

    def _names(self) -> set[str]:
        """The routing names to rebuild: all, or those of the request."""
        admitted = set(self._opened.admission.admitted.values())
        requested = set(self._request.arguments.get("names", []))
        return admitted & requested if requested else admitted

    def _keep(self) -> tuple[Report, dict[str, int]]:
        assert self._found is not None
        save_progress(self._opened.lake, self._opened.units.manifests, self._request, asdict(self._found))
        return Report(), {}

    def _plan(self) -> Found:
        bronze = read_table(self._session, self._opened, self._layout.bronze, COORDINATES)
        if bronze is None:
            return Found()
        keys = ["topic", "topic_id", "partition"]
        rows = bronze.groupBy(*keys).agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        spans = [[*(row[key] for key in keys), row["first"], row["last"] + 1] for row in rows.orderBy(*keys).collect()]
        return Found(spans, [0, spans[0][3]])

    def _next(self, limit: int) -> tuple[list[Range], list[int]]:
        """(ranges of together at most `limit` offsets, the start of the next ranges as in `Found.at`)."""
        assert self._found is not None
        spans = self._found.spans
        position, offset = self._found.at
        ranges = []
        while limit > 0 and position < len(spans):
            topic, topic_id, partition, _, last = spans[position]
            end = min(last, offset + limit)
            ranges.append(Range(topic, topic_id, partition, offset, end))
            limit -= end - offset
            offset = end
            if end == last:
                position += 1
                offset = spans[position][3] if position < len(spans) else 0
        return ranges, [position, offset]

    def _compare_chunk(self) -> tuple[Report, dict[str, int]]:
        assert self._found is not None
        limit = self._attempts.limit()
        ranges, after = self._next(max(limit, 1))
        if not limit:
            self._found.skipped += [f"{r.topic}/{r.partition}@{r.first}" for r in ranges]
            return self._done(after)
        expected = self._attempts.run(lambda: self._run(ranges))
        if expected is None:
            return self._keep()
        classified = self._classify(expected, ranges)
        self._count(classified)
        added = self._add_missing(expected, classified)
        added.merge(Report(seconds=expected.seconds, steps=expected.steps))  # this job found them
        self._found.at = after
        if added.bronze and not self._request.dry_run:
            source = {"request": self._request.id, "records": added.bronze, "progress": asdict(self._found)}
            self._opened.commit(added, "rebuild", source)
            log.info("missing records added", records=added.bronze)
        self._done(after)
        return (Report(), {}) if self._request.dry_run else (added, {})

    def _done(self, after: list[int]) -> tuple[Report, dict[str, int]]:
        assert self._found is not None
        self._found.at = after
        self._attempts.succeeded()
        return self._keep()

    def _run(self, ranges: list[Range]) -> Report:
        """Run the job from bronze into the scratch folder, without expectations: each row of silver keeps to its own,
        and to the columns of its own definition."""
        self._clear_scratch()
        meant = {(r.topic, r.topic_id, r.partition): np.array([[r.first, r.end]]) for r in ranges}
        tasks = self._units.tasks(sum(r.end - r.first for r in ranges))
        records = read_bronze(self._session, self._opened, meant, tasks)
        origin = replace(FROM_BRONZE, storage=self._scratch, resolves_new=not self._request.dry_run, checks=False)
        report = self._units.run(records, self._opened.units.manifests.last + 1, origin)
        return ScratchProjections(self._opened, self._scratch).apply(report, *_offsets(ranges))

    def _clear_scratch(self) -> None:
        with contextlib.suppress(OSError):  # a task of a failed attempt may still write there; names never repeat
            self._scratch.delete_all("")

    def _classify(self, expected: Report, ranges: list[Range]) -> pa.Table:
        """Classify the records of the ranges."""
        names = [self._layout.silver_of(name) for name in sorted(set(self._opened.admission.admitted.values()))]
        silver = [self._silver(name, expected.files.get(name, []), ranges) for name in names]
        located = classification.locate_silver(self._session, self._opened.lake.storage, silver, ranges)
        for name, (rows, side) in self._outside_silver().items():
            if rows is not None:
                located.append(classification.locate_others(rows.where(classification.within(ranges)), name, side))
            keys = self._keys(name, expected.files.get(name, []))
            if keys:
                rows = read_rows(self._session, self._opened.lake.storage, keys, classification.COORDINATE_TYPES)
                located.append(classification.locate_others(rows, name, EXPECTED))
        more = [*names, self._layout.resolved]
        if not located:
            return pa.table({})
        return classification.classify(self._session, located, *self._others, self._layout.dropped, more)

    def _outside_silver(self) -> dict[str, tuple[DataFrame | None, str]]:
        """Table -> (rows, side) of the tables outside silver: open quarantine, deferred, resolved, and dropped records,
        among them those that an expectation has put into quarantine."""
        waiting, resolved = (
            read_table(self._session, self._opened, name) for name in (self._layout.deferred, self._layout.resolved)
        )
        refused, dropped = open_quarantine(self._session, self._opened), open_dropped(self._session, self._opened)
        if refused is not None:
            by_rules = refused.where(F.col("cause") == Cause.EXPECT_FAILED.value).select(*COORDINATES)
            refused = refused.where(F.col("cause") != Cause.EXPECT_FAILED.value)
            dropped = by_rules if dropped is None else dropped.select(*COORDINATES).union(by_rules)
        return {
            self._layout.quarantine: (refused, ACTUAL),
            self._layout.dropped: (dropped, ACTUAL),
            self._layout.deferred: (waiting, ACTUAL),
            self._layout.resolved: (resolved, RESOLVED),
        }

    def _silver(self, name: str, entries: list[FileEntry], ranges: list[Range]) -> Silver:
        self._opened.units.refresh(name)
        tables = self._opened.units.committer.tables
        columns = tables.columns(name) or pa.schema([])
        actual = tables.files_between(name, "_offset", *_offsets(ranges))
        return Silver(merge_columns(columns, *schemas_of(entries)), self._keys(name, entries), actual)

    def _keys(self, name: str, entries: Iterable[FileEntry]) -> list[str]:
        """Files of the fresh job."""
        return [f"{self._scratch_folder}/{name}/{entry.path}" for entry in entries]

    def _count(self, classified: pa.Table) -> None:
        assert self._found is not None
        if not classified.num_rows:
            return
        meant = {*self._others, *(self._layout.silver_of(name) for name in self._names())}
        groups = classified.group_by(["expected", "actual", "state"]).aggregate([([], "count_all")])
        for group in groups.to_pylist():
            count, state = group["count_all"], group["state"]
            if group["expected"] in meant and state != KEPT_OUT:
                self._add(group["expected"], "expected", count)
                if state in (PRESENT, MISSING):
                    self._add(group["expected"], "added" if state == MISSING else PRESENT, count)
            if state in NAMED and (group["actual"] or group["expected"]) in meant:
                self._add(group["actual"] or group["expected"], state, count)
            if state == REPLAYABLE and group["expected"] in meant:
                self._found.replayable += count
        self._name(classified, meant)

    def _add(self, table: str, column: str, count: int) -> None:
        assert self._found is not None
        add_counts(self._found.tables.setdefault(table, {}), {column: count})

    def _name(self, classified: pa.Table, meant: set[str]) -> None:
        """Store the first identities of each table that a person has to check."""
        assert self._found is not None
        wrong = classified.filter(pc.is_in(classified["state"], value_set=pa.array(NAMED)))
        for row in wrong.sort_by([(name, "ascending") for name in COORDINATES]).to_pylist():
            table = row["actual"] or row["expected"]
            names = self._found.named.setdefault(table, []) if table in meant else []
            if len(names) < MOST_NAMED:
                names.append(f"{row['topic']}/{row['partition']}@{row['offset']} {row['state']}")

    def _add_missing(self, expected: Report, classified: pa.Table) -> Report:
        """Write the missing rows as files of their tables; expectations that are in force are checked."""
        if not classified.num_rows or self._request.dry_run:
            return Report()
        names = {self._layout.silver_of(name): name for name in self._names()}
        missing = classified.filter(pc.equal(classified["state"], MISSING))
        missing = missing.filter(pc.is_in(missing["expected"], value_set=pa.array([*names, *self._others])))
        has_definitions = self._opened.expectations.definitions or self._opened.settings.are_columns_changed
        return self._decode(missing) if has_definitions else self._copy(expected, missing, names)

    def _decode(self, missing: pa.Table) -> Report:
        """Run the job over the missing records, as for new ones."""
        if not missing.num_rows:
            return Report()
        ordered = missing.select(COORDINATES).sort_by([(name, "ascending") for name in COORDINATES])
        records = read_bronze(self._session, self._opened, ranges_of(ordered), self._units.tasks(missing.num_rows))
        report = self._units.run(records, self._opened.units.manifests.last + 1, FROM_BRONZE)
        return replace(report, expectations={}, by_action={})  # the first time counts

    def _copy(self, expected: Report, missing: pa.Table, names: dict[str, str]) -> Report:
        """Copy the missing rows from the files of the fresh job."""
        added = Report()
        for table, entries in expected.files.items():
            wanted = missing.filter(pc.equal(missing["expected"], table)).select(COORDINATES)
            if not wanted.num_rows:
                continue
            for entry in entries:
                source = self._scratch.open_input(f"{table}/{entry.path}")
                rows = _pick(pq.ParquetFile(source).read(), wanted)
                if rows.num_rows:
                    added.files.setdefault(table, []).append(self._opened.units.write(table, rows))
                    self._report(added, table, names.get(table), rows)
        return added

    def _report(self, added: Report, table: str, name: str | None, rows: pa.Table) -> None:
        added.bronze += rows.num_rows
        if name is not None:
            add_counts(added.silver, {name: rows.num_rows})
            keys = rows["_schema_id"].cast(pa.string())
            keys = pc.coalesce(keys, rows["_schema_guid"]) if "_schema_guid" in rows.column_names else keys
            add_counts(added.schema_ids.setdefault(name, {}), count_values(keys))
        elif table == self._layout.quarantine:
            add_counts(added.quarantine, count_values(rows["cause"]))
        else:
            added.deferred += rows.num_rows

    def _find_extra_rows(self) -> None:
        """Count rows of silver outside the spans that have no record in bronze: phantoms. All tables are read in one
        job."""
        assert self._found is not None
        ranges = [Range(*span) for span in self._found.spans]
        rows = read_silver(self._session, self._opened, sorted(self._names()))
        if rows is None:
            return
        rows = rows.where(~classification.within(ranges))
        bronze = read_table(self._session, self._opened, self._layout.bronze, COORDINATES)
        if bronze is not None:
            rows = rows.join(bronze.where(~classification.within(ranges)), COORDINATES, "left_anti")
        phantoms = rows.limit(MAX_EXTRA_ROWS).toArrow()
        columns = {"expected": pa.nulls(phantoms.num_rows, pa.string()), "actual": phantoms["table"]}
        columns["state"] = pa.array([PHANTOM] * phantoms.num_rows, pa.string())
        self._count(pa.table({n: phantoms[n] for n in COORDINATES} | columns))


def _offsets(ranges: list[Range]) -> tuple[int, int]:
    """(the first offset, the last offset) of all ranges."""
    return min(r.first for r in ranges), max(r.end for r in ranges) - 1


def _pick(rows: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows at the coordinates. Row numbers are joined, because Arrow does not join tables with nested columns."""
    own = LINEAGE_COORDINATES if LINEAGE_COORDINATES[0] in rows.column_names else COORDINATES
    numbered = rows.select(own).rename_columns(COORDINATES).append_column("row", pa.array(np.arange(rows.num_rows)))
    picked = numbered.join(wanted, COORDINATES, join_type="left semi")["row"]
    return rows.take(picked.take(pc.sort_indices(picked)))
