"""Small gold tables, written by entries of our own: other writers, removals, and what is left on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.delta import log as delta_log
from spark_app.lake.files.local import LocalStorage
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import open_lake

GOLD = "gold_a_player_agg"


def open_gold(folder: Path, function: str = "count", every: int = 50) -> GoldTables:
    aggregates = {"n": {"function": function, "field": "x"}}
    settings = Settings.model_validate(
        {
            "lake": {"path": str(folder), "checkpoint_every": every},
            "event": {"key": "gamer"},
            "gold": {"aggregates": aggregates},
        }
    )
    return GoldTables(OpenLake.of(open_lake(folder), settings), GoldSpec.all_of(settings)[0])


def part(**counts: int) -> pa.Table:
    return pa.table({"gamer": list(counts), "n": list(counts.values())})


def rows(folder: Path) -> dict[str, int]:
    found = DeltaTable(str(folder / GOLD)).to_pyarrow_table()
    return dict(zip(found["gamer"].to_pylist(), found["n"].to_pylist(), strict=True))


def test_each_fold_is_one_whole_entry_with_its_unit(tmp_path: Path) -> None:
    gold = open_gold(tmp_path)
    assert [gold.merge("a", part(x=1, **{f"new_{n}": n}), n) for n in range(1, 6)] == [2, 3, 4, 5, 6]
    assert (gold.cursor("a"), gold.is_there("a")) == (5, True)
    assert rows(tmp_path) == {"x": 5} | {f"new_{n}": n for n in range(1, 6)}
    entries = [delta_log.read_entry(LocalStorage(tmp_path), GOLD, version) for version in range(5)]
    assert [entry and (len(entry.adds), len(entry.removes), entry.unit) for entry in entries] == [
        (1, 0, None),
        *[(1, 1, None)] * 4,
    ]
    assert open_gold(tmp_path).cursor("a") == 5


def test_what_others_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    gold, other = open_gold(tmp_path), open_gold(tmp_path)
    for number in (1, 2):
        gold.merge("a", part(x=1), number)
    other.merge("a", part(x=10), 3)
    assert gold.cursor("a") == 3
    gold.merge("a", part(x=100), 4)
    assert rows(tmp_path) == {"x": 112}


def test_who_loses_a_race_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gold, other = open_gold(tmp_path), open_gold(tmp_path)
    for number in (1, 2):
        gold.merge("a", part(x=1), number)
    write_rows = delta_log.write_rows

    def be_second(*args: object) -> None:
        monkeypatch.undo()
        other.merge("a", part(x=10), 3)
        write_rows(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(delta_log, "write_rows", be_second)
    with pytest.raises(DeltaError, match="another writer"):
        gold.merge("a", part(x=100), 3)
    assert rows(tmp_path) == {"x": 12}
    assert len(list((tmp_path / GOLD).glob("*.parquet"))) == 3
    gold.merge("a", part(x=100), 4)
    assert rows(tmp_path) == {"x": 112}


def test_a_table_that_was_removed_is_not_there(tmp_path: Path) -> None:
    gold = open_gold(tmp_path)
    for number in (1, 2):
        gold.merge("a", part(x=1), number)
    shutil.rmtree(tmp_path / GOLD)
    assert (gold.is_there("a"), gold.cursor("a")) == (False, 0)
    gold.merge("a", part(y=1), 3)
    assert rows(tmp_path) == {"y": 1}


def test_checkpoints_and_clean_ups_come_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_tables, "CLEAN_EVERY", 4)
    cleaned: list[str] = []
    monkeypatch.setattr(gold_tables, "vacuum_and_clean_log", lambda storage, name, *rest: cleaned.append(name))
    gold = open_gold(tmp_path, every=5)
    for number in range(1, 14):
        gold.merge("a", part(x=1), number)
    assert (rows(tmp_path), cleaned) == ({"x": 13}, [GOLD] * 3)
    assert gold.get("a") is not None  # waits for a checkpoint in the making
    assert set(delta_log.versions(LocalStorage(tmp_path), GOLD, ".checkpoint.parquet")) == {1, 6, 11}


def test_a_table_that_wants_more_of_a_writer_gets_it(tmp_path: Path) -> None:
    gold = open_gold(tmp_path)
    gold.merge("a", part(x=1), 1)
    DeltaTable(str(tmp_path / GOLD)).alter.add_constraint({"few": "n < 3"})
    gold = open_gold(tmp_path)
    gold.merge("a", part(x=1), 2)
    with pytest.raises(DeltaError):
        gold.merge("a", part(x=1), 3)
    assert rows(tmp_path) == {"x": 2}
