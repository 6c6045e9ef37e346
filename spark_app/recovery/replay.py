"""Decodes quarantined or dropped records again, after their cause is fixed.

Quarantine is never rewritten: the unit that adds a record to silver also adds it to `resolved_events`. A record is open
while it is in quarantine and not in `resolved_events`, so an interrupted or repeated replay adds no record twice.
Records that are rejected again, dropped by an expectation, or would be deferred, stay where they are. Dropped records
are replayed only on request; all of this is true of them, too.

The reasons: docs/decisions/replay.md.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from spark_app.model.catalog import read_schema_key
from spark_app.model.causes import DROPPED, Cause
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.record_schemas import COORDINATES, LINEAGE_COORDINATES
from spark_app.model.reports import Report, add_counts
from spark_app.protobuf.schemas.resolver import RETRY_WAIT_S
from spark_app.recovery.requests import Request, key_of, load_progress, save_progress
from spark_app.sources.bronze import ranges_of
from spark_app.units.driver.ingest import SizeBackoff
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze, read_table
from spark_app.units.driver.unit import UnitRunner
from spark_app.units.worker.table_rows import count_values, resolved_rows

CHOSEN = [*COORDINATES, "schema_id", "cause"]
COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
PACKED = pa.schema([("packed", pa.binary())])


@dataclass(frozen=True)
class Filters:
    """Selects records of quarantine, or with `dropped` dropped records; without any other filter all.

    Attributes:
        rules: names of expectations, one of which the record failed.
        dropped: select dropped records instead of quarantined ones.
        since, until: range of the time of quarantining or dropping in seconds since 1970; `until` is excluded.
        schemas: schema ids or GUIDs: of the frame, or the rejected schema of a wrapper's payload.
        offsets: [first, end]; the end is excluded.
    """

    causes: list[str] = field(default_factory=list)
    schemas: list[str] = field(default_factory=list)
    since: float | None = None
    until: float | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: list[int] | None = None
    rules: list[str] = field(default_factory=list)
    dropped: bool = False

    def condition(self) -> Column:
        """The filters as a condition on rows of quarantine."""
        moment = F.unix_micros("quarantined_at")
        parts = [F.lit(True)]
        parts += [F.col("cause").isin(self.causes)] if self.causes else []
        parts += [self._by_schema()] if self.schemas else []
        parts += [F.arrays_overlap("rules", F.array(*map(F.lit, self.rules)))] if self.rules else []
        parts += [moment >= int(self.since * 1e6)] if self.since is not None else []
        parts += [moment < int(self.until * 1e6)] if self.until is not None else []
        parts += [F.col("topic") == self.topic] if self.topic is not None else []
        parts += [F.col("partition") == self.partition] if self.partition is not None else []
        if self.offsets is not None:
            parts.append((F.col("offset") >= self.offsets[0]) & (F.col("offset") < self.offsets[1]))
        condition = parts[0]
        for part in parts[1:]:
            condition = condition & part
        return condition

    def _by_schema(self) -> Column:
        framed = F.coalesce(F.col("schema_id").cast("string"), F.col("schema_guid"))
        refused = F.coalesce(F.col("refused_schema").isin(self.schemas), F.lit(False))
        return F.coalesce(framed.isin(self.schemas), F.lit(False)) | refused


@dataclass
class ReplayProgress:
    """The progress of a replay, in records. It is stored as JSON.

    Attributes:
        candidates: cause -> open records that the filters select.
        unasked: schema ids with the ledger's outcome `refused` that are still to be resolved again.
        after: coordinates of the last attempted record.
        resolved: silver table -> records added to it.
        refused: cause -> records that were rejected again.
        waiting: records whose schema id cannot be resolved now; they stay in quarantine.
    """

    candidates: dict[str, int] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    after: list[Any] | None = None
    resolved: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    waiting: int = 0


class Replay:
    """One replay request. Call `step` between two units, with the unit lock."""

    def __init__(self, session: SparkSession, opened: OpenLake, units: UnitRunner, request: Request):
        self._session = session
        self._opened = opened
        self._units = units
        self._request = request
        self._layout = opened.settings.layout
        self._filters = Filters(**request.arguments)
        self._attempts = SizeBackoff(
            opened.lake.storage, key_of(request, "attempts"), opened.settings.batch.max_attempts
        )
        stored = load_progress(opened.lake, opened.units.manifests, request)
        self._counted = ReplayProgress(**stored) if stored else None
        self._candidates: ReplayQueue | None = None

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Execute one step: count the candidates, resolve schemas again, or decode the next records.

        Returns:
            (report of the added rows, cause -> replayed records); None if the request is done.
        """
        if self._counted is None:
            self._counted = self._count()
            return None if self._request.dry_run else self._keep()
        if self._counted.unasked:
            return self._resolve_again()
        limit = self._attempts.limit()
        chosen = self._choose(max(limit, 1))
        if not chosen.num_rows:
            return None
        return self._decode(chosen) if limit else self._give_up(chosen)

    def conclude(self) -> dict[str, Any]:
        """The result, after the last step."""
        assert self._counted is not None
        found = asdict(self._counted)
        names = ("candidates",) if self._request.dry_run else ("candidates", "resolved", "refused", "waiting")
        return {name: found[name] for name in names}

    def _keep(self) -> tuple[Report, dict[str, int]]:
        assert self._counted is not None
        save_progress(self._opened.lake, self._opened.units.manifests, self._request, asdict(self._counted))
        return Report(), {}

    def _wanted(self) -> DataFrame | None:
        """Open records that the filters select. Records quarantined after the request are left out: the request would
        not end while new records are quarantined."""
        read = open_dropped if self._filters.dropped else open_quarantine
        rows = read(self._session, self._opened)
        if rows is None or (self._filters.rules and "rules" not in rows.columns):
            return None
        before = F.unix_micros("quarantined_at") <= int(self._request.asked_at * 1e6)
        return rows.where(self._filters.condition() & before)

    def _count(self) -> ReplayProgress:
        rows = self._wanted()
        if rows is None:
            return ReplayProgress()
        found = rows.groupBy("cause", "refused_schema").count().collect()
        causes: Counter[str] = Counter()
        for row in found:
            causes[row["cause"]] += row["count"]
        entries = self._opened.resolver.ledger.entries
        keys = {row["refused_schema"] for row in found} - {None}
        refused = {str(entry.key) for entry in entries.values() if entry.outcome == "refused"}
        return ReplayProgress(dict(causes), sorted(keys & refused))

    def _resolve_again(self) -> tuple[Report, dict[str, int]]:
        """Resolve schemas with the outcome `refused` again: the registry may have changed. The step has a time limit,
        because no batch runs meanwhile."""
        assert self._counted is not None
        schemas, deadline = self._opened.resolver, time.monotonic() + RETRY_WAIT_S
        while self._counted.unasked and time.monotonic() < deadline:
            key = read_schema_key(self._counted.unasked.pop(0))
            entry = schemas.ledger.entries.get(key)
            if entry is None or entry.outcome == "refused":  # a crash may have come before the progress was kept
                schemas.resolve(key)
        schemas.ledger.save()
        return self._keep()

    def _choose(self, limit: int) -> pa.Table:
        """The next open records in the order of their coordinates."""
        if self._candidates is None:
            rows = self._wanted()
            if rows is None:
                return pa.table({name: [] for name in CHOSEN})
            self._candidates = ReplayQueue(self._behind(rows).select(*CHOSEN))
        return self._candidates.first(limit)

    def _behind(self, rows: DataFrame) -> DataFrame:
        """The rows after the last attempted record, which may be an attempt of an earlier process."""
        assert self._counted is not None
        if self._counted.after is None:
            return rows
        last = zip(COORDINATES, self._counted.after, strict=True)
        after = F.struct(*(F.lit(value).cast(rows.schema[name].dataType).alias(name) for name, value in last))
        return rows.where(F.struct(*COORDINATES) > after)

    def _tried(self, chosen: pa.Table) -> None:
        assert self._counted is not None
        assert self._candidates is not None
        self._counted.after = _last(chosen)
        self._candidates.drop(chosen.num_rows)

    def _decode(self, chosen: pa.Table) -> tuple[Report, dict[str, int]]:
        assert self._counted is not None
        sequence = self._opened.units.manifests.last + 1
        records = read_bronze(self._session, self._opened, ranges_of(chosen), self._units.tasks(chosen.num_rows))
        report = self._attempts.run(lambda: self._units.run(records, sequence, replace(FROM_BRONZE, pauses=False)))
        if report is None:
            return self._keep()
        if report.bronze != chosen.num_rows:
            raise ContractError(f"{chosen.num_rows} records were requested, but bronze has {report.bronze} of them")
        add_counts(self._counted.refused, report.quarantine | ({DROPPED: report.dropped} if report.dropped else {}))
        self._counted.waiting += report.deferred
        self._tried(chosen)
        silver = self._without_rejects(report)
        causes: dict[str, int] = {}
        if silver.bronze:
            causes = self._commit(silver, chosen)
        self._attempts.succeeded()
        self._keep()
        log.info("quarantined records replayed", records=chosen.num_rows, resolved=silver.bronze)
        return silver, causes

    def _without_rejects(self, report: Report) -> Report:
        """The report of the records that land. The others stay where they are: their files are removed."""
        layout = self._layout
        others = (layout.quarantine, layout.deferred, layout.dropped)
        old = {table: report.files.pop(table) for table in others if table in report.files}
        self._units.discard(Report(files=old))
        inserted = sum(report.silver.values())
        return Report(
            files=report.files,
            bronze=inserted,
            silver=report.silver,
            schema_ids=report.schema_ids,
            seconds=report.seconds,
            steps=report.steps,
        )

    def _commit(self, silver: Report, chosen: pa.Table) -> dict[str, int]:
        """Commit silver and `resolved_events` in one unit; returns cause -> replayed records."""
        assert self._counted is not None
        sequence = self._opened.units.manifests.last + 1
        rows = resolved_rows(self._replayed(silver, chosen), sequence, int(time.time() * 1_000_000))
        entry = self._opened.units.write(self._layout.resolved, rows)
        add_counts(self._counted.resolved, {self._layout.silver_of(n): count for n, count in silver.silver.items()})
        source = {"request": self._request.id, "records": chosen.num_rows, "progress": asdict(self._counted)}
        named = Report(**(vars(silver) | {"files": {**silver.files, self._layout.resolved: [entry]}}))
        self._opened.commit(named, "replay", source)
        return count_values(rows["cause"])

    def _replayed(self, silver: Report, chosen: pa.Table) -> pa.Table:
        """The chosen records that are in the new silver files, with their table."""
        parts = []
        for table, entries in silver.files.items():
            for entry in entries:
                source = self._opened.lake.storage.open_input(f"{table}/{entry.path}")
                rows = pq.ParquetFile(source).read(columns=LINEAGE_COORDINATES)
                rows = rows.select(LINEAGE_COORDINATES).rename_columns(COORDINATES)
                parts.append(rows.append_column("table", pa.array([table] * rows.num_rows, pa.string())))
        replayed = pa.concat_tables(parts).join(chosen, COORDINATES, join_type="inner")
        if replayed.num_rows != silver.bronze:
            raise ContractError(
                f"{silver.bronze} records were replayed, but {replayed.num_rows} of them were requested"
            )
        return replayed

    def _give_up(self, chosen: pa.Table) -> tuple[Report, dict[str, int]]:
        """Skip a record that makes the job fail even alone; it stays in quarantine."""
        assert self._counted is not None
        add_counts(self._counted.refused, {Cause.DECODE_CRASH.value: 1})
        self._tried(chosen)
        self._attempts.succeeded()
        return self._keep()


