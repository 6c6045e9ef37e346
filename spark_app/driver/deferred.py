"""Decodes from bronze what had to wait: records whose schema id could not be settled when they came, or that were
landed only. The same pass and the same manifest, with bronze as the source.

`deferred_events` holds the coordinates of what waits and nothing else: a unit of this kind replaces its files with one
of what still waits.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_app.driver.attempts import Attempts
from spark_app.driver.opened import OpenLake
from spark_app.driver.reader import FROM_BRONZE, BronzeRecords, read_bronze
from spark_app.driver.settle import ANSWERS_S
from spark_app.driver.unit import UnitRunner
from spark_app.errors import ContractError
from spark_app.ops.events import log
from spark_app.records import Cause, Report
from spark_app.store.manifest import Change
from spark_app.worker.bronze import ranges_of
from spark_app.worker.tables import COORDINATES, quarantine_rows


class Deferred:
    """Looks after what waits."""

    def __init__(self, session: SparkSession, opened: OpenLake, units: UnitRunner):
        self._session = session
        self._opened = opened
        self._settings = opened.settings
        self._manifests = opened.manifests
        self._schemas = opened.schemas
        self._units = units
        self._attempts = Attempts(opened.lake.state / "deferred.json", opened.settings.batch.attempts)

    def step(self, patience: float | None = ANSWERS_S) -> Report | None:
        """Decode what no longer has to wait: what was placed, nothing after a failure; None when there is none left.

        Args:
            patience: seconds to wait for the registry's answers; None = until they are there.
        """
        self._opened.finish_open()  # before the table is looked at: the open unit may have taken records out of it
        layout = self._settings.tables.layout
        table = self._opened.committer.tables.get(layout.deferred)
        if table is None or not table.file_uris():
            return None
        self._schemas.retry_waiting(patience)
        ready, rest = self._divide(table.to_pyarrow_table())
        if not ready.num_rows:
            return None
        limit = self._attempts.limit(first=str(ready.select(COORDINATES).slice(0, 1).to_pylist()))
        rest = pa.concat_tables([rest, ready.slice(max(limit, 1))])
        ready = ready.slice(0, max(limit, 1))
        report = self._decode(ready) if limit else self._give_up(ready)
        if report is None:
            return Report()
        if report.bronze != ready.num_rows:
            raise ContractError(f"{ready.num_rows} deferred records, but bronze has {report.bronze} of them")
        adds = report.files.pop(layout.deferred, [])
        if rest.num_rows:
            adds.append(self._opened.write(layout.deferred, rest))
        removes = [str(path) for path in table.get_add_actions()["path"].to_pylist()]
        source = {"records": ready.num_rows, "left": rest.num_rows}
        self._opened.decide(report, "deferred", source, Change(adds, removes))
        self._attempts.succeeded()
        log.info("deferred records decoded", records=ready.num_rows, left=rest.num_rows)
        return report

    def _decode(self, ready: pa.Table) -> Report | None:
        sequence = self._manifests.last + 1
        return self._attempts.run(lambda: self._units.run(self._read(ready), sequence, FROM_BRONZE))

    def _read(self, ready: pa.Table) -> BronzeRecords:
        return read_bronze(self._session, self._opened, ranges_of(ready), self._units.tasks(ready.num_rows))

    def _give_up(self, ready: pa.Table) -> Report:
        """A record that breaks the pass all by itself goes to quarantine as it is."""
        layout = self._settings.tables.layout
        record = self._read(ready).read()
        causes, details = [Cause.DECODE_CRASH], ["the pass failed with this record alone"]
        rows = quarantine_rows(record, causes, details, [""], [""], int(time.time() * 1_000_000))
        entry = self._opened.write(layout.quarantine, rows)
        return Report(files={layout.quarantine: [entry]}, bronze=1, quarantine={Cause.DECODE_CRASH.value: 1})

    def _divide(self, waiting: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(records that can be decoded, in order; records that go on waiting)."""
        keys = pa.array([str(entry.key) for entry in self._schemas.ledger.waiting()], pa.string())
        held = pc.is_in(waiting["waits_for"], value_set=keys)
        ready = waiting.filter(pc.invert(held)).sort_by([(name, "ascending") for name in COORDINATES])
        return ready, waiting.filter(held)
