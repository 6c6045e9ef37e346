"""Hundreds of tiny units: compaction, vacuum and log clean-up keep rows and transactions, and bound everything else."""

import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_app.lake.delta import rewrite
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.maintenance import Maintainer, sweep
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.settings.storing import LakeSettings
from tests.chaos.units import ingest_unit, open_lake
from tests.support.delta_log import read_rows, replay
from tests.support.units import open_committer

TABLES = ["bronze_events", "silver_a_events"]
UNITS = 300
LAST = 60
SECOND = 1 / 3600
SETTINGS = LakeSettings(log_retention_hours=SECOND, compact_files=15, checkpoint_every=25)


def take(manifests: Manifests, committer: TableCommitter, maintainer: Maintainer, lake: Lake) -> None:
    sequence = manifests.last + 1
    manifest = ingest_unit(
        lake, sequence, {name: pa.table({"x": [sequence], "s": [f"row {sequence}"]}) for name in TABLES}
    )
    manifests.commit(manifest)
    committer.apply(manifest)
    for name in TABLES:
        maintainer.added(name, 1)
    maintainer.step()


def sizes(lake: Lake) -> tuple[int, int]:
    """(most data files in a table's folder, most files in a table's log)."""
    data = [len(list(lake.path(name).glob("*.parquet"))) for name in TABLES]
    return max(data), max(len(list((lake.path(name) / "_delta_log").iterdir())) for name in TABLES)


def codec_of(path: Path) -> str:
    return str(pq.read_metadata(path).row_group(0).column(0).compression)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_hundreds_of_tiny_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # thousands of them take most of the time
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced)
    peak = 0
    for number in range(UNITS):
        take(manifests, committer, maintainer, lake)
        if number == UNITS // 2:
            peak = peak_bytes()
        if number == UNITS - LAST:
            time.sleep(1.1)  # all before is past its retention, however fast the machine is
    assert max(sizes(lake)) < UNITS * 0.6
    assert peak_bytes() - peak < 64 << 20
    for name in TABLES:
        state = replay(lake.path(name))
        assert state.transactions == {lake.identity(): UNITS}
        assert sorted(read_rows(lake.path(name), state)["x"].to_pylist()) == list(range(1, UNITS + 1))
        again = DeltaTable(str(lake.path(name)))
        assert sorted(again.to_pyarrow_table()["x"].to_pylist()) == list(range(1, UNITS + 1))
        assert len(state.files) < 2 * SETTINGS.compact_files
    assert open_committer(lake, SETTINGS)[1].redo() == 0


def test_few_small_files_are_left_alone(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced)
    assert not maintainer.step()
    for _ in range(SETTINGS.compact_files - 1):
        take(manifests, committer, maintainer, lake)
    assert len(replay(lake.path("bronze_events")).files) == SETTINGS.compact_files - 1


def test_a_compaction_changes_no_data(tmp_path: Path) -> None:
    """Readers that follow a table would get the merged rows again."""
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced)
    for _ in range(SETTINGS.compact_files):
        take(manifests, committer, maintainer, lake)
    entries = [
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted((lake.path("bronze_events") / "_delta_log").glob("*.json"))
    ]
    (merge,) = (entry for entry in entries if entry[0].get("commitInfo", {}).get("operation") == "OPTIMIZE")
    changes = [action.get("add") or action.get("remove") for action in merge[1:]]
    assert len(changes) > SETTINGS.compact_files
    assert [change["dataChange"] for change in changes] == [False] * len(changes)


