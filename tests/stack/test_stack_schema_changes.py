"""Each case of a changed schema, registered for real: what the policies make of it, three versions in a chain."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from deltalake import DeltaTable
from google.protobuf import json_format

from scripts.change_cases import CASES, PROTO2, Case
from scripts.local.registry import Registry
from tests.support.decisions import accept, drain, waiting
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import compile_text, message_class

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
SENT = [case for case in CASES if case.sent]
LATER = "later"  # a field that the third version adds


def name(case: Case) -> str:
    return f"{case.kind} {case.policy or ''}: {case.shown[0]} -> {case.shown[1]}"


class Subject:
    """The subject of a topic of its own in the registry."""

    def __init__(self, server: Registry, level: str = "NONE"):
        self.topic = f"changes_{uuid.uuid4().hex}"
        self._client = SchemaRegistryClient({"url": server.url})
        self._client.set_compatibility(f"{self.topic}-value", level)

    def register(self, text: str) -> int:
        found: int = self._client.register_schema(f"{self.topic}-value", Schema(text, "PROTOBUF"))
        return found


class Game:
    """A lake that takes the records of a case. Its settings name the policies of the case."""

    def __init__(self, root: Path, server: Registry, subject: Subject, case: Case, policy: str = ""):
        self.case = case
        routed = "game_name" in case.old
        self._table = "uno" if routed else "event"
        changes = {**case.policies, **({case.kind: policy} if policy else {})}
        self.lake = SmallLake(
            root,
            topic=subject.topic,
            registry={"url": server.url},
            kafka={"topic": subject.topic},
            schemas={"changes": changes},
            event={"route_by": "field" if routed else "message"},
        )
        self.texts = [*case.versions, _with_later_field(case)]
        self.ids = [subject.register(text) for text in self.texts]

    def send(self, number: int, values: list[dict[str, Any]]) -> None:
        """A unit of records of a version; -1 is the last one."""
        text = self.texts[number]
        kind = message_class(compile_text(text), "Event")
        payloads = [json_format.ParseDict(value, kind()).SerializePartialToString() for value in values]
        index = (text.count("message ", 0, text.index("message Event")),)
        framed = [frame(self.ids[number], payload, index) for payload in payloads]
        self.lake.take(batch_of(framed, first=self.lake.ends.get(0, 0), topic=self.lake.topic))

    def send_all(self) -> None:
        """A record of the first version, and the records of the case twice: of the second and of the third version."""
        first = {"game_name": "uno"} if self._table == "uno" else {}
        self.send(-3, [first])
        self.send(-2, list(self.case.sent))
        self.send(-1, [{**value, LATER: "x"} for value in self.case.sent])

    def landed(self) -> dict[int, dict[str, Any] | str]:
        """Offset -> the row, or the cause for which there is none. Those that wait are left out."""
        found: dict[int, dict[str, Any] | str] = {
            row["_offset"]: row for row in self._rows(f"silver_{self._table}_events")
        }
        return found | {row["offset"]: row["cause"] for row in self._rows("quarantine_events")}

    def _rows(self, table: str) -> list[dict[str, Any]]:
        path = str(self.lake.lake.path(table))
        return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []

    def check(self) -> None:
        """All records became what the case says, and the second reader agrees."""
        landed = self.landed()
        count = len(self.case.sent)
        assert set(landed) == set(range(2 * count + 1))
        assert isinstance(landed[0], dict)
        for number, expected in enumerate([*self.case.rows, *self.case.rows]):
            row = landed[1 + number]
            if isinstance(row, str) or isinstance(expected, str):
                assert row == expected
            else:
                later = {} if number < count else {LATER: "x"}
                assert {column: row[column] for column in {**expected, **later}} == {**expected, **later}
        assert self.lake.audit().faults() == {}


def _with_later_field(case: Case) -> str:
    start, _, end = case.versions[-1].rpartition("}")
    return f"{start} {'optional ' if case.syntax == PROTO2 else ''}string {LATER} = 99; }}{end}"


@pytest.mark.parametrize("case", SENT, ids=name)
def test_the_rows_of_three_versions_are_those_of_the_case(case: Case, registry: Registry, tmp_path: Path) -> None:
    game = Game(tmp_path, registry, Subject(registry), case)
    game.send_all()
    game.check()


@pytest.mark.nightly
@pytest.mark.parametrize("case", SENT, ids=name)
def test_quarantine_keeps_both_versions_out(case: Case, registry: Registry, tmp_path: Path) -> None:
    game = Game(tmp_path, registry, Subject(registry), case, "quarantine")
    game.send_all()
    landed = game.landed()
    assert isinstance(landed.pop(0), dict)
    assert all(cause == "schema_change" for cause in landed.values())
    assert len(landed) == 2 * len(case.sent)
    assert game.lake.audit().faults() == {}


@pytest.mark.nightly
@pytest.mark.parametrize("case", SENT, ids=name)
def test_records_that_wait_become_the_same_rows_once_a_person_decides(
    case: Case, registry: Registry, tmp_path: Path
) -> None:
    game = Game(tmp_path, registry, Subject(registry), case, "pause")
    game.send_all()
    assert set(game.landed()) == {0}
    assert set(waiting(game.lake)) == {f"change:{game.ids[-2]}", str(game.ids[-1])}
    assert game.lake.audit().faults() == {}
    for schema in game.ids[-2:]:
        if game.lake.opened.resolver.ledger.entries[schema].is_paused:  # the last one if it also adds a field
            accept(game.lake, schema, case.policies.get(case.kind, "warn"))
            game.lake.reopen()
            game.lake.opened.resolver.retry_waiting(None)
            drain(game.lake)
    assert waiting(game.lake) == []
    game.check()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("level", "kinds"),
    [
        ("BACKWARD", {"added", "decimal", "default", "enum_added", "message_added", "oneof", "shape"}),
        ("FULL", {"decimal", "default", "oneof"}),
    ],
)
def test_the_changes_that_this_registry_lets_through_by_its_own_levels(
    level: str, kinds: set[str], registry: Registry
) -> None:
    """Confluent's registry lets more through, such as a renamed field."""
    assert {case.kind for case in CASES if is_registered(registry, level, case)} == kinds


def is_registered(registry: Registry, level: str, case: Case) -> bool:
    """Whether the registry takes all versions of a case."""
    subject = Subject(registry, level)
    try:
        for text in case.versions:
            subject.register(text)
    except SchemaRegistryError:
        return False
    return True
