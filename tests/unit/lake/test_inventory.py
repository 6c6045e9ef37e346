"""Tables and state files of another moment, or another lake, than the manifests: each is named, none is made worse."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_app.lake import cursors
from spark_app.lake.delta import inventory
from spark_app.lake.delta.problems import Problem, refuse
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, ExitCode
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import ingest_unit, open_lake
from tests.unit.lake.test_redo import BRONZE, TABLES, rows_of, values


def settings_of(lake: Lake) -> Settings:
    return Settings(lake={"path": str(lake.root)})  # type: ignore[arg-type]


def open_again(lake: Lake) -> OpenLake:
    return OpenLake.of(lake, settings_of(lake))


def take(lake: Lake, count: int, tables: list[str] = TABLES, finish: bool = True) -> None:
    opened = open_again(lake)
    for _ in range(count):
        number = opened.units.manifests.last + 1
        rows = {name: pa.table({"x": [number] * max(1, len(tables) - 1 if name == BRONZE else 1)}) for name in tables}
        manifest = ingest_unit(lake, number, rows)
        opened.units.manifests.commit(manifest)
        if finish:
            opened.units.committer.apply(manifest)


def examine(lake: Lake) -> list[Problem]:
    opened = open_again(lake)
    return inventory.examine(lake, opened.units.manifests, opened.units.committer, opened.settings.layout)


def copy_of(path: Path) -> Path:
    return Path(shutil.copytree(path, path.with_name(f".{path.name}.copy")))


def put_back(copy: Path, path: Path) -> None:
    shutil.rmtree(path)
    copy.rename(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with eight units in every table but one, which only the first has."""
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    take(lake, 1, [*TABLES, "silver_rare_events"])
    take(lake, 7)
    (lake.path(lake.state) / "tables.json").write_text('{"names": {}, "messages": {}}')
    return lake.root


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    """A copy of it."""
    return Lake(shutil.copytree(made, tmp_path / "lake"))


def test_a_lake_in_order_has_no_problems(lake: Lake) -> None:
    assert examine(lake) == []


@pytest.mark.parametrize("newer", [1, 3, 9])
@pytest.mark.parametrize("name", TABLES)
def test_an_older_copy_of_a_table_is_named(lake: Lake, name: str, newer: int) -> None:
    """However much older: a redo of the last units must not make it look like a whole one."""
    copy = copy_of(lake.path(name))
    take(lake, newer)
    open_again(lake).units.committer.close()  # the test is about commits that are durable
    put_back(copy, lake.path(name))
    for _ in range(2):
        [problem] = examine(lake)
        assert problem.fatal
        assert f"{name} is an older copy, its last unit is 8" in problem.what
    with pytest.raises(ContractError, match="older copy") as caught:
        refuse([problem])
    assert caught.value.exit_code is ExitCode.LOSS


def test_an_older_copy_is_named_when_a_unit_is_open_as_well(lake: Lake) -> None:
    copy = copy_of(lake.path("silver_a_events"))
    take(lake, 3)
    take(lake, 1, finish=False)
    put_back(copy, lake.path("silver_a_events"))
    assert ["silver_a_events is an older copy" in problem.what for problem in examine(lake)] == [True]


def test_an_older_log_with_the_files_of_later_units_is_named(lake: Lake) -> None:
    log = lake.path("silver_a_events") / "_delta_log"
    copy = copy_of(log)
    take(lake, 9)
    open_again(lake).units.committer.close()
    put_back(copy, log)
    assert ["last unit is 8" in problem.what for problem in examine(lake)] == [True]


def test_a_log_cut_within_the_last_units_is_made_whole(lake: Lake) -> None:
    """As after a power cut."""
    log = lake.path("silver_a_events") / "_delta_log"
    copy = copy_of(log)
    take(lake, 2)
    put_back(copy, log)
    assert examine(lake) == []
    assert values(lake) == [list(range(1, 11))] * len(TABLES)


def test_a_table_of_long_ago_is_compared_too(lake: Lake) -> None:
    copy = copy_of(lake.path("silver_rare_events"))
    take(lake, 1, ["bronze_events", "silver_rare_events"])
    take(lake, 9, ["bronze_events"])
    put_back(copy, lake.path("silver_rare_events"))
    assert ["silver_rare_events is an older copy" in problem.what for problem in examine(lake)] == [True]


@pytest.mark.parametrize(
    ("name", "fatal"), [("bronze_events", True), ("silver_a_events", False), ("quarantine_events", False)]
)
def test_a_removed_table_is_named(lake: Lake, name: str, fatal: bool) -> None:
    shutil.rmtree(lake.path(name))
    [problem] = examine(lake)
    assert (f"{name} is missing" in problem.what, problem.fatal) == (True, fatal)
    assert not lake.path(name).exists()


def test_a_removed_log_does_not_come_back_with_the_last_units_only(lake: Lake) -> None:
    open_again(lake).units.committer.close()
    shutil.rmtree(lake.path("silver_a_events") / "_delta_log")
    [problem] = examine(lake)
    assert "silver_a_events is missing" in problem.what


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_lost_manifests_are_named_and_no_file_goes(lake: Lake, kept: int) -> None:
    """Without manifests the files of the tables look like those of undecided units."""
    files = sorted(lake.root.glob("*/*.parquet"))
    for path in sorted(lake.path(lake.manifests).glob("0*.json"))[kept:]:
        path.unlink()
    with pytest.raises(ContractError, match=r"has unit 8|restore"):
        refuse(examine(lake))
    assert sorted(lake.root.glob("*/*.parquet")) == files


