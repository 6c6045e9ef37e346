"""Tables that a rule pauses: all their rows wait, other tables go on, and the rows are let in once, in their order."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_app.lake.lake import Lake
from spark_app.model.errors import UsageError
from spark_app.model.reports import Report
from spark_app.recovery import doctor
from spark_app.recovery.decisions import Resume
from spark_app.recovery.requests import Request
from spark_app.settings.models import Settings
from spark_app.units.driver.deferred import DeferredDecoder
from spark_app.units.driver.unit import UnitOptions
from tests.support.frames import batch_of
from tests.support.lakes import TOPIC, TOPIC_ID, LocalUnits, SmallLake
from tests.unit.audit.test_audit_expectations import discrepancies, faults
from tests.unit.tables.test_expectations import BETS, LATER, bet, rows

UNO, HEARTS = "silver_uno_events", "silver_hearts_events"
SANE: dict[str, Any] = {"sane": {"check": "bet < 100", "action": "pause"}}
STRICT = SANE | {"known": {"check": "gamer_id <> ''", "action": "quarantine"}}


class PausableLake(SmallLake):
    """With the app's decoder of deferred records; `restart` starts the app again, with other rules."""

    def __init__(self, root: Path, rules: dict[str, Any], **sections: dict[str, Any]):
        super().__init__(root, BETS, LATER, expectations=rules, **sections)
        self._sections = sections
        self._decode()

    def _decode(self) -> None:
        self.deferred = DeferredDecoder(None, self.opened, self.units)  # type: ignore[arg-type]

    def restart(self, rules: dict[str, Any]) -> None:
        given = self.settings.model_dump() | {"expectations": rules}
        self.settings = Settings(**given)
        self.opened = type(self.opened).of(Lake(self.lake.root), self.settings)
        self.units = LocalUnits(self.opened)
        self._decode()

    def send(self, *bets: bytes, land_only: bool = False) -> Report:
        origin = UnitOptions({TOPIC: TOPIC_ID}, bump_in_place=True, land_only=land_only)
        return self.take(batch_of(bets, self.ends.get(0, 0)), origin=origin)

    def resume(self, table: str, failing: str) -> dict[str, Any]:
        request = Request("resume", {"table": table, "failing": failing})
        job = Resume(self.opened, request)
        assert job.step() == (Report(), {})
        again = Resume(self.opened, request)  # of a process that starts after a crash
        assert again.step() is None
        assert Resume(self.opened, request).step() is None
        assert Resume(self.opened, request).conclude() == again.conclude()
        return again.conclude()

    def drain(self) -> int:
        """Decode all deferred records that are ready; returns the number of units."""
        units = 0
        while self.deferred.step() is not None:
            units += 1
        return units

    @property
    def paused(self) -> dict[str, tuple[str, str, int]]:
        return {name: (one.rule, one.record, one.rows) for name, one in self.opened.paused.pauses.items()}

    def offsets(self, table: str, column: str = "_offset") -> list[int]:
        return [offset for (offset,) in rows(self, table, column)] if self.lake.has_table(table) else []


def notes(lake: PausableLake) -> list[str]:
    """What the doctor says of paused tables."""
    return [problem.what for problem in doctor.examine(lake.lake, lake.settings) if "paused" in problem.what]


def good(game: str) -> bytes:
    return bet(game, "a", 5)


def bad(game: str) -> bytes:
    return bet(game, "b", 500)


def test_all_rows_of_the_unit_and_later_ones_wait_and_other_tables_go_on(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(good("uno"), good("hearts"))
    report = lake.send(good("uno"), bad("uno"), good("hearts"), good("uno"))
    assert (report.silver, report.deferred, report.waiting) == ({"hearts": 1}, 3, {"uno": 3})
    assert lake.paused == {"uno": ("sane", "t/0@3", 3)}
    assert report.expectations == {"hearts": {"sane": [1, 0]}}
    lake.send(good("uno"), good("hearts"))
    assert (lake.offsets(UNO), lake.offsets(HEARTS)) == ([0], [1, 4, 7])
    assert rows(lake, "deferred_events", "offset", "waits_for", "table") == [
        (offset, "rule:sane", UNO) for offset in (2, 3, 5, 6)
    ]
    assert lake.paused == {"uno": ("sane", "t/0@3", 4)}
    assert lake.drain() == 0
    assert faults(lake) == {}


def test_a_pause_survives_a_restart_and_ends_with_a_changed_expectation(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), good("hearts"))
    lake.restart(SANE)
    lake.send(good("uno"))
    assert (lake.drain(), lake.paused) == (0, {"uno": ("sane", "t/0@0", 2)})
    lake.restart({"sane": SANE["sane"] | {"check": "bet < 1000"}})
    report = lake.send(good("uno"), good("hearts"))  # it waits behind the others
    assert (report.waiting, lake.offsets(UNO)) == ({"uno": 1}, [])
    assert (lake.drain(), lake.paused, lake.offsets(UNO)) == (1, {}, [0, 2, 3])
    lake.send(good("uno"))
    assert lake.offsets(UNO) == [0, 2, 3, 5]
    assert not lake.offsets("deferred_events", "offset")
    assert faults(lake) == {}