def test_a_restart_counts_what_is_there(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    for _ in range(3):
        take(manifests, committer, Maintainer(committer.tables, SETTINGS, committer.synced), lake)
    eager = SETTINGS.model_copy(update={"compact_files": 3})
    _, committer = open_committer(lake, eager)
    maintainer = Maintainer(committer.tables, eager, committer.synced)
    assert maintainer.count_files([*TABLES, "not_there"]) == dict.fromkeys(TABLES, 3)
    assert [maintainer.step(), maintainer.step(), maintainer.step()] == [True, True, False]
    for name in TABLES:
        state = replay(lake.path(name))
        assert (len(state.files), state.transactions) == (1, {lake.identity(): 3})


def test_a_table_that_was_removed_does_not_keep_the_others_from_compaction(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    eager = SETTINGS.model_copy(update={"compact_files": 3})
    manifests, committer = open_committer(lake, eager)
    for _ in range(3):
        take(manifests, committer, Maintainer(committer.tables, SETTINGS, committer.synced), lake)
    maintainer = Maintainer(committer.tables, eager, committer.synced)
    maintainer.count_files(TABLES)
    maintainer.added("silver_a_events", 1)
    shutil.rmtree(lake.path("silver_a_events"))
    committer.forget("silver_a_events")
    maintainer.step()
    maintainer.step()
    assert len(replay(lake.path("bronze_events")).files) == 1


def test_a_compaction_that_fails_leaves_no_files(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    for _ in range(4):
        take(manifests, committer, Maintainer(committer.tables, SETTINGS, committer.synced), lake)
    before = sorted(lake.path("bronze_events").glob("*.parquet"))
    two_each = 2 * before[0].stat().st_size + 10
    before[-1].write_bytes(b"damaged")
    eager = SETTINGS.model_copy(update={"compact_files": 3, "compact_bytes": two_each})
    maintainer = Maintainer(committer.tables, eager, committer.synced)
    maintainer.count_files(["bronze_events"])
    assert maintainer.step()
    assert sorted(lake.path("bronze_events").glob("*.parquet")) == before


def test_of_many_tables_those_far_behind_are_compacted_together(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    names = [f"silver_{number}_events" for number in range(7)]
    for sequence in (1, 2, 3):
        manifest = ingest_unit(lake, sequence, {name: pa.table({"x": [sequence]}) for name in names})
        manifests.commit(manifest)
        committer.apply(manifest)
    maintainer = Maintainer(committer.tables, SETTINGS.model_copy(update={"compact_files": 1}), committer.synced)
    maintainer.count_files(names)
    left = []
    while maintainer.step() and len(left) < 4:
        left.append(sum(len(replay(lake.path(name)).files) == 3 for name in names))
    assert left[:4] == [3, 0, 0, 0]


def test_a_table_whose_units_merge_its_files_is_only_tidied(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced, {"silver_a_events"})
    for _ in range(4 * SETTINGS.compact_files):
        take(manifests, committer, maintainer, lake)
    assert len(replay(lake.path("bronze_events")).files) < SETTINGS.compact_files
    assert len(replay(lake.path("silver_a_events")).files) == 4 * SETTINGS.compact_files
    time.sleep(1.1)  # all of its log is past its retention
    for _ in range(SETTINGS.compact_files):
        take(manifests, committer, maintainer, lake)
    assert len(list((lake.path("silver_a_events") / "_delta_log").glob("*.json"))) < 4 * SETTINGS.compact_files


def test_a_table_with_a_damaged_file_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = open_lake(tmp_path)
    settings = LakeSettings(compact_files=4)
    manifests, committer = open_committer(lake, settings)
    maintainer = Maintainer(committer.tables, settings, committer.synced)
    take(manifests, committer, maintainer, lake)
    damaged = next(lake.path("silver_a_events").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    for _ in range(5):
        take(manifests, committer, maintainer, lake)
    assert capsys.readouterr().err.count("cannot be compacted") == 1
    assert manifests.applied() == 6
    assert len(list(lake.path("silver_a_events").glob("*.parquet"))) == 6
    assert sorted(DeltaTable(str(lake.path("bronze_events"))).to_pyarrow_table()["x"].to_pylist()) == list(range(1, 7))


def test_compaction_writes_bronze_with_its_own_compression(tmp_path: Path) -> None:
    settings = LakeSettings(compact_files=2, bronze_compression="none")
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, settings)
    maintainer = Maintainer(committer.tables, settings, committer.synced)
    for _ in range(4):
        take(manifests, committer, maintainer, lake)
    merged = {name: list(lake.path(name).glob("merged-*")) for name in TABLES}
    found = {name: {codec_of(path) for path in paths} for name, paths in merged.items()}
    assert found == {"bronze_events": {"UNCOMPRESSED"}, "silver_a_events": {"ZSTD"}}


def test_the_bronze_of_another_name_has_bronze_s_compression(tmp_path: Path) -> None:
    settings = LakeSettings(compression="snappy", bronze_compression="zstd:-5")
    tables = Tables(open_lake(tmp_path), settings, TableNames(bronze="raw"))
    assert (tables.compression_of("raw"), tables.compression_of("bronze_events")) == ("zstd:-5", "snappy")


def test_files_that_were_removed_are_not_named_again(tmp_path: Path) -> None:
    """The log has their tombstones until a checkpoint forgets them. The folder's name needs quoting in an address."""
    lake = open_lake(tmp_path / "my lake, 50% ü")
    manifests, committer = open_committer(lake, LakeSettings(log_retention_hours=SECOND))
    maintainer = Maintainer(committer.tables, LakeSettings(log_retention_hours=SECOND), committer.synced)
    for _ in range(3):
        take(manifests, committer, maintainer, lake)
    table = committer.tables.get(TABLES[0])
    assert table is not None
    table.optimize.compact()
    time.sleep(1.1)
    assert len(sweep(lake, TABLES[0], table, dry_run=True)) == len(sweep(lake, TABLES[0], table)) == 3
    again = DeltaTable(str(lake.path(TABLES[0])))
    assert sweep(lake, TABLES[0], again, dry_run=True) == []


@pytest.mark.parametrize("size", [2_000, 20_000, 200_000])
def test_a_row_is_rewritten_a_few_times_however_many_units_follow(size: int) -> None:
    """Six hours of a unit per second: merging the largest file with each few small ones would be 40 times."""
    units, live, written, fresh = 6 * 3600, [("first", size)], 0, 1
    for number in range(units):
        live.append((f"{number}", size))
        fresh += 1
        if fresh >= LakeSettings().compact_files:
            fresh = 0
            for paths in rewrite.plan(live, LakeSettings().compact_bytes):
                first = next(place for place, (path, _) in enumerate(live) if path in paths)
                merged = sum(bytes_ for path, bytes_ in live if path in paths)
                live = [one for one in live if one[0] not in paths]
                live.insert(first, (f"merged at {number}, {first}", merged))
                written += merged
        assert len(live) < 2 * LakeSettings().compact_files + sum(bytes_ for _, bytes_ in live) // (32 << 20)
    assert written < 4.5 * units * size
