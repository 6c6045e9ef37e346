"""Crashes between decide and the last commit, and what a power cut leaves: every file once, nothing refused wrongly."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.lake.delta.manifest import FORMAT
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from tests.chaos.units import ingest_unit, open_lake
from tests.support.units import open_committer

BRONZE, *OTHERS = TABLES = ["bronze_events", "quarantine_events", "silver_a_events", "silver_b_events"]


def rows_of(sequence: int) -> dict[str, pa.Table]:
    """Bronze has a record for each row of the others."""
    return {name: pa.table({"x": [sequence] * (len(OTHERS) if name == BRONZE else 1)}) for name in TABLES}


def take(lake: Lake, count: int) -> None:
    manifests, committer = open_committer(lake)
    for _ in range(count):
        manifest = ingest_unit(lake, manifests.last + 1, rows_of(manifests.last + 1))
        manifests.commit(manifest)
        committer.apply(manifest)


def values(lake: Lake) -> list[list[int]]:
    bronze, *others = [sorted(DeltaTable(str(lake.path(n))).to_pyarrow_table()["x"].to_pylist()) for n in TABLES]
    units = [unit for unit, rows in sorted(Counter(bronze).items()) for _ in range(rows // len(OTHERS))]
    return [units, *others]


def write_manifest(lake: Lake, **values: object) -> None:
    """The first manifest, with other values than it had."""
    path = lake.path(lake.manifests) / "000000000001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("made", range(len(TABLES) + 1))
@pytest.mark.parametrize("before", [0, 2], ids=["first unit", "third unit"])
def test_redo_makes_the_missing_commits_once(tmp_path: Path, before: int, made: int) -> None:
    lake = open_lake(tmp_path)
    take(lake, before)
    manifests, committer = open_committer(lake)
    manifest = ingest_unit(lake, before + 1, rows_of(before + 1))
    manifests.commit(manifest)
    for name in TABLES[:made]:
        committer._commit(manifest, name, False)
    for missing in (made < len(TABLES), False):
        assert bool(open_committer(lake)[1].redo()) == missing
        assert values(lake) == [list(range(1, before + 2))] * len(TABLES)


@pytest.mark.parametrize("stored", [None, "", "1", "3"])
def test_redo_with_a_stale_mark_changes_nothing(tmp_path: Path, stored: str | None) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5)
    mark = lake.path(lake.manifests) / "finished"
    mark.unlink() if stored is None else mark.write_text(stored)
    open_committer(lake)[1].redo()
    assert values(lake) == [[1, 2, 3, 4, 5]] * len(TABLES)


def test_commit_lost_with_the_power_is_made_again(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 3)
    log = lake.path("silver_a_events") / "_delta_log"
    max(log.glob("*.json")).write_bytes(b"")
    assert open_committer(lake)[1].redo() == 1
    assert values(lake) == [[1, 2, 3]] * len(TABLES)


def test_a_removed_table_is_not_made_again_from_files_that_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = open_lake(tmp_path)
    take(lake, 2)
    shutil.rmtree(lake.path("silver_a_events"))
    assert open_committer(lake)[1].redo() == 0
    assert "silver_a_events" not in lake.tables()
    assert "rebuild" in capsys.readouterr().err
    take(lake, 1)
    assert DeltaTable(str(lake.path("silver_a_events"))).to_pyarrow_table()["x"].to_pylist() == [3]
    open_committer(lake)[1].redo()
    assert DeltaTable(str(lake.path("silver_a_events"))).to_pyarrow_table()["x"].to_pylist() == [3]


def test_bronze_of_a_decided_unit_must_be_there(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, _ = open_committer(lake)
    manifests.commit(ingest_unit(lake, 1, rows_of(1)))
    shutil.rmtree(lake.path("bronze_events"))
    with pytest.raises(ContractError, match="files of bronze_events are missing"):
        open_committer(lake)[1].redo()


def test_bronze_of_a_decided_unit_must_be_there_beside_earlier_ones(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 1)
    manifests, _ = open_committer(lake)
    manifests.commit(ingest_unit(lake, 2, rows_of(2)))
    max(lake.path("bronze_events").glob("*.parquet")).unlink()
    with pytest.raises(ContractError, match="files of bronze_events are missing"):
        open_committer(lake)[1].redo()


def test_unit_of_another_manifest_is_a_contradiction(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 1)
    manifests, _ = open_committer(lake)
    other = replace(manifests.read(1), counts={**manifests.read(1).counts, "newest": 7})
    write_manifest(lake, digest=other.digest, manifest=other.text)
    with pytest.raises(ContractError, match="another manifest"):
        open_committer(lake)[1].redo()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "manifest": "{}", "digest": ""}'])
def test_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    lake = open_lake(tmp_path)
    (lake.path(lake.manifests) / "000000000001.json").write_text(text)
    with pytest.raises(ContractError, match=r"000000000001\.json"):
        open_committer(lake)


def test_manifest_without_a_digest_is_named(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 1)
    path = lake.path(lake.manifests) / "000000000001.json"
    path.write_text(json.dumps({"format": FORMAT, "manifest": json.loads(path.read_text())["manifest"]}))
    with pytest.raises(ContractError):
        open_committer(lake)


def test_manifest_of_a_newer_format_says_so(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 1)
    path = lake.path(lake.manifests) / "000000000001.json"
    newer = json.loads(json.loads(path.read_text())["manifest"]) | {"more": 1}
    write_manifest(lake, format=FORMAT + 1, manifest=json.dumps(newer))
    with pytest.raises(ContractError, match=f"format {FORMAT + 1}.*run a newer"):
        open_committer(lake)


def test_a_new_tables_folder_is_durable_before_the_unit_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(tmp_path)
    manifests, _ = open_committer(lake)
    synced: list[str] = []
    monkeypatch.setattr(LocalStorage, "make_durable", lambda _, *folders: synced.extend(folders))
    manifests.commit(ingest_unit(lake, 1, rows_of(1)))
    assert synced == [*rows_of(1), ""]
