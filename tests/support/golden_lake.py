"""The golden lake: made by an earlier release, kept with its topic and its schemas, opened by each release after it.

tests/cases/make_golden_lake.py says how it was made and what lies in its folder.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from deltalake import DeltaTable

from scripts.local.artifacts import ROOT
from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from tests.chaos.stage import Stage

FOLDER = Path(__file__).parents[1] / "cases" / "golden_lake"
ARCHIVE = FOLDER / "lake.tar.gz"
ROWS = FOLDER / "rows"
SAID = FOLDER / "said"
TOPIC = "games"
SUBJECT = f"{TOPIC}-value"
EARLIER, LATER = "earlier", "later"  # what the lake had, and what came after: of records and of schemas
TIMEOUT_S = 30
RETENTION_H = 0.01  # of the lake's tables, so that what was replaced soon is beyond it, as it is ever after
BEYOND_RETENTION_S = RETENTION_H * 3600 + 10
PATIENCE = {"SCHEMAS__UNKNOWN_ID_GRACE_S": "1e12"}  # what waits goes on waiting, however old the lake is
NOBODY = "127.0.0.1:1"
ALONE = ("status", "doctor")  # commands that say something without servers
SHELL = """
names = [row.tableName for row in spark.sql("show tables").collect()]
for name in names: print(name, "some" if name == "pipeline_events" else spark.table(name).count())

spark.sql("select chips, _partition, _offset from silver_poker_events order by 1, 2, 3").show(50, False)
spark.sql("select odds, _partition, _offset from silver_rummy_events order by 1, 2, 3").show(50, False)
"""


def unpack(folder: Path) -> Path:
    """Lake and broker as they were, below the folder; returns the lake. It is always that of another start of the
    machine, also where it was made, so a start looks at what a power cut may have torn."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")
    mark = folder / "lake" / "_protolake" / "synced.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"boot": "another"}))
    return folder / "lake"


def records(when: str) -> list[dict[str, Any]]:
    """Records of the topic: partition, offset, timestamp (ms), key, headers and value (hex), and what the serializer
    was given, where the value is as it made it."""
    return [json.loads(line) for line in (FOLDER / "records" / f"{when}.jsonl").read_text().splitlines()]


def schemas(when: str) -> list[dict[str, Any]]:
    """What the registry holds, in the order in which it numbered them: id, references, schema."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "schemas" / f"{when}.json").read_text())
    return found


def register(url: str, *given: dict[str, Any]) -> None:
    """Register schemas; they get the ids that they say, if those before them are there."""
    client = SchemaRegistryClient({"url": url, "timeout": TIMEOUT_S})
    for schema in given:
        references = [SchemaReference(**reference) for reference in schema["references"]]
        found = client.register_schema(SUBJECT, Schema(schema["schema"], "PROTOBUF", references))
        assert found == schema["id"], f"the registry numbers it {found}, the records say {schema['id']}"


def allow_growth(url: str) -> None:
    """What the local stack sets too: Apicurio's own level refuses every added field."""
    SchemaRegistryClient({"url": url, "timeout": TIMEOUT_S}).set_compatibility(SUBJECT, "BACKWARD_TRANSITIVE")


def send(brokers: str, rows: list[dict[str, Any]]) -> None:
    """Produce records; they get the offsets that they say, if the topic is as it was."""
    producer = Producer({"bootstrap.servers": brokers, "acks": "all"})
    got: list[tuple[int, int]] = []
    for row in rows:
        producer.produce(
            TOPIC,
            _bytes(row["value"]),
            _bytes(row["key"]),
            row["partition"],
            timestamp=row["timestamp"],
            headers=[(name, _bytes(value)) for name, value in row["headers"]],
            on_delivery=lambda error, message: got.append((message.partition(), message.offset())),
        )
    producer.flush(30)
    assert sorted(got) == sorted((row["partition"], row["offset"]) for row in rows)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Stage, str]]:
    """The lake with a broker that has its topic, under the same topic id, and a registry that has its schemas; with
    the address of that."""
    unpack(folder)
    with Kafka(folder) as kafka, Registry(folder) as registry:
        allow_growth(registry.url)
        register(registry.url, *schemas(EARLIER))
        yield Stage(folder, kafka, registry, TOPIC, **PATIENCE), registry.url


