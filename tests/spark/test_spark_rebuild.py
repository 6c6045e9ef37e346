"""Silver and gold become what bronze says, and what differs is named, whoever tampered with the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.recovery import requests
from spark_app.recovery.rebuild import COLUMNS
from spark_app.recovery.requests import Request
from tests.chaos import read_back
from tests.spark.parts import ORIGIN, Killed, Parts, events
from tests.support import ledger
from tests.support.frames import frame
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.lake.test_field_ids import ids_of

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c"), ("uno", "d"), ("rummy", "e")]
RUMMY, UNO, QUARANTINE = "silver_rummy_events", "silver_uno_events", "quarantine_events"
SOUND = {
    RUMMY: {"expected": 6, "present": 6},
    UNO: {"expected": 4, "present": 4},
    QUARANTINE: {"expected": 1, "present": 1},
}


def ask(parts: Parts, *names: str, dry_run: bool = False) -> dict[str, Any]:
    """The result of a request."""
    request = Request("rebuild", {"names": list(names)}, dry_run)
    requests.submit(parts.lake, request)
    return answer(parts, request)


def answer(parts: Parts, request: Request) -> dict[str, Any]:
    while parts.service.step():
        pass
    result = requests.take_result(parts.lake, request)
    assert result is not None
    return result


def counts(result: dict[str, Any]) -> dict[str, dict[str, int]]:
    """What was counted, without the zeros."""
    assert all(set(table) == set(COLUMNS) for table in result["tables"].values())
    return {name: {k: v for k, v in table.items() if v} for name, table in result["tables"].items()}


def build(new_parts: NewParts) -> Parts:
    """Offsets 0 to 4 of version 1, 5 to 9 of version 2, 10 no frame, 11 a tombstone."""
    parts = new_parts()
    parts.learn(1, 2)
    parts.take(events(1, PLAYERS))
    parts.take([*events(2, PLAYERS), b"no frame", None])
    parts.gold.run()
    return parts


def truth(parts: Parts) -> dict[ledger.Identity, str]:
    rows = parts.read("bronze_events").select("topic", "partition", "offset", "value").rows()
    return {(topic, partition, offset): read_back.digest(value) for topic, partition, offset, value in rows}


def check(parts: Parts) -> None:
    assert ledger.verify(parts.lake.root, truth(parts)).faults() == {}


def table(parts: Parts, name: str) -> DeltaTable:
    """A handle of somebody else."""
    return DeltaTable(str(parts.lake.path(name)))


def state(parts: Parts) -> tuple[list[str], list[int], int]:
    versions = [table(parts, name).version() for name in parts.lake.tables()]
    return parts.files(), versions, parts.manifests.last


def test_a_sound_lake_stays_as_it_is(new_parts: NewParts) -> None:
    parts = build(new_parts)
    before = state(parts)
    result = ask(parts)
    assert (counts(result), result["named"], result["replayable"], result["exit_code"]) == (SOUND, {}, 0, 0)
    assert result["gold"] == {
        "gold_rummy_player_agg": {"rows": 3, "differing": 0, "named": []},
        "gold_uno_player_agg": {"rows": 2, "differing": 0, "named": []},
    }
    assert state(parts) == before
    assert not (parts.lake.path(parts.lake.state) / "rebuild" / "x").parent.exists() or not list(
        (parts.lake.path(parts.lake.state) / "rebuild").iterdir()
    )


@pytest.mark.nightly
def test_a_table_removed_by_hand_comes_back(new_parts: NewParts, capsys: pytest.CaptureFixture[str]) -> None:
    before = build(new_parts).read(UNO)
    ids = ids_of(new_parts().lake.root)
    shutil.rmtree(new_parts().lake.path(UNO))
    parts = new_parts()
    assert "`rebuild` adds the missing rows" in capsys.readouterr().err
    assert UNO not in parts.lake.tables()
    dry = ask(parts, dry_run=True)
    assert (counts(dry)[UNO], UNO in parts.lake.tables()) == ({"expected": 4, "added": 4}, False)
    result = ask(parts)
    assert counts(result) == SOUND | {UNO: {"expected": 4, "added": 4}}
    assert (result["exit_code"], result["gold"]["gold_uno_player_agg"]["differing"]) == (0, 0)
    assert parts.read(UNO).sort("_offset").equals(before.sort("_offset"))
    parts.gold.run()
    check(parts)
    again = new_parts()
    assert (again.redone_units, counts(ask(again))) == (0, SOUND)
    again.take(events(2, PLAYERS))
    again.gold.run()
    check(again)
    assert ids_of(again.lake.root) == ids


def test_a_table_removed_under_the_running_app_comes_back(new_parts: NewParts) -> None:
    parts = build(new_parts)
    shutil.rmtree(parts.lake.path(UNO))
    assert counts(ask(parts))[UNO] == {"expected": 4, "added": 4}
    parts.take(events(2, PLAYERS))
    parts.gold.run()
    check(parts)


def test_deleted_rows_are_added_and_gold_follows(new_parts: NewParts) -> None:
    parts = build(new_parts)
    table(parts, UNO).delete("_offset in (1, 6)")
    table(parts, QUARANTINE).delete()
    parts = new_parts()
    result = ask(parts)
    assert counts(result)[UNO] == {"expected": 4, "present": 2, "added": 2}
    assert counts(result)[QUARANTINE] == {"expected": 1, "added": 1}
    check(parts)
    assert counts(ask(new_parts())) == SOUND
    parts.gold.run()
    check(parts)


def test_what_differs_is_named_and_left(new_parts: NewParts) -> None:
    parts = build(new_parts)
    rows = table(parts, UNO).to_pyarrow_table()
    one = rows.filter(pa.compute.equal(rows["_offset"], 3))
    phantoms = [one.set_column(rows.column_names.index("_offset"), "_offset", [[n]]) for n in (11, 77)]
    table(parts, UNO).update({"device_id": "'forged'"}, predicate="_offset = 1")
    table(parts, UNO).update({"col_custom_1": "NULL"}, predicate="_offset = 6")
    for row in (one, *phantoms):
        write_deltalake(str(parts.lake.path(UNO)), row, mode="append")
    write_deltalake(str(parts.lake.path(RUMMY)), rows.filter(pa.compute.equal(rows["_offset"], 8)), mode="append")
    table(parts, UNO).delete("_offset = 8")
    parts = new_parts()
    before = state(parts)[0]
    result = ask(parts)
    assert counts(result) == {
        RUMMY: {"expected": 6, "present": 6, "differing": 1},
        UNO: {"expected": 4, "differing": 2, "doubled": 1, "phantom": 2},
        QUARANTINE: {"expected": 1, "present": 1},
    }
    assert result["named"] == {
        RUMMY: ["t/0@8 differing"],
        UNO: ["t/0@1 differing", "t/0@3 doubled", "t/0@6 differing", "t/0@11 phantom", "t/0@77 phantom"],
    }
    assert result["exit_code"] == 65
    assert [path for path in state(parts)[0] if path.startswith("silver")] == [
        path for path in before if path.startswith("silver")
    ]
    assert counts(ask(parts, "rummy")) == {
        RUMMY: {"expected": 6, "present": 6, "differing": 1},
        QUARANTINE: {"expected": 1, "present": 1},
    }


def test_a_row_in_silver_and_in_quarantine_is_doubled(new_parts: NewParts) -> None:
    parts = build(new_parts)
    row = table(parts, QUARANTINE).to_pyarrow_table()
    both = row.set_column(row.column_names.index("offset"), "offset", [[2]])
    write_deltalake(str(parts.lake.path(QUARANTINE)), both, mode="append")
    result = ask(new_parts())
    assert counts(result)[RUMMY] == {"expected": 6, "present": 5, "doubled": 1}
    assert result["named"] == {RUMMY: ["t/0@2 doubled"]}


def test_what_is_open_or_waits_is_left_to_replay_and_the_app(new_parts: NewParts) -> None:
    parts = new_parts(tables={"allowlist": ["rummy"]})
    parts.learn(1)
    parts.take(events(1, PLAYERS))
    parts.take(events(2, PLAYERS[:1]), replace(ORIGIN, land_only=True))
    parts = new_parts()
    parts.learn(1, 2)
    parts.gold.run()
    before = state(parts)[0]
    result = ask(parts)
    assert result["replayable"] == 2
    assert counts(result) == {RUMMY: {"expected": 4, "present": 3}, UNO: {"expected": 2}}
    assert (state(parts)[0], result["exit_code"]) == (before, 0)
    shutil.rmtree(parts.lake.path("deferred_events"))
    parts = new_parts()
    assert counts(ask(parts))[RUMMY] == {"expected": 4, "present": 3, "added": 1}
    parts.gold.run()
    check(parts)


def test_a_replayed_row_that_was_deleted_comes_back(new_parts: NewParts) -> None:
    parts = new_parts(tables={"allowlist": ["rummy"]})
    parts.learn(1)
    parts.take(events(1, PLAYERS))
    parts = new_parts()
    request = Request("replay", {})
    requests.submit(parts.lake, request)
    assert answer(parts, request)["resolved"] == {UNO: 2}
    assert parts.status.value["tables"]["uno"]["silver"] == 2
    table(parts, UNO).delete("_offset = 1")
    parts = new_parts()
    assert counts(ask(parts))[UNO] == {"expected": 2, "present": 1, "added": 1}
    check(parts)


@pytest.mark.parametrize("at", [UNO, pytest.param(QUARANTINE, marks=pytest.mark.nightly)])
def test_crash_after_the_decision_is_redone_once(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    parts = build(new_parts)
    shutil.rmtree(parts.lake.path(UNO))
    table(parts, QUARANTINE).delete()
    parts = new_parts()
    request = Request("rebuild", {})
    requests.submit(parts.lake, request)
    parts.kill_at_commit(at, monkeypatch)
    with pytest.raises(Killed):
        answer(parts, request)
    parts = new_parts()
    assert parts.redone_units == 1
    result = answer(parts, request)  # it is still asked
    assert counts(result) == SOUND | {
        UNO: {"expected": 4, "added": 4},
        QUARANTINE: {"expected": 1, "added": 1},
    }
    check(parts)
    assert counts(ask(parts)) == SOUND


def test_chunks_meet_no_record_twice(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 5)
    parts = build(new_parts)
    shutil.rmtree(parts.lake.path(UNO))
    parts = new_parts()
    assert counts(ask(parts)) == SOUND | {UNO: {"expected": 4, "added": 4}}
    assert parts.manifests.last == 4
    check(parts)


def test_gold_that_differs_is_counted_and_replaced(new_parts: NewParts) -> None:
    parts = build(new_parts)
    table(parts, "gold_rummy_player_agg").update({"session_count": "99"}, predicate="gamer_id = 'c'")
    table(parts, "gold_rummy_player_agg").delete("gamer_id = 'a'")
    shutil.rmtree(parts.lake.path("gold_uno_player_agg"))
    parts = new_parts()
    expected = {
        "gold_rummy_player_agg": {"rows": 3, "differing": 2, "named": ["a", "c"]},
        "gold_uno_player_agg": {"rows": 2, "differing": 2, "named": ["b", "d"]},
    }
    assert ask(parts, dry_run=True)["gold"] == expected
    result = ask(parts)
    assert (result["gold"], result["exit_code"]) == (expected, 0)
    check(parts)
    parts.take(events(2, PLAYERS))
    parts.gold.run()
    check(parts)


@pytest.mark.nightly
def test_gold_that_is_only_behind_does_not_differ(new_parts: NewParts) -> None:
    parts = build(new_parts)
    parts.take(events(2, PLAYERS))
    assert {name: found["differing"] for name, found in ask(parts)["gold"].items()} == {
        "gold_rummy_player_agg": 0,
        "gold_uno_player_agg": 0,
    }
    check(parts)


def test_names_that_are_no_tables_are_refused(new_parts: NewParts) -> None:
    parts = build(new_parts)
    result = ask(parts, "rumy")
    assert result["exit_code"] == 64
    assert "no table is named rumy" in result["error"]
    shutil.rmtree(parts.lake.path(UNO))
    shutil.rmtree(parts.lake.path(RUMMY))
    parts = new_parts()
    result = ask(parts, "uno")
    assert counts(result) == {UNO: {"expected": 4, "added": 4}, QUARANTINE: {"expected": 1, "present": 1}}
    assert RUMMY not in parts.lake.tables()


RICH = f"""{PROTO3} package p; import "google/protobuf/timestamp.proto";
message Event {{
  string game_name = 1; string gamer_id = 2; google.protobuf.Timestamp event_timestamp = 3;
  map<string, Inner> marks = 4; repeated Inner list = 5; Inner one = 6; map<int32, double> scores = 7; uint64 big = 8;
}}
message Inner {{ map<string, int64> numbers = 1; bytes raw = 2; repeated string names = 3; }}
"""


def rich(number: int, forged: bool = False) -> bytes:
    """A frame with maps of many entries, at every depth."""
    kind = message_class(compile_text(RICH), "p.Event")
    event = kind(game_name="rummy", gamer_id=f"g{number}", big=2**64 - 1 - number)
    event.event_timestamp.FromNanoseconds(1_700_000_000_123_456_000 + number)
    for i in range(20):
        event.scores[i] = i / 3
        event.marks[f"k{i}"].numbers[f"n{i}"] = i + (forged and i == 7)
        event.list.add(raw=bytes([i]), names=["a", "b"]).numbers.update({f"m{j}": j for j in range(9)})
    event.one.numbers["x"] = number
    return frame(1, event.SerializeToString())


def test_rich_rows_are_compared_by_content(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.ledger.add_decodable(1, compile_text(RICH).descriptor_set, 0.0)
    parts.ledger.save()
    parts.take([rich(n) for n in range(4)])
    assert counts(ask(parts)) == {RUMMY: {"expected": 4, "present": 4}}
    rows = table(parts, RUMMY).to_pyarrow_table()
    other = Parts(parts.spark, parts.lake.root.parent / "other", "http://127.0.0.1:1", {})
    other.ledger.add_decodable(1, compile_text(RICH).descriptor_set, 0.0)
    other.ledger.save()
    other.take([rich(n, forged=n == 2) for n in range(4)])
    forged = DeltaTable(str(other.lake.path(RUMMY))).to_pyarrow_table()
    at = rows.column_names.index("marks")
    rows = rows.set_column(at, rows.schema.field(at), forged["marks"].cast(rows.schema.field(at).type))
    write_deltalake(str(parts.lake.path(RUMMY)), rows, mode="overwrite")
    result = ask(new_parts())
    assert (counts(result), result["named"]) == (
        {RUMMY: {"expected": 4, "present": 3, "differing": 1}},
        {RUMMY: ["t/0@2 differing"]},
    )
