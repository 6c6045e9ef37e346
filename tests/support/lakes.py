"""Whole lakes without JVM and Kafka: the app's own pass, manifests and commits, and the records they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from spark_app.audit import Verdict, audit
from spark_app.audit.source_records import Records
from spark_app.lake.files.state_files import write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Decodable
from spark_app.model.offsets import Offsets, Span
from spark_app.model.reports import Report
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.unit import UnitOptions, UnitRunner
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan
from tests.chaos import read_back
from tests.support.frames import leave_out

TOPIC = "t"
TOPIC_ID = "id of t"


class Batches:
    """What a broker would have: batches of records of one topic."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.first_kept = 0
        self.compacted = False
        self.id: str | None = TOPIC_ID
        self.most = 1 << 40  # bytes of a value that a reader keeps
        self.dropped: set[tuple[int, int]] = set()  # partition, offset

    def topic_id(self, topic: str) -> str | None:
        return self.id

    def is_compacted(self, topic: str) -> bool:
        return self.compacted

    def kept(self, topic: str, partition: int) -> int:
        return self.first_kept

    def ends(self, topic: str) -> dict[int, int]:
        return {batch["partition"][0].as_py(): batch["offset"][-1].as_py() + 1 for batch in self.batches}

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        records = Records()
        for batch in self.batches:
            for span in spans:
                inside = [
                    partition == span.partition
                    and span.start <= offset < span.end
                    and offset >= self.first_kept
                    and (partition, offset) not in self.dropped
                    for partition, offset in zip(
                        batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True
                    )
                ]
                records.add_bronze(pa.Table.from_batches([batch]).filter(pa.array(inside, pa.bool_())))
        for record, value in enumerate(records.value):
            if value is not None and len(value) > self.most:
                records.leave_out(record)
        return records, list(spans)


@dataclass(frozen=True)
class Taken:
    """Records of a unit that are in memory."""

    batches: list[pa.RecordBatch]

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)


class LocalUnits(UnitRunner):
    """Runs the job in this process, as one task."""

    def __init__(self, opened: OpenLake):
        super().__init__(None, opened)  # type: ignore[arg-type]
        self._sampled = True

    def tasks(self, records: int) -> int:
        return 1

    def _execute(self, records: Any, plan: TaskPlan) -> Report:
        return task.run(records.read(), plan, self.catalog_for(plan), "00000-0")


class SmallLake:
    """A lake that takes batches of a topic as the app does. `sections` are settings: section -> values."""

    def __init__(self, root: Path, *decodables: Decodable, topic: str = TOPIC, **sections: dict[str, Any]):
        self.topic = topic
        lake = {"path": str(root)} | sections.pop("lake", {})
        registry = {"url": "http://127.0.0.1:1"} | sections.pop("registry", {})
        schemas = {"resolve_timeout_s": 60.0} | sections.pop("schemas", {})  # protoc may take long beside other tests
        self.settings = Settings(lake=lake, registry=registry, schemas=schemas, **sections)  # type: ignore[arg-type]
        self.lake = Lake(replace(self.settings.lake_address, root=str(root)))
        self.lake.prepare()
        if not self.lake.storage.is_local:
            self.lake.lease.acquire()
        self.reopen()
        self.kafka = Batches()
        self.ends: dict[int, int] = {}
        self.learn(*decodables)

    def reopen(self, **sections: dict[str, Any]) -> None:
        """Open the lake again, with other settings in these sections. Rules and reference tables are replaced."""
        known = {name: value for name, value in dict(self.settings).items() if not isinstance(value, dict)}
        changed = {n: known[n].model_dump() | given if n in known else given for n, given in sections.items()}
        self.settings = Settings(**{**dict(self.settings), **changed})
        self.opened = OpenLake.of(self.lake, self.settings)
        self.units = LocalUnits(self.opened)

    def learn(self, *decodables: Decodable) -> None:
        for decodable in decodables:
            self.opened.resolver.ledger.add_decodable(decodable.key, decodable.descriptor_set, 0.0, decodable.form)
        self.opened.resolver.ledger.save()

    def take(self, *batches: pa.RecordBatch, origin: UnitOptions | None = None) -> Report:
        """An ingest unit of the batches, which go on where their partitions ended; what is larger than the settings
        allow comes as a source hands it on."""
        start = self._offsets()
        for batch in batches:
            self.kafka.batches.append(batch)
            partition = batch["partition"][0].as_py()
            self.ends[partition] = batch["offset"][-1].as_py() + 1
        most = self.settings.batch.max_record_bytes
        taken = Taken([leave_out(batch, most) for batch in batches])
        sequence = self.opened.units.manifests.last + 1
        report = self.units.run(taken, sequence, origin or UnitOptions({self.topic: TOPIC_ID}, bump_in_place=True))  # type: ignore[arg-type]
        source = {"batch": 0, "start": start, "end": self._offsets(), "topic_ids": {self.topic: TOPIC_ID}}
        self.opened.commit(report, "ingest", source)
        return report

    def _offsets(self) -> Offsets:
        return {self.topic: {str(partition): end for partition, end in self.ends.items()}}

    def fold(self, time: str = "event_timestamp", unit: int = 0) -> None:
        """Gold of the demo's aggregates, as the app would commit it for that unit; Spark is what folds there."""
        unit, layout = unit or self.opened.units.manifests.last, self.settings.layout
        for name in set(self.opened.admission.admitted.values()):
            rows = read_back.read(self.lake.root, layout.silver_of(name), ["gamer_id", time])
            transaction = Transaction(f"{self.lake.identity()}/gold", unit)
            write_deltalake(
                str(self.lake.path(layout.gold_of(name))),
                read_back.gold_of(pl.DataFrame(rows), time).to_arrow(),
                mode="overwrite",
                commit_properties=CommitProperties(app_transactions=[transaction]),
            )
        write_quickly(self.lake.storage, self.lake.synced, {"folded": unit}, None)

    def audit(self, **options: Any) -> Verdict:
        return audit(self.settings, source=self.kafka, **options)
