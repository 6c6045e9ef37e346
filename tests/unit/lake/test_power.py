"""What a power cut tears is cut back and made again, or refused by name; what is durable is not looked at again."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.lake import cursors
from spark_app.lake.delta import commit, durability, inventory
from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.problems import refuse
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, UnreachableError
from spark_app.model.table_names import GOLD, TableNames
from spark_app.settings.storing import LakeSettings
from tests.chaos import mount
from tests.chaos.commits import cut_often, gold_of, open_all
from tests.chaos.units import ingest_unit, open_lake
from tests.support.units import open_committer

TABLES = ["bronze_events", "silver_a_events"]
LAYOUT = TableNames()
SETTINGS = LakeSettings(checkpoint_every=3, compact_files=4)


def take(lake: Lake, units: int, compact: bool = False) -> TableCommitter:
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced)
    for _ in range(units):
        number = manifests.last + 1
        manifest = ingest_unit(lake, number, {name: pa.table({"x": [number]}) for name in TABLES})
        manifests.commit(manifest)
        committer.apply(manifest)
    committer.tables.wait_for_checkpoints()
    maintainer.count_files(TABLES)
    while compact and maintainer.step():
        committer.tables.wait_for_checkpoints()
    return committer


def values(lake: Lake) -> list[list[int]]:
    tables = [DeltaTable(str(lake.path(name))).to_pyarrow_table() for name in TABLES]
    return [sorted(table["x"].to_pylist()) for table in tables]


def log_of(lake: Lake) -> Path:
    return lake.path(delta_log.log_key("silver_a_events"))


def entry(lake: Lake, version: int) -> Path:
    return log_of(lake) / f"{version:020d}.json"


def look(lake: Lake) -> list[str]:
    return [problem.what for problem in durability.look(lake, DurabilityMark(lake), LAYOUT)]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "part": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "whole lines": lambda path: path.write_bytes(path.read_bytes().rpartition(b"\n")[0]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("version", [0, 2, 4])
def test_torn_entry_and_all_that_follows_are_made_again(
    tmp_path: Path, version: int, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5)
    DAMAGES[damage](entry(lake, version))
    _, committer = open_committer(lake)
    assert committer.redo() == 5 - version
    assert values(lake) == [[1, 2, 3, 4, 5]] * 2
    said = "silver_a_events: the machine lost power" in capsys.readouterr().err
    assert said == ((damage, version) != ("gone", 4))  # the last one leaves nothing behind
    assert look(lake) == []
    assert open_committer(lake)[1].redo() == 0


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "whole lines"])
@pytest.mark.parametrize("name", [f"{2:020d}.checkpoint.parquet", delta_log.POINTER])
def test_torn_checkpoint_or_pointer_costs_no_commit(tmp_path: Path, name: str, damage: str) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5)
    DAMAGES[damage](log_of(lake) / name)
    assert open_committer(lake)[1].redo() == 0
    assert values(lake) == [[1, 2, 3, 4, 5]] * 2
    assert look(lake) == []


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "whole lines"])
def test_compaction_without_its_file_did_not_happen(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(tmp_path)
    monkeypatch.setattr(DurabilityMark, "sync", lambda *_, **__: None)
    take(lake, 5, compact=True)
    [merged] = lake.path("silver_a_events").glob("merged-*.parquet")
    DAMAGES[damage](merged)
    assert open_committer(lake)[1].redo() == 0
    assert values(lake) == [[1, 2, 3, 4, 5]] * 2
    assert open_committer(lake)[1].tables.get("silver_a_events").version() == 4  # type: ignore[union-attr]


def test_after_a_clean_stop_only_the_last_unit_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5).close()
    manifests, committer = open_committer(lake)
    monkeypatch.setattr(manifests, "read", {5: manifests.read(5)}.__getitem__)
    monkeypatch.setattr(delta_log, "read_entry", lambda storage, table, version: {5: None}[version])
    assert committer.redo() == 0
    assert look(lake) == []
    assert (committer.synced.unit, committer.synced.versions) == (5, dict.fromkeys(TABLES, 4))


def test_commits_become_durable_beside_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path)
    monkeypatch.setattr(commit, "SYNC_EVERY_S", 0.0)
    committer = take(lake, 5)
    committer._pool.shutdown()
    synced = DurabilityMark(lake)
    assert 0 < synced.unit <= 5
    assert synced.versions["silver_a_events"] >= synced.unit - 1
    assert open_committer(lake)[1].redo() == 0


def test_every_unit_behind_the_mark_is_looked_at(tmp_path: Path) -> None:
    """Far more than a few: the kernel holds half a minute of commits."""
    lake = open_lake(tmp_path)
    take(lake, 20)
    for version in range(20):
        entry(lake, version).unlink()
    for path in [*log_of(lake).glob("*.parquet"), log_of(lake) / delta_log.POINTER]:
        path.unlink()
    assert open_committer(lake)[1].redo() == 20
    assert values(lake) == [list(range(1, 21))] * 2


def test_a_table_older_than_it_was_is_named_and_not_added_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5).close()
    for version in (3, 4):
        entry(lake, version).unlink()
    manifests, committer = open_committer(lake)
    assert "silver_a_events is at version 2, but was at 4" in capsys.readouterr().err
    assert committer.redo() == 0
    with pytest.raises(ContractError, match="silver_a_events is an older copy"):
        refuse(inventory.examine(lake, manifests, committer, LAYOUT))
    assert "silver_a_events" not in DurabilityMark(lake).versions


def test_manifests_older_than_they_were_are_refused(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5).close()
    (lake.path(lake.manifests) / "000000000005.json").unlink()
    with pytest.raises(ContractError, match="has unit 5, but the newest manifest is 4"):
        open_committer(lake)[1].redo()


def test_a_log_whose_beginning_has_expired_cannot_be_cut_to_nothing(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5)
    for version in range(3):
        entry(lake, version).unlink()
    (log_of(lake) / f"{2:020d}.checkpoint.parquet").write_bytes(b"")
    [problem] = durability.look(lake, DurabilityMark(lake), LAYOUT)
    assert (problem.fatal, problem.repair) == (True, None)
    with pytest.raises(ContractError, match=r"silver_a_events.*torn.*remove it and run `rebuild`"):
        open_committer(lake)


def test_gold_beyond_repair_is_computed_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = open_lake(tmp_path)
    take(lake, 2).close()
    lake.path("silver_a_events").rename(lake.path("gold_a_player_agg"))
    lake.path(lake.gold_state(GOLD)).write_text("{}")
    synced = DurabilityMark(lake)
    synced.sync(["gold_a_player_agg"])
    (lake.path(delta_log.log_key("gold_a_player_agg")) / f"{1:020d}.json").unlink()
    open_committer(lake)
    assert "the app computes it anew" in capsys.readouterr().err
    assert (lake.tables(), lake.path(lake.gold_state(GOLD)).exists()) == (["bronze_events"], False)
    assert "gold_a_player_agg" not in DurabilityMark(lake).versions


def test_a_table_that_is_made_anew_forgets_its_mark(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5).close()
    lake.path("silver_a_events").rename(tmp_path / "aside")
    take(lake, 1)
    assert DurabilityMark(lake).versions == {"bronze_events": 4}
    assert look(lake) == []
    assert values(lake)[1] == [6]


def test_a_disk_that_does_not_keep_ends_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path)
    committer = take(lake, 2)

    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(UnreachableError, match=r"could not store written data .*check it"):
        committer.close()
    monkeypatch.undo()
    assert DurabilityMark(lake).unit == 0


def test_the_mark_is_never_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a redo has still to make does not count, though `finished` survived."""
    lake = open_lake(tmp_path)
    take(lake, 5)
    entry(lake, 1).unlink()
    monkeypatch.setattr(commit, "SYNC_EVERY_S", 0.0)
    seen: list[int] = []
    _, committer = open_committer(lake)
    make = committer._apply
    monkeypatch.setattr(committer, "_apply", lambda *a, **k: (seen.append(committer.synced.unit), make(*a, **k))[1])
    committer.redo()
    assert (int((lake.path(lake.manifests) / "finished").read_text()), seen) == (5, [0] * 5)


