"""Runs tasks of the app in this process, without Spark and commits: from a broker to the files of a lake."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from scripts.benches import messages, result, topics
from scripts.benches.shape import Shape, game_names
from scripts.local.errors import LocalError
from spark_app.lake.files.local import LocalStorage
from spark_app.model.catalog import Catalog, Decodable
from spark_app.model.offsets import Span
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.protobuf.decode.decoder import STRICT, decoder_for
from spark_app.protobuf.schemas.descriptors import digest
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Batch
from spark_app.sources.kafka import input as kafka_input
from spark_app.sources.kafka.input import Share
from spark_app.tables.route import Routing
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan

WRONG = 65
Run = Callable[[Iterator[pa.RecordBatch]], int]  # returns the number of records


@dataclass(frozen=True)
class Source:
    """A filled topic, to be read as one share."""

    shape: Shape
    schema_id: int
    share: Share

    @classmethod
    def fill(cls, brokers: str, registry: str, topic: str, shape: Shape) -> Source:
        """Fill a topic; its records have one schema."""
        result.log_progress(f"filling a topic with {shape.words()} ...")
        topics.fill(brokers, registry, topic, shape)
        head = topics.register(registry, topic, shape)[0]
        return cls(shape, int.from_bytes(head[1:5]), _share_of(brokers, topic))

    def cpu_us(self, run: Run) -> float:
        """Microseconds of CPU per record, of all threads, that it takes to read the topic and to run over it.

        Raises:
            LocalError: it did not handle each record once.
        """
        began = time.process_time()
        handled = run(self.share.read())
        kafka_input.close()
        if handled != self.shape.records:
            raise LocalError(f"{handled:,} of {self.shape.records:,} records were handled", WRONG)
        return (time.process_time() - began) / self.shape.records * 1e6


@dataclass(frozen=True)
class Task:
    """A task whose plan has the schema of the source and a table for each game."""

    decodable: Decodable
    plan: TaskPlan
    catalog: Catalog
    folder: Path

    @classmethod
    def of(cls, source: Source, folder: Path) -> Task:
        data, _ = messages.compile_version(source.shape.message, 1)
        decodable = Decodable(source.schema_id, data, digest(data))
        decoder = decoder_for(decodable, messages.INDEX, STRICT)
        assert decoder is not None
        catalog = Catalog({source.schema_id: decodable}, {}, frozenset(), {decoder.full_name: decoder.schema})
        games = {name: name for name in game_names(source.shape.games)}
        tables = {name: tuple(catalog.columns) for name in games}
        routing = Routing("game_name", games, frozenset(), room=False, messages=tables)
        plan = TaskPlan(LocalStorage(folder), "part-0-a", TableNames(), routing, {}, 1, defer_new=True)
        return cls(decodable, plan, catalog, folder)

    def run(self, batches: Iterator[pa.RecordBatch], **changes: Any) -> Report:
        """Run with these changes of the plan, into a lake that is removed afterwards."""
        lake = tempfile.mkdtemp(dir=self.folder)
        try:
            return task.run(batches, replace(self.plan, storage=LocalStorage(lake), **changes), self.catalog, "0")
        finally:
            shutil.rmtree(lake)


def _share_of(brokers: str, topic: str) -> Share:
    """The whole topic as one share."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "log_level": 0})
    numbers = consumer.list_topics(topic).topics[topic].partitions
    ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in numbers}
    consumer.close()
    spans = tuple(Span(topic, number, 0, end) for number, end in ends.items())
    kafka, batch = KafkaSettings(brokers=brokers, topic=topic), Batch()
    return Share(kafka, spans, len(spans), batch.max_arrow_records, batch.max_arrow_bytes, batch.max_record_bytes)
