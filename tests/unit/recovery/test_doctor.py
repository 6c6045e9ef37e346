"""`doctor`: finds each damage, changes nothing unless asked, and mends what needs no judgement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.lake.delta.manifest import Manifest
from spark_app.lake.delta.problems import Problem
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.model.table_names import GOLD
from spark_app.recovery import doctor
from spark_app.recovery.requests import pending
from spark_app.settings.models import Settings
from spark_app.sources.kafka.topics import BrokerUnreachable, Topics
from spark_app.tables.fixed_settings import check_fixed_settings
from spark_app.units.spark import checkpoint
from tests.support.checkpoints import write_checkpoint
from tests.unit.lake.test_inventory import TABLES, open_again, open_lake, take, values

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    take(lake, 8)
    (lake.path(lake.state) / "tables.json").write_text('{"names": {"a": "a", "b": "b"}, "messages": {}}')
    write_checkpoint(lake.path(lake.checkpoint), {"t": {"0": 0}}, [{"t": {"0": 7}}, {"t": {"0": 8}}])
    return lake.root


@pytest.fixture
def lake(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Eight units, in order; no broker answers."""

    def unreachable(*_: object) -> None:
        raise BrokerUnreachable("no broker")

    monkeypatch.setattr(Topics, "look", unreachable)
    return Lake(shutil.copytree(made, tmp_path / "lake"))


def settings_of(lake: Lake) -> Settings:
    return Settings(lake={"path": str(lake.root)})  # type: ignore[arg-type]


def wrong(lake: Lake) -> list[str]:
    return [problem.what for problem in doctor.examine(lake, settings_of(lake)) if problem.fatal]


def everything(lake: Lake) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(lake.root.rglob("*")) if path.is_file()}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def last_file(lake: Lake, table: str) -> Path:
    return max(lake.path(table).glob("*.parquet"))


def test_a_lake_in_order_is_examined_and_left_alone(lake: Lake) -> None:
    before = everything(lake)
    problems = doctor.examine(lake, settings_of(lake))
    assert [(problem.fatal, "could not be compared" in problem.what) for problem in problems] == [(False, True)]
    assert everything(lake) == before


MENDABLE: dict[str, Callable[[Lake], None]] = {
    "checkpoint": lambda lake: cut(lake.path(lake.checkpoint) / "metadata"),
    "another id": lambda lake: (lake.path(lake.state) / "id").unlink(),
    "torn id": lambda lake: cut(lake.path(lake.state) / "id"),
    "rules": lambda lake: (lake.path(lake.state) / "rules.json").unlink(),
    "ledger": lambda lake: (lake.path(lake.schemas) / "ledger.json").write_text("[") and None,
    "compiled schema": lambda lake: (
        (lake.path(lake.schemas) / "ledger.json").write_text(
            json.dumps([{"key": 1, "outcome": "decodable", "met_at": 0.0, "digest": "0" * 64}])
        )
        and None
    ),
    "mark": lambda lake: lake.path(lake.synced).write_text('{"folded": 99}') and None,
    "torn mark": lambda lake: lake.path(lake.synced).write_text("{") and None,
}


@pytest.mark.parametrize("name", MENDABLE)
def test_what_needs_no_judgement_is_mended(lake: Lake, name: str) -> None:
    identity = lake.identity()
    MENDABLE[name](lake)
    before = everything(lake)
    assert len(wrong(lake)) == 1
    assert everything(lake) == before
    assert len(list(doctor.repair(lake, settings_of(lake)))) == 1
    assert wrong(lake) == []
    assert lake.identity() == identity
    check_fixed_settings(lake, settings_of(lake))
    assert values(lake) == [list(range(1, 9))] * len(TABLES)
    assert open_again(lake).units.redone_units == 0


