"""Measures microseconds of CPU per record and stage in a worker, from a real broker to files.

Each stage is the difference between two runs over the whole topic in this process, one of which stops earlier, so that
the costs of caches, copies and memory count in the stage that causes them. librdkafka's threads are included; Spark,
the driver and commits are not. The runs take turns.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, TopicPartition

from scripts.benches import messages, result, topics
from scripts.benches.options import Options
from scripts.benches.result import Figure, Finding
from scripts.benches.servers import open_servers
from scripts.benches.shape import Shape, game_names
from scripts.local.errors import LocalError
from scripts.local.options import TOPIC
from spark_app.decode import Decoder, decoder_for
from spark_app.kafka.consumer import kafka_input
from spark_app.kafka.consumer.kafka_input import Share
from spark_app.model.catalog import Catalog, Decodable, DecodeOptions
from spark_app.model.offsets import Span
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.schemas.descriptors import digest
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Batch
from spark_app.worker import task
from spark_app.worker.route import Routing
from spark_app.worker.task_plan import TaskPlan

WRONG = 65
END = 1 << 30  # pyarrow 26 cannot slice without an end
PARTS = {"flat": 1, "rich": 5}  # kind -> divisor of the number of records
RUNS = {  # stage -> the run that ends with it
    "Kafka to Arrow": "read",
    "decoding": "trusting",
    "strict judging": "strict",
    "routing, and silver's files": "silver",
    "bronze's files": "whole",
}
Run = Callable[[Iterator[pa.RecordBatch]], int]  # returns the number of records


def run(options: Options) -> Finding:
    """Measure and print."""
    shapes = [Shape(options.records // part, message=kind) for kind, part in PARTS.items()]
    with open_servers() as (folder, kafka, registry):
        measured = {}
        for shape in shapes:
            result.tell(f"filling a topic with {shape.words()} ...")
            name = f"{TOPIC}_{shape.message}"
            topics.fill(kafka.bootstrap, registry.url, name, shape)
            head = topics.register(registry.url, name, shape)[0]
            runs = _runs(shape, int.from_bytes(head[1:5]), folder)
            measured[shape.message] = _measure(_share_of(kafka.bootstrap, name), shape, runs, options.rounds)
    rows = [[stage, *(median(measured[kind][stage]) for kind in PARTS)] for stage in (*RUNS, "all")]
    result.show(["us of CPU a record", *PARTS], rows)
    figures = [
        Figure.of(f"us of CPU a record, {kind}: {stage}", us) for kind in PARTS for stage, us in measured[kind].items()
    ]
    return Finding(figures, {"records": options.records, "stages": measured})


def _share_of(brokers: str, topic: str) -> Share:
    """The whole topic as one share."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "log_level": 0})
    numbers = consumer.list_topics(topic).topics[topic].partitions
    ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in numbers}
    consumer.close()
    spans = tuple(Span(topic, number, 0, end) for number, end in ends.items())
    kafka, batch = KafkaSettings(brokers=brokers, topic=topic), Batch()
    return Share(kafka, spans, len(spans), batch.max_arrow_records, batch.max_arrow_bytes, batch.max_record_bytes)


def _measure(whole: Share, shape: Shape, runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Stage -> microseconds of each round, after a warm-up round."""
    found = defaultdict[str, list[float]](list)
    for number in range(1 + rounds):
        before = 0.0
        for stage, name in RUNS.items():
            used = _time(whole, runs[name], shape.records)
            if number:
                found[stage].append(used - before)
            before = used
        if number:
            found["all"].append(before)
        result.tell(f"{shape.message}: round {number} of {rounds}, {before:.2f} us a record")
    return dict(found)


def _time(whole: Share, run: Run, records: int) -> float:
    """Microseconds of CPU per record, of all threads."""
    began = time.process_time()
    handled = run(whole.read())
    kafka_input.close()
    if handled != records:
        raise LocalError(f"{handled:,} of {records:,} records were handled", WRONG)
    return (time.process_time() - began) / records * 1e6


def _runs(shape: Shape, schema_id: int, folder: Path) -> dict[str, Run]:
    data, _ = messages.compile_version(shape.message, 1)
    decodable = Decodable(schema_id, data, digest(data))
    strict, trusting = (_decoder(decodable, options) for options in (DecodeOptions(), DecodeOptions(strict=False)))
    catalog = Catalog({schema_id: decodable}, {}, frozenset(), {strict.full_name: strict.schema})
    games = {name: name for name in game_names(shape.games)}
    tables = {name: tuple(catalog.columns) for name in games}
    routing = Routing("game_name", games, frozenset(), room=False, messages=tables)
    plan = TaskPlan("", "part-0-a", TableNames(), routing, {}, 1, defer_new=True)

    def land(write_bronze: bool) -> Run:
        def run_task(batches: Iterator[pa.RecordBatch]) -> int:
            lake = tempfile.mkdtemp(dir=folder)
            try:
                made = task.run(batches, replace(plan, root=lake, write_bronze=write_bronze), catalog, "0")
            finally:
                shutil.rmtree(lake)
            return _placed(made)

        return run_task

    return {
        "read": lambda batches: sum(batch.num_rows for batch in batches),
        "trusting": lambda batches: sum(_decode(trusting, batch) for batch in batches),
        "strict": lambda batches: sum(_decode(strict, batch) for batch in batches),
        "silver": land(write_bronze=False),
        "whole": land(write_bronze=True),
    }


def _decoder(decodable: Decodable, options: DecodeOptions) -> Decoder:
    found = decoder_for(decodable, messages.INDEX, options)
    assert found is not None
    return found


def _decode(decoder: Decoder, batch: pa.RecordBatch) -> int:
    return len(decoder.decode(pc.binary_slice(batch.column("value"), topics.FRAME, END)).table)


def _placed(report: Report) -> int:
    return sum(report.silver.values())
