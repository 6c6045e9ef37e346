"""Spark session, records and lakes for measurements without Kafka.

`with open_workshop() as workshop`: within the block there are a session, a registry and a folder; at its end all are
removed.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from producer.encoder import Encoder
from producer.games import Event
from scripts.benches import frames
from scripts.benches.filed import Filed
from scripts.benches.servers import app_settings, changed_environment
from scripts.local.registry import Registry
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.log import LEVELS, log
from spark_app.model.reports import Report
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from spark_app.units.spark import jvm, session

NOBODY = "127.0.0.1:9"
ORIGIN = UnitOptions({}, bump_in_place=True)


@dataclass(frozen=True)
class Stand:
    """A lake, and the app's parts that ingest a micro-batch."""

    opened: OpenLake
    units: UnitRunner

    def run(self, records: Filed, count: int) -> Report:
        """Run the job over `count` records, divided as in a micro-batch; nothing is committed."""
        spread = records.records(self.units.tasks(count))
        return self.units.run(spread, self.opened.units.manifests.last + 1, ORIGIN)

    def ingest(self, records: Filed, count: int) -> Report:
        """Commit and apply an ingest unit, then run maintenance as the app does."""
        report = self.run(records, count)
        self.opened.commit(report, "ingest", self.source())
        return report

    def source(self) -> dict[str, Any]:
        """The manifest's source of the next unit: each batch moves one partition by one offset."""
        last = self.opened.units.manifests.last_ingest
        taken = last.source["end"]["bench"]["0"] if last else 0
        start, end = ({"bench": {"0": offset}} for offset in (taken, taken + 1))
        return {"batch": taken, "start": start, "end": end, "topic_ids": {}}


@dataclass(frozen=True)
class Workshop:
    """The session, the registry and a folder for all files."""

    spark: SparkSession
    folder: Path
    settings: Settings
    encoder: Encoder

    def stand(self, tables: int, address: StorageAddress | None = None, **changed: Any) -> Stand:
        """A lake with a limit of so many silver tables; its ledger has the records' schema.

        Args:
            address: in a bucket, where this process takes the lease; None = a new folder.
            changed: settings of the section `lake`.
        """
        address = address or StorageAddress(tempfile.mkdtemp(prefix="lake-", dir=self.folder))
        capped = self.settings.tables.model_copy(update={"max_tables": max(tables, self.settings.tables.max_tables)})
        placed = self.settings.lake.model_copy(update={"path": address.root, **changed})
        settings = self.settings.model_copy(update={"tables": capped, "lake": placed})
        lake = Lake(address)
        lake.prepare()
        if address.scheme:
            lake.lease.acquire()
        opened = OpenLake.of(lake, settings)
        opened.resolver.load_subject_versions()
        return Stand(opened, UnitRunner(self.spark, opened))

    def records(self, events: Iterator[Event], count: int, partitions: int = 4) -> Filed:
        """The next `count` events as records of so many partitions."""
        folder = Path(tempfile.mkdtemp(prefix="records-", dir=self.folder))
        topic = self.settings.kafka.topic
        return Filed(self.spark, tuple(frames.write_records(folder, self.encoder, topic, events, count, partitions)))


@contextlib.contextmanager
def open_workshop() -> Iterator[Workshop]:
    """Start session and registry; at the end stop them and remove everything."""
    folder = Path(tempfile.mkdtemp(prefix="protolake-bench-"))
    level, log.level = log.level, LEVELS["WARNING"]
    try:
        with (
            Registry(folder / "registry") as registry,
            changed_environment(app_settings(folder / "lake", NOBODY, registry.url) | {"TMPDIR": str(folder)}),
        ):
            settings = config.load()
            encoder = frames.new_encoder(settings.kafka.topic, registry.url)
            spark = session.start(settings, "bench", quiet=True)
            yield Workshop(spark, folder, settings, encoder)
    finally:
        jvm.end(clean=True)
        log.level = level
        shutil.rmtree(folder, ignore_errors=True)