@pytest.mark.parametrize("rules", [{}, {"other": {"check": "bet > 0", "action": "drop"}}])
def test_an_expectation_that_is_gone_lets_the_rows_in(tmp_path: Path, rules: dict[str, Any]) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), good("uno"), bad("hearts"))
    assert set(lake.paused) == {"uno", "hearts"}
    lake.restart(rules)
    assert (lake.drain(), lake.paused) == (1, {})
    assert (lake.offsets(UNO), lake.offsets(HEARTS)) == ([0, 1], [2])
    assert faults(lake) == {}


def test_a_description_or_another_expectation_does_not_end_a_pause(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"))
    lake.restart({"sane": SANE["sane"] | {"description": "words"}, "more": {"check": "bet > 0", "action": "drop"}})
    assert (lake.drain(), set(lake.paused)) == (0, {"uno"})


def test_rows_that_fail_the_changed_expectation_pause_the_table_again(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(good("uno"), bet("uno", "c", 5000), bad("uno"))
    lake.restart({"sane": SANE["sane"] | {"check": "bet < 1000"}})
    lake.send(good("uno"))
    assert (lake.drain(), lake.paused) == (1, {"uno": ("sane", "t/0@1", 4)})
    assert lake.offsets(UNO) == []
    assert faults(lake) == {}
    lake.restart({})
    lake.drain()
    assert (lake.offsets(UNO), lake.paused) == ([0, 1, 2, 3], {})
    assert faults(lake) == {}


@pytest.mark.parametrize(("failing", "landed", "refused"), [("land", [0, 1, 2, 3], []), ("quarantine", [0, 2], [1, 3])])
def test_resume(tmp_path: Path, failing: str, landed: list[int], refused: list[int]) -> None:
    lake = PausableLake(tmp_path, STRICT)
    lake.send(good("uno"), bad("uno"), good("uno"))
    assert lake.resume(UNO, failing) == {"table": "uno", "rule": "sane", "rows": 3, "failing": failing}
    lake.restart(STRICT)
    lake.send(bad("uno"))  # decided, too, because it waits behind the others
    assert lake.offsets(UNO) == []
    assert (lake.drain(), lake.paused) == (1, {})
    assert lake.offsets(UNO) == landed
    assert lake.offsets("quarantine_events", "offset") == refused
    assert faults(lake) == {}
    lake.send(good("uno"))
    assert lake.offsets(UNO) == [*landed, 4]
    lake.send(bad("uno"))
    assert lake.paused == {"uno": ("sane", "t/0@5", 1)}
    assert faults(lake) == {}


def test_resume_of_one_table_leaves_the_others_paused(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), bad("hearts"), good("hearts"), good("uno"))
    lake.resume("uno", "land")
    assert notes(lake) == ["the table hearts is paused: t/0@1 fails the expectation sane, and 2 rows wait"]
    assert (lake.drain(), lake.paused) == (1, {"hearts": ("sane", "t/0@1", 2)})
    assert (lake.offsets(UNO), lake.offsets(HEARTS)) == ([0, 3], [])
    assert faults(lake) == {}


def test_resume_of_what_is_not_paused(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), good("hearts"))
    with pytest.raises(UsageError, match="no paused table is named hearts; paused: uno"):
        lake.resume("hearts", "land")


