"""The comparison of a lake with the producer's ledger: silent on a right lake, and aloud about each kind of wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.lake.delta.manifest import FORMAT, Manifests
from spark_app.lake.lake import Lake
from tests.chaos.planted import count_pauses, differences, quarantined_by_resume
from tests.chaos.scenarios.expectations import CHANGED, EXPECTED, GAMES, PLANTED, RULES
from tests.support.frames import batch_of
from tests.support.producing import Lab, schemas_of_demo, times
from tests.unit.tables.test_pauses import PausableLake

RECORDS = 1_500
POISON = ("--poison", "0.02", "--poison-kinds", "tombstone,wrong_magic,truncated_payload,game_colon")
SHARES = PLANTED.replace("0.005", "0.05")
Line = dict[str, Any]


class Planted(PausableLake):
    """A lake of planted records, and their ledger."""

    def __init__(self, root: Path):
        super().__init__(root / "lake", RULES)
        self.learn(*schemas_of_demo())
        self.acks = root / "acks.jsonl"
        self._lab = Lab("--games", ",".join(GAMES), "--plant", SHARES, *POISON)

    def produce(self) -> None:
        records, first = self._lab.take(RECORDS), self.ends.get(0, 0)
        self.take(batch_of([value for value, _ in records], first, timestamp=times(RECORDS)))
        with self.acks.open("a") as acks:
            for offset, (_, label) in enumerate(records, first):
                acks.write(json.dumps({"topic": self.topic, "partition": 0, "offset": offset} | label) + "\n")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake and its ledger: tables were paused, resumed, and let in by a changed rule."""
    lake = Planted(tmp_path_factory.mktemp("planted"))
    lake.produce()
    assert set(lake.paused) == set(EXPECTED.paused)
    lake.resume("uno", "quarantine")
    lake.resume("rummy", "land")
    lake.drain()
    lake.produce()
    lake.restart(CHANGED)
    lake.drain()
    assert lake.paused == {}
    return lake.acks.parent


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(finished, tmp_path / "copy")


def found(folder: Path) -> set[str]:
    return set(differences(folder / "lake", folder / "acks.jsonl", EXPECTED))


def change(folder: Path, planted: str | None, edit: Callable[[Line], None]) -> None:
    """Edit the first line of the ledger about uno that has this kind; a line that becomes empty is removed."""
    acks = folder / "acks.jsonl"
    lines = [json.loads(line) for line in acks.read_text().splitlines()]
    edit(next(one for one in lines if one["planted"] == planted and one["game"] == "uno"))
    acks.write_text("".join(json.dumps(one) + "\n" for one in lines if one))


def test_a_right_lake_is_as_the_ledger_says(finished: Path) -> None:
    assert found(finished) == set()
    assert count_pauses(finished / "lake") == {"uno": 2, "rummy": 2}
    assert len(quarantined_by_resume(finished / "lake", EXPECTED)) > 3


@pytest.mark.parametrize(
    ("planted", "now", "said"),
    [
        (None, "no_player", {"missing in quarantine_events", "not planned in silver_uno_events",
                             "count of known_player in uno"}),
        (None, "future_time", {"count of plausible_time in uno"}),
        (None, "no_device", {"count of known_device in uno"}),
        ("test_device", None, {"not planned in dropped_events", "missing in silver_uno_events",
                               "count of no_test_devices in uno"}),
        ("no_device", None, {"quarantined by a decision", "count of known_device in uno"}),
        ("no_player", "test_device", {"missing in dropped_events", "not planned in quarantine_events",
                                      "count of known_player in uno", "count of no_test_devices in uno"}),
    ],
)  # fmt: skip
def test_each_wrong_kind_is_found(folder: Path, planted: str | None, now: str | None, said: set[str]) -> None:
    change(folder, planted, lambda line: line.update(planted=now))
    assert found(folder) == said


def test_a_record_that_the_ledger_lacks_is_found(folder: Path) -> None:
    change(folder, None, dict.clear)
    rules = EXPECTED.rules_of("uno").values()
    assert found(folder) == {"not planned in silver_uno_events", *(f"count of {rule} in uno" for rule in rules)}


@pytest.mark.parametrize("name", ["dropped_events", "quarantine_events", "silver_uno_events"])
def test_a_row_that_is_doubled_or_gone_is_found(folder: Path, name: str) -> None:
    table = DeltaTable(str(folder / "lake" / name))
    rows = table.to_pyarrow_table()
    chosen = rows.filter(pc.equal(rows["cause"], "expect_failed")) if "cause" in rows.column_names else rows
    write_deltalake(table, chosen.slice(0, 1), mode="append")
    assert found(folder) == {f"twice in {name}"}
    write_deltalake(table, chosen.slice(1), mode="overwrite")
    assert found(folder) == {f"missing in {name}"}


def test_a_unit_that_counts_twice_or_lets_in_twice_is_found(folder: Path) -> None:
    lake = Lake(folder / "lake")
    last = Manifests(lake).read(lake.units()[-1])
    again = replace(last, sequence=last.sequence + 1)
    stored = {"format": FORMAT, "digest": again.digest, "manifest": again.text}
    lake.storage.put_if_absent(f"{lake.manifests}/{again.sequence:012d}.json", json.dumps(stored).encode())
    counts = {f"count of {rule} in {game}" for game in EXPECTED.paused for rule in RULES}
    assert found(folder) == {"let in otherwise than held", *counts}


def test_rows_that_still_wait_are_found(tmp_path: Path) -> None:
    lake = Planted(tmp_path)
    lake.produce()
    waiting = {f"missing in silver_{game}_events" for game in EXPECTED.paused}
    assert {"let in otherwise than held", *waiting} <= found(tmp_path)
