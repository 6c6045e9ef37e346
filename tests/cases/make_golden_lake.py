"""Makes golden_lake/: a lake as release `a00e4ee` leaves it, with its topic and its schemas, to be opened for ever.

    python -m tests.cases.make_golden_lake make    # everything anew, by the code that is checked out
    python -m tests.cases.make_golden_lake said    # only `said`: the lake stays, today's code is asked

`make` was run once, at a00e4ee, and is here to show how. To add a lake of a later release, let it write to another
folder: a lake that is there is what somebody has, so a release that no longer opens it is at fault, not the lake.
`said` is for a change of what a command prints: look at the difference, it is what people will read of their own lakes.

    lake.tar.gz            lake/, the lake, and kafka/, the data folder of its broker: a topic made anew would have
                           another topic id, which a start refuses
    records/earlier.jsonl  what the topic holds; later.jsonl: what is produced when the lake is open
    schemas/earlier.json   what the registry holds, in the order of its ids; later.json: what it is told at last
    rows/<table>.jsonl     every row, as delta-rs read it; the order is that of the text
    said/<n>-<command>.txt what each command printed, one after another (tests/support/golden_lake.py has the story)

Values are by Confluent's ProtobufSerializer against a real registry, and spoiled afterwards where they are meant to
end in quarantine. The lake has seven games; two schema versions, and records of a third that its registry does not
know yet, which wait; compacted tables, among them silver_poker_events with uint64 values at which bounds go wrong and
silver_rummy_events with doubles (NaN, -0.0); a replay of one partition of what an allow-list had refused, and a request
to replay the rest, asked for and not executed.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill, wait_until
from tests.support import golden_lake
from tests.support.golden_lake import EARLIER, FOLDER, LATER, PATIENCE, SUBJECT, TOPIC
from tests.support.protos import compile_text, message_class

V1 = """syntax = "proto3";
package golden;
import "google/protobuf/timestamp.proto";
message Event {
  enum Kind { UNKNOWN = 0; DEAL = 1; PLAY = 2; FOLD = 3; }
  message Card { string suit = 1; int32 rank = 2; }
  string game_name = 1;
  string gamer_id = 2;
  google.protobuf.Timestamp event_timestamp = 3;
  optional uint64 chips = 4;
  optional double odds = 5;
  Kind kind = 6;
  repeated Card cards = 7;
  map<string, int64> scores = 8;
  optional bytes token = 9;
  oneof result { bool won = 10; sint32 points = 11; }
}
message Seat {
  string game_name = 1;
  string gamer_id = 2;
  google.protobuf.Timestamp event_timestamp = 3;
  string compass = 4;
}
"""
# The index of Move.Undo depends on who writes it, for it comes behind a map: no record is of it.
V2 = V1.replace(
    "sint32 points = 11; }\n",
    "sint32 points = 11; }\n  string device_id = 12;\n  optional float ratio = 13;\n  repeated uint64 pots = 14;\n",
) + ("message Move { string game_name = 1; map<string, string> notes = 2; message Undo { string why = 1; } }\n")
V3 = V2.replace("repeated uint64 pots = 14;\n", "repeated uint64 pots = 14;\n  optional string comment = 15;\n")

CHIPS = [5, 2**64 - 1, 7, 2**63, 2**53 + 1]
ODDS = [1.0, "NaN", -5.0, 0.0, -0.0]
MOMENT_MS = 1_790_000_000_000
HASTY = {"SCHEMAS__UNKNOWN_ID_GRACE_S": "0.1"}
ALLOWED = '["bridge", "chess", "go", "hearts", "poker", "rummy"]'


class Writer:
    """Makes records; a registry that is told of every schema numbers them as the lake's own will."""

    def __init__(self, url: str):
        golden_lake.allow_growth(url)
        self.client = SchemaRegistryClient({"url": url, "timeout": golden_lake.TIMEOUT_S})
        self.schemas: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self._ends = {0: 0, 1: 0}
        self._kinds: dict[tuple[str, str], Any] = {}
        for text in (V1, V2, V3):
            self._learn(text)

    def _learn(self, text: str) -> None:
        """The serializer registers the schema by itself."""
        decodable = compile_text(text)
        for name in ("golden.Event", "golden.Seat"):
            kind = message_class(decodable, name)
            self._kinds[text, name] = kind, ProtobufSerializer(kind, self.client, {})
            self._serialize(text, name, {})
        found = self.client.get_version(SUBJECT, len(self.schemas) + 1)
        references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in found.schema.references]
        schema = {"id": found.schema_id, "references": references, "schema": found.schema.schema_str}
        self.schemas.append(schema)

    def _serialize(self, text: str, name: str, fields: dict[str, Any]) -> bytes:
        kind, serializer = self._kinds[text, name]
        value = serializer(json_format.ParseDict(fields, kind()), SerializationContext(TOPIC, MessageField.VALUE))
        assert isinstance(value, bytes)
        return value

    def add(
        self,
        text: str,
        game: str,
        message: str = "Event",
        spoil: Callable[[bytes], bytes | None] | None = None,
        headers: tuple[tuple[str, str | None], ...] = (),
        **fields: Any,
    ) -> None:
        """A record for `game`, on alternate partitions for each game."""
        number = len(self.records)
        moment = MOMENT_MS + 1000 * number
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 1000)) + f".{number % 1000:06d}Z"
        given = {"game_name": game, "gamer_id": f"gamer-{number % 5}", "event_timestamp": when} | fields
        value: bytes | None = self._serialize(text, f"golden.{message}", given)
        if spoil:
            assert value
            value = spoil(value)
        partition = sum(record["game"] == game for record in self.records) % 2
        self.records.append(
            {
                "game": game,
                "partition": partition,
                "offset": self._ends[partition],
                "timestamp": moment,
                "key": None if number % 4 == 3 else f"key-{number}".encode().hex(),
                "headers": list(headers),
                "value": None if value is None else value.hex(),
                "message": None if spoil else message,
                "fields": None if spoil else given,
            }
        )
        self._ends[partition] += 1