def rows_by_arrow(lake: Path, table: str) -> list[str]:
    """The rows of a table as delta-rs and Arrow read it: a line of JSON each, sorted."""
    return _lines(DeltaTable(str(lake / table)).to_pyarrow_table())


def rows_by_polars(lake: Path, table: str) -> list[str]:
    """The same as Polars reads it."""
    return _lines(pl.read_delta(str(lake / table)).to_arrow())


def _lines(rows: pa.Table) -> list[str]:
    """Text, so that NaN equals NaN and -0.0 is not 0.0."""
    return sorted(json.dumps(_plain(row), sort_keys=True, ensure_ascii=False) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    """As JSON has it. Arrow gives the entries of a map as pairs, Polars as structs."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        entries = all(isinstance(one, tuple) for one in value)
        return [_plain(dict(zip(("key", "value"), one, strict=True)) if entries else one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def normal(text: str, lake: Path, brokers: str) -> str:
    """What a command printed, without what differs from one opening to the next: places, times, ids of requests."""
    text = text.replace(str(lake), "LAKE").replace(brokers, "BROKER")
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


VARIES = [
    # librdkafka words it by which of its timers ends first.
    (r"Timed out waiting for controller", "Failed while waiting for controller: Local: Timed out"),
    (r"(?m)^(>>> |\.\.\. )+", ""),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?", "TIME"),
    (r"\d+\.\d+ s\b", "N s"),
    (r"[\d,]+ records/s", "N records/s"),
    (r"age         \S+ s", "age         N s"),
    (r"request [0-9a-f]{12}\.", "request ID."),
]


def said(name: str) -> str:
    """What a command said, by the file that holds it."""
    return (SAID / f"{name}.txt").read_text()


def ask(stage: Stage, *command: str, stdin: str | None = None) -> str:
    """What a command prints, and its exit code in the last line."""
    done = stage.command(*command, stdin=stdin)
    return normal(f"{done.stdout}exit code {done.returncode}\n", stage.lake, stage.brokers)


def ask_alone(lake: Path, *command: str) -> str:
    """The same where there is no Java, and no server answers."""
    environment = {
        "PROTOLAKE_LAKE__PATH": str(lake),
        "PROTOLAKE_KAFKA__TOPIC": TOPIC,
        "PROTOLAKE_KAFKA__BROKERS": NOBODY,
        "PROTOLAKE_REGISTRY__URL": f"http://{NOBODY}",
        "PYTHONPATH": str(ROOT),
    }
    program = [sys.executable, "-m", "spark_app", *command]
    done = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True)
    return normal(f"{done.stdout}exit code {done.returncode}\n", lake, NOBODY)


def story(stage: Stage, registry_url: str) -> Iterator[tuple[str, str]]:
    """Open the lake and ask it everything: (name of a file in `said`, what was said) in this order."""
    yield "1-status", ask(stage, "status")
    yield "2-doctor", ask(stage, "doctor")
    yield "3-audit", ask(stage, "audit")
    send(stage.brokers, records(LATER))
    yield "4-run", ask(stage, "run", "--available-now")
    yield "5-status", ask(stage, "status")
    yield "6-audit", ask(stage, "audit")
    register(registry_url, *schemas(LATER))
    yield "7-run", ask(stage, "run", "--available-now")
    last = time.monotonic()
    yield "8-replay-dry-run", ask(stage, "replay", "--dry-run")
    yield "9-replay", ask(stage, "replay")
    yield "10-rebuild-dry-run", ask(stage, "rebuild", "--dry-run")
    yield "11-rebuild", ask(stage, "rebuild")
    yield "12-shell", ask(stage, "shell", stdin=SHELL)
    yield "13-status", ask(stage, "status")
    yield "14-audit", ask(stage, "audit")
    time.sleep(max(0.0, last + BEYOND_RETENTION_S - time.monotonic()))  # how many files it names depends on that
    yield "15-doctor", ask(stage, "doctor")
    yield "16-doctor-repair", ask(stage, "doctor", "--repair")
    yield "17-audit", ask(stage, "audit")


def tables(lake: Path) -> Mapping[str, list[str]]:
    """Every table of the lake and its rows, by Arrow."""
    names = sorted(path.parent.name for path in lake.glob("*/_delta_log"))
    return {name: rows_by_arrow(lake, name) for name in names}