LEFT: dict[str, Callable[[Lake], None]] = {
    "newest manifest": lambda lake: cut(lake.path(lake.manifests) / "000000000008.json"),
    "old manifest": lambda lake: cut(lake.path(lake.manifests) / "000000000002.json"),
    "missing manifest": lambda lake: (lake.path(lake.manifests) / "000000000004.json").unlink(),
    "tables": lambda lake: cut(lake.path(lake.state) / "tables.json"),
    "field ids": lambda lake: lake.path(lake.field_ids).write_text("{") and None,
    "bronze": lambda lake: shutil.rmtree(lake.path("bronze_events")),
    "torn file of bronze": lambda lake: cut(last_file(lake, "bronze_events")),
    "missing file of bronze": lambda lake: last_file(lake, "bronze_events").unlink(),
    "torn file of quarantine": lambda lake: cut(last_file(lake, "quarantine_events")),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_person_has_to_do_is_left_to_a_person(lake: Lake, name: str) -> None:
    LEFT[name](lake)
    before = everything(lake)
    assert wrong(lake)
    assert list(doctor.repair(lake, settings_of(lake))) == []
    assert everything(lake) == before
    assert all(f.remedy for f in doctor.examine(lake, settings_of(lake)))


@pytest.mark.parametrize("name", ["silver_a_events", "quarantine_events"])
def test_a_table_that_is_gone_is_rebuilt(lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def execute(_: Settings, lake: Lake, request: object) -> dict[str, str]:
        for one in pending(lake):
            asked.append(one.arguments["names"])
            (lake.path(lake.requests) / f"{one.id}.json").unlink()
        return {}

    monkeypatch.setattr("spark_app.recovery.executor.execute", execute)
    monkeypatch.setattr(doctor, "MOST_ROUNDS", 1)
    shutil.rmtree(lake.path(name))
    list(doctor.repair(lake, settings_of(lake)))
    assert asked == ([["a"]] if "silver" in name else [[]])


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_a_broken_file_of_silver_is_removed_and_rebuilt(lake: Lake, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_app.recovery.executor.execute", lambda *_: {})
    monkeypatch.setattr(doctor, "MOST_ROUNDS", 1)
    path = last_file(lake, "silver_a_events")
    cut(path) if how == "torn" else path.unlink()
    assert [path.name in what for what in wrong(lake)] == [True]
    done = list(doctor.repair(lake, settings_of(lake)))
    assert "removed 1 files from silver_a_events; requested a rebuild of a" in done[0]
    assert wrong(lake) == []
    assert values(lake)[2] == list(range(1, 8))
    assert [item.name.startswith(path.name) for item in lake.path(lake.aside).glob("*")] == (
        [True] if how == "torn" else []
    )


def test_gold_with_a_broken_file_is_made_anew(lake: Lake) -> None:
    shutil.copytree(lake.path("silver_a_events"), lake.path("gold_a_player_agg"))
    lake.path(lake.gold_state(GOLD)).write_text("{}")
    cut(last_file(lake, "gold_a_player_agg"))
    assert len(wrong(lake)) == 1
    list(doctor.repair(lake, settings_of(lake)))
    assert wrong(lake) == []
    assert not lake.path("gold_a_player_agg").exists()
    assert not lake.path(lake.gold_state(GOLD)).exists()


def test_a_log_that_the_power_tore_is_mended(lake: Lake) -> None:
    before = values(lake)
    lake.path(lake.synced).unlink()
    entry = max((lake.path("silver_a_events") / "_delta_log").glob("*.json"))
    entry.write_bytes(b"")
    assert wrong(lake) == []  # a start mends it as well
    [done] = doctor.repair(lake, settings_of(lake))
    assert done.endswith("applied 1 units")
    assert (values(lake), wrong(lake)) == (before, [])


def doctor_command(lake: Lake, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PROTOLAKE_LAKE__PATH": str(lake.root), "PROTOLAKE_KAFKA__BROKERS": "127.0.0.1:1"}
    command = [sys.executable, "-m", "spark_app", "doctor", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90)


def test_the_command_says_what_is_wrong_and_mends_it(lake: Lake) -> None:
    cut(lake.path(lake.checkpoint) / "metadata")
    done = doctor_command(lake, "--json")
    assert (done.returncode, done.stderr) == (ExitCode.LOSS, "")
    [found] = [problem for problem in json.loads(done.stdout) if problem["fatal"]]
    assert found["repairable"]
    assert "metadata" in found["what"]
    lake.lease.acquire()
    refused = doctor_command(lake, "--repair")
    lake.lease.release()
    assert refused.returncode == ExitCode.UNREACHABLE
    assert "in use by another process" in refused.stderr
    mended = doctor_command(lake, "--repair")
    assert mended.returncode == ExitCode.DONE, mended.stdout + mended.stderr
    assert "repaired    moved" in mended.stderr


def test_no_lake_is_a_matter_of_settings(tmp_path: Path) -> None:
    done = doctor_command(Lake(tmp_path / "nothing"))
    assert done.returncode == ExitCode.CONFIGURATION
    assert not (tmp_path / "nothing").exists()


def test_files_of_an_open_unit_are_no_orphans_however_old(lake: Lake) -> None:
    take(lake, 1, finish=False)
    for path in lake.root.glob("*/part-*09-*.parquet"):
        os.utime(path, (0, 0))
    before = everything(lake)
    assert [f.what for f in doctor.examine(lake, settings_of(lake)) if "not in all tables" in f.what]
    assert everything(lake) == before
    assert any("applied 1 units" in done for done in doctor.repair(lake, settings_of(lake)))
    assert open_again(lake).units.redone_units == 0
    assert values(lake) == [list(range(1, 10))] * len(TABLES)


def test_a_running_app_may_move_the_checkpoint_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    look = checkpoint.examine

    def moving(lake: Lake, last: Manifest | None) -> list[Problem]:
        if last and last.sequence == 8:
            take(lake, 2)
            write_checkpoint(lake.path(lake.checkpoint), {"t": {"0": 0}}, [{"t": {"0": end}} for end in (7, 8, 9, 10)])
        return look(lake, last)

    monkeypatch.setattr(checkpoint, "examine", moving)
    assert wrong(lake) == []