def add_round(writer: Writer, text: str, turn: int) -> None:
    """A record for each of the seven games, each with fields that the others do not have."""
    kind = ["DEAL", "PLAY", "FOLD"][turn % 3]
    writer.add(text, "poker", chips=str(CHIPS[turn % 5]), kind=kind)
    writer.add(text, "rummy", odds=ODDS[turn % 5], kind=kind)
    writer.add(text, "bridge", "Seat" if turn % 2 else "Event", **({"compass": "NESW"[turn % 4]} if turn % 2 else {}))
    writer.add(text, "chess", won=turn % 2 == 0) if turn % 3 else writer.add(text, "chess", points=-turn)
    writer.add(text, "go", token="AAH/" if turn % 2 else "", headers=(("trace", "0001"), ("trace", None)))
    writer.add(text, "hearts", cards=[{"suit": "♥", "rank": turn}, {}][: turn % 3], scores={"b": "2", "": str(-turn)})
    writer.add(text, "uno", gamer_id="" if turn == 2 else "ünø")


def add_bad(writer: Writer) -> None:
    """What ends in quarantine, by as many causes, and a tombstone."""
    writer.add(V1, "go", spoil=lambda frame: None)
    writer.add(V1, "go", spoil=lambda frame: b"\x00\x00")
    writer.add(V1, "go", spoil=lambda frame: b"\x7b" + frame[1:])
    writer.add(V1, "go", spoil=lambda frame: frame[:5] + b"\xff" * 16)
    writer.add(V1, "go", spoil=lambda frame: frame[:5] + b"\x02\xc8\x01" + frame[6:])
    writer.add(V1, "go", spoil=lambda frame: frame[:1] + (0x7FFFFF00).to_bytes(4, "big") + frame[5:])
    writer.add(V1, "go", spoil=lambda frame: frame[:-1])
    writer.add(V1, "go", spoil=lambda frame: frame + b"\x1a\x0a\x08" + b"\x80" * 8 + b"\x10")
    writer.add(V1, "")
    writer.add(V1, "../../etc/lake")


def make_records(writer: Writer) -> list[list[dict[str, Any]]]:
    """Records in the order in which the app is to take them: those of one list come at once."""
    parts = []
    for turn in range(5):
        add_round(writer, V1, turn)
        parts.append(_taken(writer, parts))
    add_bad(writer)
    parts.append(_taken(writer, parts))
    more = {"device_id": "d", "ratio": 0.5, "pots": ["0", str(2**64 - 1)]}
    for game in ("poker", "rummy", "bridge", "chess", "go", "hearts", "uno"):
        writer.add(V2, game, **more)
    writer.add(V1, "poker", chips="9007199254740992")
    writer.add(V1, "rummy", odds="Infinity")
    parts.append(_taken(writer, parts))
    for game in ("poker", "go", "poker"):
        writer.add(V3, game, comment="not yet", chips="18446744073709551614")
    writer.add(V2, "chess", points=1, device_id="e")
    parts.append(_taken(writer, parts))
    add_round(writer, V1, 5)
    add_round(writer, V2, 6)
    writer.add(V3, "rummy", comment="waits too", odds="-Infinity")
    writer.add(V1, "go", spoil=lambda frame: b"\x7b" + frame[1:])
    parts.append(_taken(writer, parts))
    return parts