def test_manifests_of_an_older_copy_are_named_where_the_last_unit_is_none_of_ingest(lake: Lake) -> None:
    opened = open_again(lake)
    unit = ingest_unit(lake, 9, {"silver_rare_events": pa.table({"x": [9]})})
    rare = {"silver_rare_events": unit.tables["silver_rare_events"]}
    opened.units.manifests.commit(replace(unit, kind="deferred", source={"records": 1}, tables=rare))
    opened.units.committer.apply(opened.units.manifests.read(9))
    copy = copy_of(lake.path(lake.manifests))
    end = opened.units.manifests.read(8).source["end"]
    manifest = ingest_unit(lake, 10, rows_of(10))
    opened.units.manifests.commit(replace(manifest, source=manifest.source | {"start": end}))
    opened.units.committer.apply(opened.units.manifests.read(10))
    put_back(copy, lake.path(lake.manifests))
    with pytest.raises(ContractError, match="has unit 10, but the newest manifest is 9"):
        examine(lake)
    assert any("000000000010" in path.name for path in lake.root.glob("*/*.parquet"))


def test_files_of_an_undecided_unit_still_go(lake: Lake) -> None:
    ingest_unit(lake, 9, rows_of(9))
    assert len(lake.files_from(9)) == len(TABLES)
    open_again(lake)
    assert lake.files_from(9) == {}


def test_missing_manifests_between_others_are_named(lake: Lake) -> None:
    (lake.path(lake.manifests) / "000000000007.json").unlink()
    [problem] = examine(lake)
    assert problem.fatal
    assert "manifests 7 to 7 are missing" in problem.what


def test_forgotten_manifests_are_not_missed(lake: Lake) -> None:
    opened = open_again(lake)
    opened.units.manifests.forget(keep=3, needed_from=8)
    assert examine(lake) == []


@pytest.mark.parametrize("text", ["", "junk", "\0\0\0", "protolake-", "[]"])
def test_a_damaged_id_is_refused_and_nothing_is_committed_again(lake: Lake, text: str) -> None:
    (lake.path(lake.state) / "id").write_text(text)
    with pytest.raises(ContractError, match="damaged"):
        open_again(lake)
    assert values(lake) == [list(range(1, 9))] * len(TABLES)


def test_another_lakes_id_is_refused_and_nothing_is_committed_again(lake: Lake) -> None:
    (lake.path(lake.state) / "id").write_text("protolake-00000000-0000-0000-0000-000000000000\n")
    with pytest.raises(ContractError, match="another lake id"):
        open_again(lake)
    assert values(lake) == [list(range(1, 9))] * len(TABLES)


@pytest.mark.parametrize("mark", ["99", "-1", "1e9", "\0"])
def test_a_wrong_mark_of_what_is_finished_hides_no_open_unit(lake: Lake, mark: str) -> None:
    take(lake, 1, finish=False)
    (lake.path(lake.manifests) / "finished").write_text(mark)
    assert examine(lake) == []
    assert values(lake) == [list(range(1, 10))] * len(TABLES)


@pytest.mark.parametrize("name", ["rules.json", "tables.json", "schemas/ledger.json"])
@pytest.mark.parametrize("text", ["", "{", "\0", "3", None])
def test_a_damaged_state_file_is_refused(lake: Lake, name: str, text: str | None) -> None:
    path = lake.path(lake.state) / name
    (lake.path(lake.schemas) / "0.fds").touch()
    path.write_text(text) if text is not None else path.unlink(missing_ok=True)
    with pytest.raises(ContractError, match=path.name):
        refuse(examine(lake))


@pytest.mark.parametrize("name", ["gold.json", "attempts.json", "deferred.json", "status.json", "manifests/finished"])
@pytest.mark.parametrize("text", ["", "{", "\0", "[]", '"x"'])
def test_what_may_be_lost_with_the_machine_stops_nothing(lake: Lake, name: str, text: str) -> None:
    (lake.path(lake.schemas) / "ledger.json").write_text("[]")
    (lake.path(lake.state) / name).write_text(text)
    refuse(examine(lake))


@pytest.mark.parametrize("text", ["{", '{"unit": 99}'])
def test_a_cursor_that_cannot_be_right_is_moved_aside(lake: Lake, text: str) -> None:
    cursors.store(lake, "deliver", 8)
    cursors.store(lake, "gold", 7)
    assert examine(lake) == []
    (lake.path(lake.followers) / "gold.json").write_text(text)
    (found,) = examine(lake)
    assert ("gold.json" in found.what, found.fatal) == (True, True)
    assert "moved" in found.repair()  # type: ignore[misc]
    assert examine(lake) == []


@pytest.mark.parametrize("mark", ["unit", "folded"])
def test_a_mark_that_is_ahead_is_another_lakes(lake: Lake, mark: str) -> None:
    """What it says is done would never be looked at, or never be folded."""
    lake.path(lake.synced).write_text(json.dumps({mark: 99}))
    with pytest.raises(ContractError, match="has unit 99, but the newest manifest is 8"):
        examine(lake)
    assert values(lake) == [list(range(1, 9))] * len(TABLES)


def test_a_crash_before_the_first_ledger_is_no_loss(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    open_again(lake)
    (lake.path(lake.schemas) / "a.fds").touch()
    assert examine(lake) == []
