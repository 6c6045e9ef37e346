"""New ids: only a schema that brings columns is a reason to leave; the rest waits or is refused in place."""

import itertools
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pyarrow as pa
import pytest

from spark_app.lake.lake import Lake
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import ROOT, Registry, Subjects
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas
from tests.chaos.units import open_lake
from tests.support.answers import UNKNOWN, Answers
from tests.support.bombs import BOMBS
from tests.support.protos import PROTO3, catalog_of, compile_text
from tests.support.units import table_desk
from tests.unit.protobuf.test_descriptors import full_disk


def desk(answers: Answers, folder: Path, **more: float) -> SchemaResolver:
    settings = Schemas(**{"max_unknown_ids_per_batch": 3, "resolve_timeout_s": 60} | more)
    registry = Registry(RegistrySettings(url=answers.url, timeout_s=60), limits_of(settings))
    return SchemaResolver(Ledger(Lake(folder)), registry, settings, Subjects(("orders-value",)))


def test_new_schema_is_met_once(answers: Answers, tmp_path: Path) -> None:
    answers.schema(7, PROTO3 + "message M { string x = 1; }")
    assert desk(answers, tmp_path).resolve_new([7]) == [7]
    assert desk(answers, tmp_path).resolve_new([7]) == []


def test_unknown_ids_wait_and_are_looked_up_under_the_cap(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    assert schemas.resolve_new(range(1000, 1100)) == []
    assert len(answers.asked) == len(schemas.ledger.waiting()) == 3


def test_refused_schema_is_no_bump(answers: Answers, tmp_path: Path) -> None:
    answers["/schemas/ids/8"] = (200, {"schema": '"string"'})
    assert desk(answers, tmp_path).resolve_new([8]) == []


def test_helper_message_does_not_decide_the_types_of_the_event() -> None:
    text = PROTO3 + "message Position { int64 game_name = 1; } message Event { string game_name = 1; Position p = 2; }"
    assert catalog_of(compile_text(text)).columns["Event"].field("game_name").type == pa.string()


def test_value_that_is_its_own_name_is_admitted_first(tmp_path: Path) -> None:
    tables = table_desk(open_lake(tmp_path))
    tables.admit({"RUMMY": ["M"], "rummy": ["M"]})
    assert tables.admitted == {"rummy": "rummy"}


def test_what_a_full_disk_did_not_keep_is_not_known_either(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    tables = table_desk(lake)
    with pytest.raises(OSError, match="File too large"), full_disk():
        tables.admit({"rummy": ["M"]})
    assert (tables.admitted, tables.messages) == ({}, {})
    assert tables.admit({"rummy": ["M"]}) == ["rummy"]
    assert table_desk(lake).messages == {"rummy": ("M",)}


def test_a_ledger_that_a_full_disk_did_not_keep_is_kept_the_next_time(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    with pytest.raises(OSError, match="File too large"), full_disk():
        schemas.resolve_new([7])
    schemas.ledger.save()
    assert [entry.key for entry in Ledger(Lake(tmp_path)).waiting()] == [7]


def test_what_records_wait_for_is_logged_once_and_in_the_status(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([7])
    for answer, said in (
        (UNKNOWN, "the registry says: HTTP 404: Schema not found"),
        ((502, "<title>Bad gateway</title>"), "HTTP 502: a web page, 'Bad gateway'"),
    ):
        answers["/schemas/ids/7"] = answer
        for _ in range(2):
            schemas._next_try.clear()
            schemas.retry_waiting(None)
        assert schemas.ledger.awaited() == {"7": said}
        lines = [line for line in capsys.readouterr().err.splitlines() if "records wait for their schema" in line]
        assert [said in line for line in lines] == [True]
    answers.schema(7, PROTO3 + "message M { string x = 1; }")
    schemas._next_try.clear()
    schemas.retry_waiting(None)
    assert schemas.ledger.awaited() == {}


def test_what_is_requested_again_in_vain_changes_nothing_for_a_pass(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([7])
    catalog, written = schemas.ledger.catalog(), (tmp_path / Lake.ledger).stat().st_ino
    assert not schemas.retry_waiting(None)
    assert answers.asked == ["/schemas/ids/7"] * 2
    schemas.ledger.save()
    assert schemas.ledger.catalog() is catalog
    assert (tmp_path / Lake.ledger).stat().st_ino == written  # each time it is written it is another file


def test_a_new_id_that_waits_leaves_the_compiled_schemas_as_they_are(answers: Answers, tmp_path: Path) -> None:
    answers.schema(6, PROTO3 + "message M { string x = 1; }")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([6])
    before = schemas.ledger.catalog()
    schemas.resolve_new([7])
    after = schemas.ledger.catalog()
    assert after is not before
    assert after.decodable is before.decodable
    assert (after.waiting, before.waiting) == (frozenset([7]), frozenset())


def test_no_more_than_so_many_ids_wait_and_the_next_are_met_when_there_is_room(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.protobuf.schemas.ledger.MOST_WAITING", 4)
    schemas = desk(answers, tmp_path)
    for first in range(1000, 1100, 10):
        assert schemas.resolve_new(range(first, first + 10)) == []
    assert [entry.key for entry in schemas.ledger.waiting()] == [1000, 1001, 1002, 1010]
    answers.schema(1001, PROTO3 + "message M { string x = 1; }")
    assert schemas.retry_waiting(None, [1050])
    assert 1050 not in schemas.ledger.entries
    assert schemas.retry_waiting(None, [1050])
    assert schemas.ledger.entries[1050].outcome == "waiting"


def test_ids_leave_as_fast_as_they_come_while_each_batch_brings_new_ones(answers: Answers, tmp_path: Path) -> None:
    """Three ids come with each of two batches, and then there is one look at what waits."""
    schemas = desk(answers, tmp_path, unknown_id_grace_s=0.02)
    numbers = itertools.count(1000)
    most = 0
    for _ in range(30):
        for _ in range(2):
            schemas.resolve_new(itertools.islice(numbers, 3))
        time.sleep(0.03)
        schemas.retry_waiting(None)
        most = max(most, len(schemas.ledger.waiting()))
    assert most <= 12
    assert len(schemas.ledger.entries) == 180


def test_the_lock_is_free_while_the_registry_is_waited_for(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([7])
    lock = threading.Lock()
    free = []

    def say_no(request: BaseHTTPRequestHandler) -> None:
        with lock:
            free.append(True)
        request.send_error(404)

    answers["/schemas/ids/7"] = say_no
    assert not schemas.retry_waiting(None, unit_lock=lock)
    assert free == [True]


def test_schemas_that_only_records_know_are_met_without_a_pass(answers: Answers, tmp_path: Path) -> None:
    answers.schema(6, PROTO3 + "message M { string x = 1; }")
    schemas = desk(answers, tmp_path)
    assert schemas.retry_waiting(None, [6, 7, 8, 9])
    assert {key: entry.outcome for key, entry in schemas.ledger.entries.items()} == {
        6: "decodable",
        7: "waiting",
        8: "waiting",
    }  # `lookups` at once


@pytest.mark.usefixtures("only_cpu_counts")
def test_a_batch_does_not_wait_for_a_bomb(answers: Answers, tmp_path: Path) -> None:
    """Its records wait; the others' schemas are resolved, and the bomb is, once, when it has gone off."""
    answers.schema(5, BOMBS["reserved numbers"]().texts[ROOT])
    answers.schema(6, PROTO3 + "message M { string x = 1; }")
    schemas = desk(answers, tmp_path, resolve_timeout_s=0.5)
    began = time.monotonic()
    assert schemas.resolve_new([5]) == []
    assert time.monotonic() - began < 2
    assert [entry.key for entry in schemas.ledger.waiting()] == [5]
    assert schemas.resolve_new([6]) in ([6], [])  # on a busy machine it may wait, too
    assert schemas.retry_waiting(None)
    assert schemas.ledger.entries[5].outcome == "refused"
    assert answers.asked.count("/schemas/ids/5") == 1


def test_what_a_batch_has_settled_meanwhile_is_not_settled_again(answers: Answers, tmp_path: Path) -> None:
    """Both meet a schema that records wait for and that was never asked for; the batch is first."""
    schemas = desk(answers, tmp_path)
    answers.schema(7, PROTO3 + "message M { string x = 1; }")
    answers.schema(8, PROTO3 + "message M { string x = 1; string y = 2; }")

    class BetweenUnits:
        """A batch takes the lock as soon as it is free, and then the registry is gone."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            if 7 not in schemas.ledger.entries:
                assert schemas.resolve_new([7, 8]) == [7, 8]
                answers["/schemas/ids/7"] = (500, {"message": "gone"})

    assert not schemas.retry_waiting(None, [7], BetweenUnits())
    assert [(e.key, e.outcome) for e in schemas.ledger.entries.values()] == [(7, "decodable"), (8, "decodable")]
    assert not schemas._resolvers.has_lookup(7)  # the next question gets an answer of its own
