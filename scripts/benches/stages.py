"""Measures microseconds of CPU per record and stage in a worker, from a real broker to files.

Each stage is the difference between two runs over the whole topic in this process, one of which stops earlier, so that
the costs of caches, copies and memory count in the stage that causes them. librdkafka's threads are included; Spark,
the driver and commits are not. The runs take turns.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from scripts.benches import messages, result, topics
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import open_servers
from scripts.benches.shape import Shape
from scripts.benches.tasks import Run, Source, Task
from scripts.local.options import TOPIC
from spark_app.model.catalog import Decodable, DecodeOptions
from spark_app.protobuf.decode import Decoder, decoder_for

END = 1 << 30  # pyarrow 26 cannot slice without an end
PARTS = {"flat": 1, "rich": 5}  # kind -> divisor of the number of records
RUNS = {  # stage -> the run that ends with it
    "Kafka to Arrow": "read",
    "decoding": "trusting",
    "strict judging": "strict",
    "routing, and silver's files": "silver",
    "bronze's files": "whole",
}


def run(options: Options) -> Result:
    """Measure and print."""
    shapes = [Shape(options.records // part, message=kind) for kind, part in PARTS.items()]
    with open_servers() as (folder, kafka, registry):
        measured = {}
        for shape in shapes:
            source = Source.fill(kafka.bootstrap, registry.url, f"{TOPIC}_{shape.message}", shape)
            measured[shape.message] = _measure(source, _runs(Task.of(source, folder)), options.rounds)
    rows = [[stage, *(median(measured[kind][stage]) for kind in PARTS)] for stage in (*RUNS, "all")]
    result.show(["us of CPU a record", *PARTS], rows)
    figures = [
        Figure.of(f"us of CPU a record, {kind}: {stage}", us) for kind in PARTS for stage, us in measured[kind].items()
    ]
    return Result(figures, {"records": options.records, "stages": measured})


def _measure(source: Source, runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Stage -> microseconds of each round, after a warm-up round."""
    found = defaultdict[str, list[float]](list)
    for number in range(1 + rounds):
        before = 0.0
        for stage, name in RUNS.items():
            used = source.cpu_us(runs[name])
            if number:
                found[stage].append(used - before)
            before = used
        if number:
            found["all"].append(before)
        result.log_progress(f"{source.shape.message}: round {number} of {rounds}, {before:.2f} us a record")
    return dict(found)


def _runs(task: Task) -> dict[str, Run]:
    strict, trusting = (_decoder(task.decodable, options) for options in (DecodeOptions(), DecodeOptions(strict=False)))

    def land(write_bronze: bool) -> Run:
        return lambda batches: sum(task.run(batches, write_bronze=write_bronze).silver.values())

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