def open_quarantine(session: SparkSession, opened: OpenLake) -> DataFrame | None:
    """The rows of quarantine that are not in `resolved_events`; None if there is no quarantine."""
    layout = opened.settings.layout
    rows, resolved = (read_table(session, opened, name) for name in (layout.quarantine, layout.resolved))
    if rows is None or resolved is None:
        return rows
    return rows.join(resolved.select(*COORDINATES), COORDINATES, "left_anti")


def open_dropped(session: SparkSession, opened: OpenLake) -> DataFrame | None:
    """The rows of dropped records that are not in `resolved_events`, with the columns of quarantine that a filter
    names; None if nothing was dropped."""
    layout = opened.settings.layout
    rows, resolved = (read_table(session, opened, name) for name in (layout.dropped, layout.resolved))
    if rows is None:
        return None
    nothing = {name: F.lit(None).cast("string") for name in ("schema_guid", "refused_schema")}
    rows = rows.withColumns({"cause": F.lit(DROPPED), "quarantined_at": F.col("dropped_at"), **nothing})
    return rows if resolved is None else rows.join(resolved.select(*COORDINATES), COORDINATES, "left_anti")


def _last(chosen: pa.Table) -> list[Any]:
    """Coordinates of the last chosen record."""
    return list(chosen.select(COORDINATES).slice(chosen.num_rows - 1).to_pylist()[0].values())


