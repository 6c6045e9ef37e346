"""Decodes from bronze what had to wait: records whose schema id could not be settled when they came, or that were
landed only. The same pass and the same manifest, with bronze as the source.

`deferred_events` holds the coordinates of what waits and nothing else: a unit of this kind replaces its files with one
of what still waits.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.config import Settings
from spark_app.driver.commit import Tables
from spark_app.driver.ingest import NO_SPACE, Ingest
from spark_app.driver.manifest import Change, Manifests
from spark_app.driver.settle import SchemaDesk
from spark_app.driver.unit import Origin, UnitRunner
from spark_app.errors import ContractError
from spark_app.lake import Lake, file_prefix, read_json, write_quickly
from spark_app.ops.events import log
from spark_app.records import Cause, FileEntry, Report
from spark_app.worker import files
from spark_app.worker.tables import BRONZE_SCHEMA, COORDINATES, quarantine_rows

MOST_AT_ONCE = 200_000


class Deferred:
    """Looks after what waits."""

    def __init__(
        self,
        session: SparkSession,
        lake: Lake,
        settings: Settings,
        manifests: Manifests,
        tables: Tables,
        schemas: SchemaDesk,
        units: UnitRunner,
        ingest: Ingest,
    ):
        self._session = session
        self._lake = lake
        self._settings = settings
        self._manifests = manifests
        self._tables = tables
        self._schemas = schemas
        self._units = units
        self._ingest = ingest
        self._attempt_path = lake.state / "deferred.json"

    def step(self) -> Report | None:
        """Decode what no longer has to wait: what was placed, nothing after a failure; None when there is none left."""
        layout = self._settings.tables.layout
        table = self._tables.get(layout.deferred)
        if table is None or not table.file_uris():
            return None
        self._ingest.finish_open()
        self._schemas.retry_waiting()
        limit, tries = self._attempt()
        ready, rest = self._divide(table.to_pyarrow_table(), max(limit, 1))
        if not ready.num_rows:
            return None
        report = self._decode(ready, limit, tries) if limit else self._give_up(ready)
        if report is None:
            return Report()
        if report.bronze != ready.num_rows:
            raise ContractError(f"{ready.num_rows} deferred records, but bronze has {report.bronze} of them")
        adds = report.files.pop(layout.deferred, [])
        if rest.num_rows:
            adds.append(self._write(layout.deferred, rest))
        removes = [str(path) for path in table.get_add_actions()["path"].to_pylist()]
        self._ingest.decide(report, "deferred", {"records": ready.num_rows}, Change(adds, removes))
        self._note(min(MOST_AT_ONCE, max(limit, 1) * 10), 0)
        log.info("deferred records decoded", records=ready.num_rows, left=rest.num_rows)
        return report

    def _attempt(self) -> tuple[int, int]:
        """(records to take at once, how often that has failed). Fewer are taken after enough failures, none after
        those of a single record."""
        stored = read_json(self._attempt_path) or {"limit": MOST_AT_ONCE, "tries": 0}
        limit, tries = int(stored["limit"]), int(stored["tries"])
        if tries < self._settings.batch.attempts:
            return limit, tries
        return (0 if limit <= 1 else max(1, limit // 10)), 0

    def _note(self, limit: int, tries: int) -> None:
        write_quickly(self._attempt_path, {"limit": limit, "tries": tries})

    def _decode(self, ready: pa.Table, limit: int, tries: int) -> Report | None:
        """The pass; None when it failed. The try is written down first: the failure may take the app with it."""
        self._note(limit, tries + 1)
        try:
            return self._units.run(self._read_bronze(ready), self._manifests.last + 1, _FROM_BRONZE)
        except (PySparkException, OSError) as error:
            if NO_SPACE in str(error):
                self._note(limit, tries)
            log.error(
                "decoding deferred records failed, trying fewer", records=ready.num_rows, reason=str(error)[-300:]
            )
            return None

    def _give_up(self, ready: pa.Table) -> Report:
        """A record that breaks the pass all by itself goes to quarantine as it is."""
        layout = self._settings.tables.layout
        record = self._read_bronze(ready).toArrow().cast(BRONZE_SCHEMA)
        causes, details = [Cause.DECODE_CRASH], ["the pass failed with this record alone"]
        rows = quarantine_rows(record, causes, details, [""], int(time.time() * 1_000_000))
        entry = self._write(layout.quarantine, rows)
        return Report(files={layout.quarantine: [entry]}, bronze=1, quarantine={Cause.DECODE_CRASH.value: 1})

    def _divide(self, waiting: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
        """(records to decode now, records that go on waiting)."""
        keys = pa.array([str(entry.key) for entry in self._schemas.ledger.waiting()], pa.string())
        held = pc.is_in(waiting["waits_for"], value_set=keys)
        ready, rest = waiting.filter(pc.invert(held)), waiting.filter(held)
        if ready.num_rows > limit:
            ready = ready.sort_by([(name, "ascending") for name in COORDINATES])
            rest = pa.concat_tables([rest, ready.slice(limit)])
        return ready.slice(0, limit), rest

    def _read_bronze(self, ready: pa.Table) -> DataFrame:
        """The raw records at the coordinates; the offsets' bounds let Delta skip files."""
        coordinates = self._session.createDataFrame(ready.select(COORDINATES))
        low, high = pc.min_max(ready["offset"]).as_py().values()
        bronze = self._session.read.format("delta").load(str(self._lake.table(self._settings.tables.bronze)))
        picked = bronze.where(F.col("offset").between(low, high)).join(
            F.broadcast(coordinates), COORDINATES, "left_semi"
        )
        records = picked.select(*BRONZE_SCHEMA.names)
        return self._units.spread(records, ready.num_rows)

    def _write(self, table: str, rows: pa.Table) -> FileEntry:
        name = f"{file_prefix(self._manifests.last + 1)}-driver.parquet"
        return files.write_file(self._lake.table(table), name, rows, self._settings.lake.compression)


_FROM_BRONZE = Origin({}, write_bronze=False, settle_in_place=True)