def _taken(writer: Writer, parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return writer.records[sum(map(len, parts)) :]


def make(folder: Path) -> None:
    """The lake and all that is kept of it, in FOLDER; works in `folder`."""
    with Registry(folder / "ahead") as ahead:
        writer = Writer(ahead.url)
        *parts, later = make_records(writer)
    earlier = [record for part in parts for record in part]
    for name in ("records", "schemas", "rows"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        (FOLDER / name).mkdir(parents=True)
    for when, records in ((EARLIER, earlier), (LATER, later)):
        lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
        (FOLDER / "records" / f"{when}.jsonl").write_text(lines)
    for when, schemas in ((EARLIER, writer.schemas[:2]), (LATER, writer.schemas[2:])):
        (FOLDER / "schemas" / f"{when}.json").write_text(json.dumps(schemas, indent=1) + "\n")
    with Kafka(folder) as kafka, Registry(folder) as registry:
        golden_lake.allow_growth(registry.url)
        make_topic(kafka.bootstrap)
        stage = Stage(
            folder, kafka, registry, TOPIC, **PATIENCE, LAKE__LOG_RETENTION_HOURS=str(golden_lake.RETENTION_H)
        )
        fill(stage, registry.url, parts)
    pack(folder)
    for name, rows in golden_lake.tables(stage.lake).items():
        (FOLDER / "rows" / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))


def make_topic(brokers: str) -> None:
    """One that keeps its records for ever."""
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(TOPIC, 2, 1, config=kept)])[TOPIC].result(30)


def fill(stage: Stage, registry_url: str, parts: list[list[dict[str, Any]]]) -> None:
    """Run the app on the records, part by part, and leave a request behind."""
    *rounds, bad, bumped, waiting = parts
    first, second = golden_lake.schemas(EARLIER)
    golden_lake.register(registry_url, first)
    many = {"LAKE__COMPACT_FILES": "4", "BATCH__INTERVAL_S": "0.2", "GOLD__INTERVAL_S": "1000"}
    app = stage.start(TABLES__ALLOWLIST=ALLOWED, **many, **HASTY)
    try:
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        taken = 0
        for part in (*rounds, bad):
            golden_lake.send(stage.brokers, part)
            taken += len(part)
            wait_until(lambda taken=taken: stage.status().get("bronze") == taken, "the batch")
        wait_until(lambda: "schema_unknown" in stage.status()["quarantine"], "the end of patience")
        golden_lake.register(registry_url, second)
        golden_lake.send(stage.brokers, bumped)
        assert app.wait(60) == ExitCode.BUMP
    finally:
        kill(app)
    assert stage.run("--available-now", TABLES__ALLOWLIST=ALLOWED) == 0
    done = stage.command("replay", "--cause", "route_refused", "--partition", "0")
    assert done.returncode == 0, done.stderr
    golden_lake.send(stage.brokers, waiting)
    assert stage.run("--available-now") == 0
    assert read_back.read(stage.lake, "deferred_events").num_rows == 3
    assert read_back.read(stage.lake, "resolved_events").num_rows >= 2
    print(stage.command("status").stdout, stage.command("audit").stdout, sep="\n")
    nobody = {"schemas": [], "since": None, "until": None, "topic": None, "partition": None, "offsets": None}
    requests.submit(Lake(stage.lake), Request("replay", {"causes": ["route_refused"], **nobody}))
    time.sleep(golden_lake.BEYOND_RETENTION_S)


def pack(folder: Path) -> None:
    """lake/ and kafka/data, without the owner's name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("lake", "kafka/data"):
            tar.add(folder / name, name, filter=_nobody)
    with (FOLDER / "lake.tar.gz").open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed:
        compressed.write(packed.getvalue())


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def say(folder: Path) -> None:
    """What today's code says of the lake."""
    shutil.rmtree(FOLDER / "said", ignore_errors=True)
    (FOLDER / "said").mkdir()
    lake = golden_lake.unpack(folder / "alone")
    for command in golden_lake.ALONE:
        (FOLDER / "said" / f"alone-{command}.txt").write_text(golden_lake.ask_alone(lake, command))
    with golden_lake.opened(folder) as (stage, url):
        for name, text in golden_lake.story(stage, url):
            (FOLDER / "said" / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        if sys.argv[1:] == ["make"]:
            make(Path(scratch) / "made")
        if sys.argv[1:] not in (["make"], ["said"]):
            sys.exit(__doc__)
        say(Path(scratch) / "opened")