class ReplayQueue:
    """The records to decode, sorted once by coordinates and stored in a temporary file, which is removed with the
    object. Without it each unit would search all of quarantine for its records."""

    def __init__(self, rows: DataFrame):
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the queue
        # Through Spark and not as files of the workers, which may be on other machines.
        with pa.ipc.new_stream(self._file, schema, options=COMPRESSED) as sorted_rows:
            for row in rows.orderBy(*COORDINATES).mapInArrow(_pack, "packed binary").toLocalIterator():
                sorted_rows.write_table(pa.ipc.open_stream(row.packed).read_all().cast(schema))
        self._file.seek(0)
        self._batches = iter(pa.ipc.open_stream(self._file))
        self._next = schema.empty_table()

    def first(self, count: int) -> pa.Table:
        """The first `count` rows, or all if there are fewer; they stay in the queue."""
        while self._next.num_rows < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._next = pa.concat_tables([self._next, pa.Table.from_batches([batch], self._next.schema)])
        return self._next.slice(0, count)

    def drop(self, count: int) -> None:
        """Remove the first `count` rows."""
        self._next = self._next.slice(count)


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each batch."""
    for batch in batches:
        packed = pa.BufferOutputStream()
        with pa.ipc.new_stream(packed, batch.schema, options=COMPRESSED) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([packed.getvalue().to_pybytes()], pa.binary())], schema=PACKED)
