"""Seconds per batch into few and into many silver tables: the cost must stay flat in the number of tables.

Each number of tables has a lake of its own. A batch is what the app does for one: the pass as a Spark job (from records
cached in Spark, so that no source is measured), the manifest, the commits; compaction and gold are not counted. The
sizes take turns in one run, so that other work on the machine meets them alike.
"""

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from producer.encoder import Encoder
from scripts.benches import frames, result
from scripts.benches.options import Options
from scripts.benches.progress import cpu_seconds
from scripts.benches.servers import app_settings
from scripts.local.registry import Registry
from spark_app import config, session
from spark_app.driver.settle import SchemaDesk, TableDesk, caps_of
from spark_app.driver.unit import Origin, UnitRunner
from spark_app.lake import Lake
from spark_app.ops.events import LEVELS, log
from spark_app.records import Offsets, Report
from spark_app.schemas.ledger import Ledger
from spark_app.schemas.registry import Registry as SchemaSource
from spark_app.store.commit import Committer
from spark_app.store.manifest import Change, Manifest, Manifests, counts_of

WARMING = 2  # the first batch admits the tables and so runs the pass twice
TARGETS = {50: 1.5, 200: 2.0, 1000: 4.0}  # most tables -> most times the seconds with 7 tables
STEPS = ("pass", "decide", "commit")
NOBODY = "127.0.0.1:9"


@dataclass
class Case:
    """One lake and its records. `seconds` has one entry per measured batch: pass, decide, commit."""

    tables: int
    count: int
    records: DataFrame
    units: UnitRunner
    manifests: Manifests
    committer: Committer
    seconds: list[tuple[float, float, float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def batch(self) -> tuple[float, float, float]:
        """One batch, decided and committed."""
        began = time.perf_counter()
        sequence = self.manifests.last + 1
        spread = self.units.spread(self.records, self.count)
        report = self.units.run(spread, sequence, Origin({}, settle_in_place=True))
        passed = time.perf_counter()
        manifest = _manifest(sequence, report)
        self.manifests.decide(manifest)
        decided = time.perf_counter()
        self.committer.finish(manifest)
        return passed - began, decided - passed, time.perf_counter() - decided

    def files(self) -> int:
        """Files that the last unit added."""
        return sum(len(change.adds) for change in self.manifests.read(self.manifests.last).tables.values())

    def total(self) -> float:
        return median(sum(batch) for batch in self.seconds)

    def times(self) -> list[float]:
        """Medians: the whole batch, then each of its steps."""
        return [self.total(), *(median(batch[step] for batch in self.seconds) for step in range(len(STEPS)))]

    def load_of(self, other: "Case") -> float:
        """CPU time of a batch as a multiple of the other's: other work on the machine hardly changes it."""
        return median(self.cpu) / median(other.cpu)


def run(options: Options) -> None:
    """Measure, print, keep."""
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name, Registry(Path(name)) as registry:
        folder = Path(name)
        log.level = LEVELS["WARNING"]
        os.environ.update(app_settings(folder, NOBODY, registry.url))
        settings = config.load()
        encoder = frames.new_encoder(settings.kafka.topic, registry.url)
        spark = session.start(settings, "bench", quiet=True)
        try:
            cases = [_prepare(spark, folder, settings, encoder, number, options) for number in options.tables]
            _measure(cases, options.batches)
            _report(cases, options)
        finally:
            session.end(clean=True)


def _prepare(
    spark: SparkSession,
    folder: Path,
    settings: config.Settings,
    encoder: Encoder,
    tables: int,
    options: Options,
) -> Case:
    result.tell(f"preparing {options.records:,} records for {tables} tables ...")
    source = folder / f"records-{tables}"
    topic = settings.kafka.topic
    paths = frames.write_records(source, encoder, topic, tables, options.records, options.partitions)
    lake = Lake(folder / f"lake-{tables}")
    lake.prepare()
    manifests = Manifests(lake, settings.tables.layout)
    schemas = SchemaDesk(
        Ledger(lake.schemas), SchemaSource(settings.registry, caps_of(settings.schemas)), settings.schemas
    )
    schemas.learn_subject(settings.subject)
    capped = settings.tables.model_copy(update={"cap": max(tables, settings.tables.cap)})
    desk = TableDesk(lake, settings.event, capped)
    units = UnitRunner(spark, lake, settings, schemas, desk)
    return Case(
        tables, options.records, _cached(spark, paths), units, manifests, Committer(lake, manifests, settings.lake)
    )


def _cached(spark: SparkSession, paths: list[Path]) -> DataFrame:
    """The files in Spark's memory, a task for each, as Kafka's source gives one for each partition."""
    records = spark.read.parquet(str(paths[0]))
    for path in paths[1:]:
        records = records.union(spark.read.parquet(str(path)))
    records = records.cache()
    records.count()
    return records


def _manifest(sequence: int, report: Report) -> Manifest:
    start, end = _offsets(sequence - 1), _offsets(sequence)
    changes = {table: Change(files) for table, files in report.files.items()}
    source = {"batch": sequence - 1, "start": start, "end": end, "topic_ids": {}}
    return Manifest(sequence, "ingest", source, changes, counts_of(report))


def _offsets(sequence: int) -> Offsets:
    return {"bench": {"0": sequence}}


def _measure(cases: list[Case], batches: int) -> None:
    for number in range(WARMING + batches):
        for case in cases:
            used = cpu_seconds(os.getpid())
            seconds = case.batch()
            if number >= WARMING:
                case.seconds.append(seconds)
                case.cpu.append(cpu_seconds(os.getpid()) - used)
        result.tell(f"batch {number + 1} of {WARMING + batches}: " + ", ".join(_brief(case) for case in cases))


def _brief(case: Case) -> str:
    return f"{case.tables} tables {sum(case.seconds[-1]):.2f} s" if case.seconds else f"{case.tables} tables warming"


def _report(cases: list[Case], options: Options) -> None:
    first = cases[0]
    result.show(
        ["tables", "files", "s/batch", *STEPS, f"ratio to {first.tables}", "CPU s", "ratio"],
        [[c.tables, c.files(), *c.times(), c.total() / first.total(), median(c.cpu), c.load_of(first)] for c in cases],
    )
    for case in cases[1:]:
        ratio = f"{case.tables} tables / {first.tables} tables:"
        target = next((TARGETS[most] for most in TARGETS if case.tables <= most), None)
        if first.tables == 7 and target:
            print(result.judge(ratio, case.total() / first.total(), target, at_most=True))
    print(f"medians of {options.batches} batches of {options.records:,} records, load {result.load()}")
    measured = [
        {"tables": c.tables, "files": c.files(), "seconds": c.seconds, "cpu": c.cpu, "median": c.total()} for c in cases
    ]
    result.keep("tables", {"records": options.records, "partitions": options.partitions, "cases": measured})
