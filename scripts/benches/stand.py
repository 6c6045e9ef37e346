"""What a measurement without Kafka works with: a Spark session, made-up records, and lakes with the app's own parts.

`with open_workshop() as workshop`: the session, the registry and a folder are there; after the block nothing of them
is.
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
from scripts.benches.servers import app_settings, told
from scripts.local.registry import Registry
from spark_app.driver.open_lake import OpenLake
from spark_app.driver.unit import UnitOptions, UnitRunner
from spark_app.model.reports import Report
from spark_app.ops.log import LEVELS, log
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.spark import jvm, session
from spark_app.storage.lake import Lake

NOBODY = "127.0.0.1:9"
ORIGIN = UnitOptions({}, bump_in_place=True)


@dataclass(frozen=True)
class Stand:
    """A lake, with what the app takes a micro-batch with."""

    opened: OpenLake
    units: UnitRunner

    def run(self, records: Filed, count: int) -> Report:
        """The pass over `count` records, spread as those of a micro-batch; nothing is decided."""
        spread = records.records(self.units.tasks(count))
        return self.units.run(spread, self.opened.units.manifests.last + 1, ORIGIN)

    def take(self, records: Filed, count: int) -> Report:
        """An ingest unit, decided and committed; then the tables are kept small, as the app does it."""
        report = self.run(records, count)
        self.opened.commit(report, "ingest", self.source())
        return report

    def source(self) -> dict[str, Any]:
        """Of the next unit: as if each batch moved one partition by one offset."""
        last = self.opened.units.manifests.last_ingest
        taken = last.source["end"]["bench"]["0"] if last else 0
        start, end = ({"bench": {"0": offset}} for offset in (taken, taken + 1))
        return {"batch": taken, "start": start, "end": end, "topic_ids": {}}


@dataclass(frozen=True)
class Workshop:
    """Everything is below `folder`."""

    spark: SparkSession
    folder: Path
    settings: Settings
    encoder: Encoder

    def stand(self, tables: int) -> Stand:
        """A lake of its own, with room for so many silver tables; it knows the schema of the records."""
        path = Path(tempfile.mkdtemp(prefix="lake-", dir=self.folder))
        capped = self.settings.tables.model_copy(update={"max_tables": max(tables, self.settings.tables.max_tables)})
        placed = self.settings.lake.model_copy(update={"path": str(path)})
        settings = self.settings.model_copy(update={"tables": capped, "lake": placed})
        lake = Lake(path)
        lake.prepare()
        opened = OpenLake.of(lake, settings)
        opened.schemas.load_subject_versions()
        return Stand(opened, UnitRunner(self.spark, lake, settings, opened.schemas, opened.tables))

    def records(self, events: Iterator[Event], count: int, partitions: int = 4) -> Filed:
        """The next `count` events as records of so many partitions."""
        folder = Path(tempfile.mkdtemp(prefix="records-", dir=self.folder))
        topic = self.settings.kafka.topic
        return Filed(self.spark, tuple(frames.write_records(folder, self.encoder, topic, events, count, partitions)))


@contextlib.contextmanager
def open_workshop() -> Iterator[Workshop]:
    """Session and registry up; on leaving down, and everything removed."""
    folder = Path(tempfile.mkdtemp(prefix="protolake-bench-"))
    level, log.level = log.level, LEVELS["WARNING"]
    try:
        with (
            Registry(folder / "registry") as registry,
            told(app_settings(folder / "lake", NOBODY, registry.url) | {"TMPDIR": str(folder)}),
        ):
            settings = config.load()
            encoder = frames.new_encoder(settings.kafka.topic, registry.url)
            spark = session.start(settings, "bench", quiet=True)
            yield Workshop(spark, folder, settings, encoder)
    finally:
        jvm.end(clean=True)
        log.level = level
        shutil.rmtree(folder, ignore_errors=True)
