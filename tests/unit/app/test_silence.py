"""Silence is a fault: every cause has a detail, every wait says for what and what came, every reason is a sentence."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_app.app.pipeline import Pipeline
from spark_app.app.text import notes
from spark_app.model.causes import Cause
from spark_app.model.errors import ProtolakeError, last_message_line
from spark_app.protobuf.schemas.registry import NoRegistry, RegistryAccessDenied, RegistryUnreachable
from spark_app.settings.models import Settings
from spark_app.sources.kafka.topics import BrokerAccessDenied, BrokerUnreachable, TopicMissing
from spark_app.units.driver.disk_space import DiskSpaceGuard
from spark_app.units.spark.cluster import MasterUnreachable
from tests.chaos import read_back
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.games import Game
from tests.support.lakes import SmallLake
from tests.support.quarantines import SCHEMA, event, quarantine_lake
from tests.support.statuses import EVERYTHING, status_of

APP = Path(__file__).parents[3] / "spark_app"


def taken(root: Path, *values: bytes, **sections: Any) -> SmallLake:
    lake = SmallLake(root, SCHEMA, **sections)
    lake.take(batch_of(values))
    return lake


def other_tables(root: Path, **tables: Any) -> SmallLake:
    """A lake with the table uno, and then records of another one."""
    lake = taken(root, frame(1, event()))
    lake.reopen(tables=tables)
    lake.take(batch_of([frame(1, event("ono")), frame(1, event("UNO"))], first=1))
    return lake


def refused(root: Path, cause: Cause, why: str) -> SmallLake:
    """A schema that was refused when it was resolved."""
    lake = SmallLake(root, SCHEMA)
    lake.opened.resolver.ledger.add_refused(7, cause, why, 0.0)
    lake.take(batch_of([frame(7, event())]))
    return lake


def unknown(root: Path, answers: Answers) -> SmallLake:
    """A schema that the registry does not know for long enough."""
    lake = SmallLake(root, SCHEMA, registry={"url": answers.url}, schemas={"unknown_id_grace_s": 0.01})
    lake.opened.resolver.resolve_new([7])
    time.sleep(0.02)
    lake.opened.resolver.resolve(7)
    lake.take(batch_of([frame(7, event())]))
    return lake


def changed(root: Path, answers: Answers) -> SmallLake:
    """A version whose change goes to quarantine."""
    game = Game(answers, root, "int64 a = 3;", "int64 b = 3;", rename="quarantine")
    game.send(1, {"a": "1"})
    game.send(2, {"b": "1"})
    return game.lake


def text_for_number(root: Path, answers: Answers) -> SmallLake:
    game = Game(answers, root, "string a = 3;", "repeated string a = 3;", repeated="warn")
    game.send(1, {"a": "1"})
    game.send(2, {"a": ["1", "2"]})
    return game.lake


def out_of_range(root: Path, answers: Answers) -> SmallLake:
    fields = "string game_name = 1; google.protobuf.Timestamp t = 2;"
    text = f'import "google/protobuf/timestamp.proto"; message Event {{ {fields} }}'
    lake = Game(answers, root, text).lake
    seconds = b"\x12\x0a\x08" + b"\x80" * 8 + b"\x01"  # 2^56
    lake.take(batch_of([frame(11, b"\x0a\x03uno" + seconds)]))
    return lake


LAKES: dict[str, Callable[[Path, Answers], SmallLake]] = {
    "bytes": lambda root, _: quarantine_lake(root),
    "size": lambda root, _: taken(root, frame(1, event()) + b"x" * 100, batch={"max_record_bytes": 90}),
    "wrapper": lambda root, _: taken(root, frame(1, event()), wrapper={"payload": "data"}),
    "no routing field": lambda root, _: taken(root, frame(1, event()), event={"routing": "game"}),
    "routing field of no kind": lambda root, _: taken(root, frame(1, event()), event={"routing": "player"}),
    "empty routing value": lambda root, _: taken(root, frame(1, event(""))),
    "not allowed": lambda root, _: other_tables(root, allowlist=("uno",)),
    "no room": lambda root, _: other_tables(root, max_tables=1),
    "invalid schema": lambda root, _: refused(root, Cause.SCHEMA_INVALID, "its type is AVRO, not PROTOBUF"),
    "unknown schema": unknown,
    "changed schema": changed,
    "type": text_for_number,
    "time": out_of_range,
    "wire type": lambda root, _: taken(
        root, frame(1, event() + b"\x10\x01"), decode={"other_wire_types": "quarantine"}
    ),
}
WITH_SPARK = {Cause.DECODE_CRASH}  # tests/spark/test_spark_deferred.py


def test_every_cause_has_a_detail_that_says_something(tmp_path: Path, answers: Answers) -> None:
    met: dict[str, set[str]] = {}
    for number, (name, make) in enumerate(LAKES.items()):
        lake = make(tmp_path / str(number), answers)
        rows = read_back.read(lake.lake.root, "quarantine_events", ["cause", "detail"]).to_pylist()
        assert rows, name
        for row in rows:
            met.setdefault(row["cause"], set()).add(str(row["detail"]))
    silent = {(cause, text) for cause, texts in met.items() for text in texts if text.strip("'\" ") in ("", "None")}
    assert silent == set()
    assert {cause.value for cause in set(Cause) - WITH_SPARK} - met.keys() == set()


class SparkError(Exception):
    """With the text of an error of Spark."""


REASONS = {
    "plan": (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `a`.`b` cannot be resolved. SQLSTATE: 42703;\n"
        "'Aggregate [table#1], [table#1]\n+- Union false, false\n   +- LogicalRDD [a#2], false\n",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `a`.`b` cannot be resolved. SQLSTATE: 42703;",
    ),
    "java": (
        "An error occurred while calling o82.start.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(c:1)\n"
        "Caused by: java.lang.X\n\t... 12 more",
        "org.apache.spark.SparkException: Job aborted",
    ),
    "python": (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in y\n    z()\nValueError: no such unit\n',
        "ValueError: no such unit",
    ),
    "nothing": ("", "SparkError"),
    "lines": ("first line\nsecond line", "first line"),
}


@pytest.mark.parametrize(("text", "reason"), REASONS.values(), ids=REASONS)
def test_a_reason_is_a_sentence(text: str, reason: str) -> None:
    assert last_message_line(SparkError(text)) == reason


WAITS: dict[str, tuple[str, Exception, str]] = {
    "no broker": ("broker", BrokerUnreachable("timed out"), "broker b:1: timed out"),
    "no topic": ("broker", TopicMissing("there is no topic x"), "broker b:1: there is no topic x"),
    "no right": ("broker", BrokerAccessDenied("wrong password"), "broker b:1: wrong password"),
    "no registry": (
        "registry",
        RegistryUnreachable("HTTP 502: bad gateway"),
        "registry http://r: HTTP 502: bad gateway",
    ),
    "other server": ("registry", NoRegistry("it answers, but not"), "registry http://r: it answers, but not"),
    "no master": ("master", MasterUnreachable("refused"), "master local[2,4]: refused"),
}


@pytest.mark.parametrize(("what", "error", "said"), WAITS.values(), ids=WAITS)
def test_a_wait_names_what_it_waits_for_and_the_answer(tmp_path: Path, what: str, error: Exception, said: str) -> None:
    sections = {"kafka": {"brokers": "b:1"}, "registry": {"url": "http://r"}, "run": {"connect_timeout_s": 0.01}}
    settings = Settings(lake={"path": str(tmp_path)}, **sections)  # type: ignore[arg-type]
    pipeline = Pipeline(settings)

    def fail() -> None:
        raise error

    seen: list[str] = []
    pipeline.status.waiting = seen.append  # type: ignore[method-assign, assignment]
    with pytest.raises(ProtolakeError) as ended:
        pipeline._await(what, fail)
    assert seen[0] == said
    assert said.partition(": ")[2] in str(ended.value)


def test_a_registry_that_refuses_ends_at_once(tmp_path: Path) -> None:
    def fail() -> None:
        raise RegistryAccessDenied("HTTP 401: who are you?", "check registry.username")

    with pytest.raises(ProtolakeError, match=r"HTTP 401: who are you\?: check registry.username"):
        Pipeline(Settings(lake={"path": str(tmp_path)}))._await("registry", fail)  # type: ignore[arg-type]


def test_every_place_that_waits_is_known() -> None:
    """A new one needs a test like those above: what it waits for, and what it was told."""
    places = {
        f"{path.relative_to(APP)}": ast.unparse(call.args[0])
        for path in sorted(APP.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and re.fullmatch(r"self\._?status\.waiting", ast.unparse(call.func))
        and ast.unparse(call.args[0]) != "None"
    }
    assert places == {
        "app/lifecycle.py": places["app/lifecycle.py"],  # starts that committed nothing, and the log
        "app/pipeline.py": "reason",
        "units/driver/disk_space.py": "str(short)",  # the folder and its free space, or the error
        "units/driver/executor_watch.py": "reason",  # the master and what to look at
        "units/driver/file_stream.py": "source.planner.rewritten or None",
        "units/driver/streaming.py": places["units/driver/streaming.py"],
    }
    assert "{problem} ({first_line(text)})" in places["units/driver/streaming.py"]


def test_every_note_of_a_status_says_why() -> None:
    failed = {"unit": 5, "lag": 3, "paused": None, "failed": "a file is gone"}
    value = status_of(
        **EVERYTHING
        | {
            "followers": {"gold": failed, "events": failed | {"paused": "units 1 to 3 were removed", "failed": None}},
            "gold_failed": {"gold_uno": "its silver is damaged"},
            "faults": {"event.key = x": "no message has such a field"},
            "awaited": {"7": "the registry says: HTTP 404: Schema not found"},
            "held_back": {"t/0": 5},
        }
    )
    lines = notes(value)
    assert [line for line in lines if re.search(r"None|: *$|\{\}", line)] == []
    for words in (
        "a file is gone",
        "units 1 to 3 were removed",
        "its silver is damaged",
        "event.key = x: no message has such a field",
        "records wait for 7: the registry says: HTTP 404",
    ):
        assert any(words in line for line in lines), words


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path).lake
    short = DiskSpaceGuard(lake, 1 << 60, None, None).shortage()  # type: ignore[arg-type]
    assert short is not None
    assert str(tmp_path) in short