def test_what_becomes_of_rows_that_fail_other_expectations(tmp_path: Path) -> None:
    """They wait with the others; the rules that are then in force decide."""
    lake = PausableLake(tmp_path, STRICT)
    report = lake.send(bet("uno", "", 5), bet("uno", "", 500), good("uno"))
    assert (report.quarantine, report.waiting) == ({}, {"uno": 3})
    lake.resume("uno", "land")
    lake.drain()
    assert (lake.offsets(UNO), lake.offsets("quarantine_events", "offset")) == ([2], [0, 1])
    assert faults(lake) == {}


def test_records_that_wait_for_a_schema_wait_for_the_table_once_it_is_known(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), good("hearts"))
    lake.send(good("uno"), good("hearts"), land_only=True)
    assert lake.drain() == 1
    assert lake.paused == {"uno": ("sane", "t/0@0", 2)}
    assert lake.offsets(HEARTS) == [1, 3]
    assert faults(lake) == {}


def test_small_files_of_waiting_rows_are_merged_and_rows_stay_in_order(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE, lake={"compact_files": 4})
    for _ in range(9):
        lake.send(bad("uno"), good("hearts"), bad("hearts"))
    assert lake.deferred.merge()
    assert lake.paused["uno"][2] == 9
    files = lake.deferred._waiting.files
    assert [file.since for file in files] == sorted(file.since for file in files)
    assert faults(lake) == {}
    lake.restart({})
    lake.drain()
    assert (len(lake.offsets(UNO)), len(lake.offsets(HEARTS)), lake.paused) == (9, 18, {})
    assert faults(lake) == {}


def test_more_rows_than_a_unit_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = PausableLake(tmp_path, SANE)
    for _ in range(4):
        lake.send(bad("uno"), good("uno"))
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 3)
    lake.restart({})
    monkeypatch.setattr(lake.deferred._attempts, "_limit", 3)
    seen = []
    while lake.deferred.step() is not None:
        seen.append(lake.offsets(UNO))
        assert faults(lake) == {}
    assert seen[-1] == list(range(8))
    assert len(seen) > 2
    assert all(found == list(range(len(found))) for found in seen)  # in their order
    assert lake.paused == {}


MOVES = st.one_of(
    st.lists(st.tuples(st.sampled_from(["uno", "hearts"]), st.sampled_from([5, 500, 5000, 0])), min_size=1, max_size=4),
    st.sampled_from([SANE, STRICT, {}, {"sane": {"check": "bet < 1000", "action": "pause"}}]),
    st.sampled_from([("uno", "land"), ("hearts", "quarantine"), "decode", "merge"]),
)


@settings(max_examples=12, deadline=None)
@given(moves=st.lists(MOVES, min_size=2, max_size=8))
def test_whatever_happens_each_record_has_one_end(moves: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = PausableLake(Path(folder), SANE, lake={"compact_files": 2})
        sent = 0
        for move in [[("uno", 5)], *moves]:
            if isinstance(move, list):
                lake.send(*(bet(game, "a", amount) for game, amount in move))
                sent += len(move)
            elif isinstance(move, dict):
                lake.restart(move)
            elif move == "merge":
                lake.deferred.merge()
            elif move == "decode":
                lake.drain()
            elif move[0] in lake.paused:
                lake.resume(*move)
        assert faults(lake) == {}
        lake.restart({})
        lake.drain()
        ends = [*lake.offsets(UNO), *lake.offsets(HEARTS), *lake.offsets("quarantine_events", "offset")]
        assert (sorted(ends), lake.paused) == (list(range(sent)), {})
        assert faults(lake) == {}


def test_the_audit_sees_a_wrong_count_and_a_wrong_table(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, SANE)
    lake.send(bad("uno"), good("uno"))
    key = f"{lake.lake.manifests}/{1:012d}.json"
    stored = json.loads(lake.lake.storage.get(key))
    manifest = json.loads(stored["manifest"])
    manifest["source"]["pauses"]["hearts"] = manifest["source"]["pauses"].pop("uno")
    text = json.dumps(manifest)
    stored |= {"manifest": text, "digest": hashlib.sha256(text.encode()).hexdigest()}
    lake.lake.storage.replace(key, json.dumps(stored).encode())
    assert sorted(discrepancies(lake)) == [
        ("altered", "deferred_events", "0 rows wait, but unit 1 says 2"),
        ("altered", "deferred_events", "2 rows wait, but unit 1 says 0"),
    ]