def test_folders_of_a_new_lake_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("spark_app.lake.files.local._sync", lambda path: synced.append(Path(path)))
    lake = open_lake(tmp_path / "new" / "lake")
    assert {tmp_path, tmp_path / "new", lake.root, lake.path(lake.state)} <= set(synced)


def test_entries_say_what_nobody_made_durable(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    take(lake, 5, compact=True)
    newest = max(delta_log.versions(lake.storage, "silver_a_events"))
    entries = [delta_log.read_entry(lake.storage, "silver_a_events", version) for version in range(newest + 1)]
    assert [(e.unit, len(e.adds)) for e in entries if e] == [(n, 0) for n in range(1, 6)] + [(None, 1)]
    assert json.loads((lake.path(lake.state) / "synced.json").read_text())["versions"]["silver_a_events"] == newest


def test_gold_of_a_killed_process_is_made_durable_by_the_next(tmp_path: Path) -> None:
    """Nothing of it is new to that one, and yet what it says is durable must be."""
    opened = open_all(tmp_path)
    rows = pa.table({"gamer_id": ["x"], "score": [1]})
    manifest = ingest_unit(opened.lake, 1, {"silver_a_events": rows})
    opened.units.manifests.commit(manifest)
    opened.units.committer.apply(manifest)
    gold_of(opened).run()
    gold = gold_of(open_all(tmp_path))
    assert gold.run() == {}
    gold.close()
    versions = DurabilityMark(opened.lake).versions
    assert (cursors.read(opened.lake, "gold"), versions["gold_a_player_agg"]) == (1, 0)


def test_the_disk_empties_a_file_that_is_opened_to_be_written_anew(tmp_path: Path) -> None:
    """As a kill leaves a temporary file, which the next writer of its name finds."""
    if reason := mount.missing():
        pytest.skip(f"POWER CUTS NOT TESTED: {reason}")
    with mount.mounted(tmp_path / "disk") as disk:
        file = disk.path / "file"
        for content in (b"longer", b"short", b""):
            file.write_bytes(content)
            assert file.read_bytes() == content


def test_power_cuts(tmp_path: Path) -> None:
    """Real commits, compaction, clean-up and gold, on a file system that keeps only what was fsynced."""
    if reason := mount.missing():
        pytest.skip(f"POWER CUTS NOT TESTED: {reason}")
    with mount.mounted(tmp_path / "disk") as disk:
        cuts = cut_often(disk, random.Random(tmp_path.name), times=8)
    assert cuts.faults == {}


def test_a_table_that_is_removed_under_a_sync_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first commits of a table that is made again would pass for durable ones."""
    lake = open_lake(tmp_path)
    take(lake, 3)
    synced = DurabilityMark(lake)
    sync = delta_log.sync

    def remove_meanwhile(storage: LocalStorage, table: str, *rest: Any) -> Any:
        found = sync(storage, table, *rest)
        if table == "silver_a_events":
            synced.forget(table)
        return found

    monkeypatch.setattr(delta_log, "sync", remove_meanwhile)
    synced.sync(TABLES, unit=3)
    assert (DurabilityMark(lake).unit, DurabilityMark(lake).versions) == (3, {"bronze_events": 2})
    monkeypatch.undo()
    synced.sync(TABLES, unit=3)
    assert DurabilityMark(lake).versions == {"bronze_events": 2, "silver_a_events": 2}
