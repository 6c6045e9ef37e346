"""The app's parts on one lake, wired as `pipeline` does it, and records for them from the producer's own encoder."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from producer.encoder import Encoder
from producer.games import Event
from producer.schemas import PROTO_FOLDER, SchemaVersion, compile_version
from spark_app.lake.lake import Lake
from spark_app.model.offsets import Offsets, ReadFailed, ReadFailure, Span
from spark_app.model.reports import Report
from spark_app.protobuf.schemas.descriptors import compile_schema
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.recovery.executor import RequestExecutor
from spark_app.settings.models import Settings
from spark_app.units.driver.deferred import DeferredDecoder
from spark_app.units.driver.disk_space import DiskSpaceGuard
from spark_app.units.driver.ingest import Ingest, RunContext
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.status import Status
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from tests.chaos import read_back
from tests.support.following import Gold, computer_of
from tests.support.frames import batch_of, leave_out
from tests.support.protos import CAPS

TOPIC = "t"
NOW = 1_700_000_000_000_000
ORIGIN = UnitOptions({TOPIC: "id of t"})


class Killed(BaseException):
    """The end of the app: what none of its handlers catches."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


class Parts:
    """One process of the app, without Kafka. `sections` are settings: section -> values."""

    def __init__(self, spark: SparkSession, root: Path, url: str, sections: dict[str, dict[str, Any]]):
        self.spark = spark
        own = {"lake": {"path": str(root)}, "registry": {"url": url}, "schemas": {"resolve_timeout_s": 60.0}}
        self.settings = Settings(**{name: own.get(name, {}) | sections.get(name, {}) for name in {*own, *sections}})
        self.lake = Lake(root)
        self.lake.prepare()
        self.opened = OpenLake.of(self.lake, self.settings)
        self.redone_units = self.opened.units.redone_units
        self.manifests, self.committer = self.opened.units.manifests, self.opened.units.committer
        self.tables, self.schemas = self.opened.admission, self.opened.resolver
        self.ledger = self.schemas.ledger
        self.units = UnitRunner(spark, self.opened)
        self.status = Status(self.lake, self.settings.layout)
        self.stop = threading.Event()
        self.disk = DiskSpaceGuard(self.lake, self.settings.lake.min_free_bytes, self.status, self.stop)
        self.given: Records  # what Kafka has
        self.unit_lock = lock = threading.Lock()
        self.ingest = self.new_ingest()
        self.deferred = DeferredDecoder(spark, self.opened, self.units, lock)
        self.gold = Gold(computer_of(spark, self.opened), self.opened, lock)
        self.service = RequestExecutor(spark, self.opened, self.units, [self.gold], lock, on_step=self.status.recovered)

    def new_ingest(self, *confirm: Callable[[dict[str, str]], None]) -> Ingest:
        """One that reads what is given."""
        run = RunContext(self.status, self.disk, self.stop, self.unit_lock)
        return Ingest(self.opened, self.units, run, lambda start, end, tasks: self.given, *confirm)

    def take_batch(self, given: Records, batch: int, origin: UnitOptions = ORIGIN) -> int:
        """A micro-batch of the checkpoint."""
        self.given = given
        return self.ingest.batch(batch, origin)

    def learn(self, *versions: int) -> None:
        """Enter versions of the demo's schema; their schema ids are their numbers."""
        for version in versions:
            compiled = compile_schema(Sources(texts={ROOT: source(version)}), CAPS)
            self.ledger.add_decodable(version, compiled.descriptor_set, 0.0, comments=compiled.comments)
        self.ledger.save()

    def next_offset(self) -> int:
        last = self.manifests.last_ingest
        return int(last.source["end"][TOPIC]["0"]) if last else 0

    def run(self, values: Sequence[bytes | None], origin: UnitOptions = ORIGIN) -> Report:
        """The job and what follows from it, over records that come after those that are committed."""
        source = records(self.spark, values, self.next_offset(), self.settings.batch.max_record_bytes)
        return self.units.run(source, self.manifests.last + 1, origin)

    def take(self, values: Sequence[bytes | None], origin: UnitOptions = ORIGIN) -> Report:
        """A committed ingest unit of the records."""
        start = self.next_offset()
        report = self.run(values, origin)
        self.opened.commit(report, "ingest", source_of(start, start + len(values)))
        return report

    def kill_at_commit(self, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the app end where it would commit to the table."""
        commit = self.committer._commit
        at = {table: killed}
        monkeypatch.setattr(
            self.committer, "_commit", lambda unit, name, *rest: at.get(name, commit)(unit, name, *rest)
        )

    def fail_tasks_at(self, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let each task with the record fail."""
        run = self.units.run

        def broken(source: Records, *rest: Any) -> Report:
            if any(offset in batch["offset"].to_pylist() for batch in source.read()):
                raise PySparkException("a worker died")
            return run(source, *rest)

        monkeypatch.setattr(self.units, "run", broken)

    def read(self, name: str) -> pl.DataFrame:
        """A table by delta-rs."""
        return pl.DataFrame(read_back.read(self.lake.root, name))

    def files(self) -> list[str]:
        """Every data file in the lake, named by anybody or not."""
        return sorted(str(p.relative_to(self.lake.root)) for p in self.lake.root.glob("*/*.parquet"))


def source_of(start: int, end: int) -> dict[str, object]:
    return {"batch": 0, "start": offsets(start), "end": offsets(end), "topic_ids": ORIGIN.topic_ids}


def offsets(offset: int) -> Offsets:
    return {TOPIC: {"0": offset}}


@dataclass(frozen=True)
class Given:
    """Records that a task has from the beginning, as if it had read them."""

    batch: pa.RecordBatch
    spans: tuple[Span, ...] = ()

    def limited(self, most: int) -> Given:
        return replace(self, batch=self.batch.slice(0, most))

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.batch


class Deadly(Given):
    """Ends the worker that reads it."""

    def read(self) -> Iterator[pa.RecordBatch]:
        os._exit(1)


@dataclass(frozen=True)
class Signed(Given):
    """Leaves the number of the process that reads it in a folder."""

    folder: str = ""

    def read(self) -> Iterator[pa.RecordBatch]:
        Path(self.folder, str(os.getpid())).touch()
        yield self.batch


class Unread(Given):
    """Its end is not in Kafka."""

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.batch
        raise ReadFailed(ReadFailure.LOST, "gone", [])


def records(spark: SparkSession, values: Sequence[bytes | None], first: int = 0, most: int = 1 << 30) -> Records:
    """Records at consecutive offsets of partition 0, without values of more than so many bytes."""
    spans = (Span(TOPIC, 0, first, first + len(values)),)
    return Records(spark, (Given(leave_out(batch_of(values, first, TOPIC), most), spans),))


def source(version: int) -> str:
    """The .proto text of a version of the demo's schema."""
    return (PROTO_FOLDER / f"v{version}" / "game_event.proto").read_text()


@functools.cache
def _version(number: int) -> SchemaVersion:
    return compile_version(number)


@functools.cache
def _encoder(version: int) -> Encoder:
    """Confluent's serializer on a registry in memory that gives version N the id N."""
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    for number in range(1, version + 1):
        client.register_schema(f"{TOPIC}-value", _version(number).registry_form)
    return Encoder(TOPIC, _version(version), client)


def events(version: int, players: Iterable[tuple[str, str]]) -> list[bytes]:
    """Frames of (game, gamer) in a version of the schema, one second apart; every custom column is filled."""
    return [
        _encoder(version).encode(Event(game, gamer, "d", 0, tuple("abcd"[: version - 1])), NOW + 1_000_000 * second)
        for second, (game, gamer) in enumerate(players)
    ]
