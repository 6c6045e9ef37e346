"""Two processes that believe to have the lease of one lake in a bucket: the old one changes nothing that a reader sees.

The old one was stopped for long. It wakes up before it looks at the lease, or right after: `blind`.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.delta import inventory, rewrite
from spark_app.lake.delta.maintenance import sweep
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.table_schema import columns_of
from spark_app.lake.files.object_clients import open_store
from spark_app.lake.files.reference_files import read_copy
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import LeaseLost
from spark_app.recovery import file_checks, requests
from spark_app.recovery.requests import Request, RequestAttempts, save_progress
from spark_app.settings.silver import Reference
from spark_app.tables.references.tables import ReferenceTables
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.references import section, write
from tests.support.stores import Moto, address_in
from tests.unit.units.test_bucket_lake import COMPACTING, KINDS, check, lake_at, play

RETENTION_S = 2.1  # a second, and the store's times are whole seconds


@pytest.fixture
def address(moto: Moto) -> StorageAddress:
    return address_in(moto)


def contents(lake: Lake) -> dict[str, str]:
    """Key -> tag, of all that a reader or another process may look at."""
    found = [one for chunk in obstore.list(open_store(lake.address)) for one in chunk]
    return {one["path"]: str(one["e_tag"]) for one in found if one["path"] != Lake.leased}


def blind(lake: SmallLake, patch: pytest.MonkeyPatch) -> None:
    """Let a process pass each look at the lease, as if it were stopped right after."""
    patch.setattr(lake.lake.lease, "check", lambda: None)


@pytest.fixture
def two(address: StorageAddress, tmp_path: Path) -> Iterator[tuple[SmallLake, SmallLake]]:
    """A lake that one process has written, which no longer renews its lease, and a second one of another machine that
    has taken it over and written a unit."""
    old = lake_at(address, tmp_path / "old", **COMPACTING)
    play(old, 3)
    old.lake.lease._ended.set()  # type: ignore[attr-defined]  # as if it were stopped
    new = lake_at(address, tmp_path / "new", **COMPACTING)
    new.ends, new.kafka = dict(old.ends), old.kafka
    yield old, new
    new.lake.lease.release()


@pytest.mark.parametrize(
    ("looks", "said"), [(True, "was taken over by"), (False, "another process has committed a unit")]
)
def test_a_process_that_was_taken_over_commits_nothing(
    two: tuple[SmallLake, SmallLake], looks: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that was stopped after it has looked at the lease."""
    old, new = two
    if not looks:
        monkeypatch.setattr(old.lake.lease, "check", lambda: None)
    assert (new.lake.lease.epoch, new.lake.lease.took_over) == (2, True)
    new.opened.units.committer.tables.wait_for_checkpoints()
    before = contents(new.lake)
    with pytest.raises(LeaseLost, match=said):
        old.take(batch_of(KINDS, first=old.ends[0]))
    named = {key for key in contents(new.lake).keys() - before.keys() if "part-" not in key}
    assert named == set()  # orphans alone, which a round removes later
    assert {key: tag for key, tag in contents(new.lake).items() if key in before} == before
    new.ends = {0: 3 * len(KINDS)}
    del new.kafka.batches[3:]
    play(new, 2)
    check(new)


def test_a_takeover_counts_a_unit_that_came_just_before_and_ends_if_it_is_taken_over_itself(
    two: tuple[SmallLake, SmallLake],
) -> None:
    old, new = two
    units = new.opened.units
    counts = units.manifests.read(units.manifests.last).counts
    faster = Manifests(new.lake)
    units.manifests.take_over(counts)
    faster.take_over(counts | {"run": "another"})
    assert [faster.read(number).kind for number in faster.numbers()[-3:]] == ["takeover"] * 3
    with pytest.raises(LeaseLost, match="was taken over by"):
        Manifests(old.lake).take_over(counts)


def test_who_took_over_and_left_before_its_unit_leaves_the_takeover_to_the_next(
    address: StorageAddress, tmp_path: Path
) -> None:
    """Such as `doctor --repair`, or a start that was refused: the old process could still commit its next unit."""
    old = lake_at(address, tmp_path / "old", **COMPACTING)
    play(old, 3)
    old.lake.lease._ended.set()  # type: ignore[attr-defined]  # as if it were stopped
    for name in ("repair", "refused"):
        between = Lake(replace(old.lake.address, local=str(tmp_path / name)))
        between.local_state.create_folders(between.state)
        between.lease.acquire()
        assert between.lease.took_over
        between.lease.release()
    new = lake_at(address, tmp_path / "new", **COMPACTING)
    assert new.opened.units.manifests.read(4).kind == "takeover"
    with pytest.raises(LeaseLost):
        old.take(batch_of(KINDS, first=old.ends[0]))
    new.lake.lease.release()
    new.lake.lease.acquire()
    assert not new.lake.lease.took_over
    new.lake.lease.release()


def test_nor_does_it_compact_remove_or_write_state(two: tuple[SmallLake, SmallLake]) -> None:
    old, new = two
    play(new)
    new.opened.units.committer.tables.wait_for_checkpoints()
    before = contents(new.lake)
    units = old.opened.units
    units.committer.tables.get("bronze_events")
    for attempt in (
        lambda: old.lake.deletes.delete(["bronze_events/x.parquet"]),
        lambda: old.opened.resolver.ledger.save() or old.lake.storage.replace(old.lake.ledger, b"[]"),
        lambda: units.committer.tables.replace_files("bronze_events", [], []),
        lambda: old.lake.lease.check(),
    ):
        with pytest.raises(LeaseLost):
            attempt()
    assert contents(new.lake) == before
    check(new)


def test_the_unit_of_a_takeover_names_its_epoch(two: tuple[SmallLake, SmallLake]) -> None:
    _, new = two
    last = new.opened.units.manifests.read(new.opened.units.manifests.last)
    assert (last.kind, last.sequence, last.tables, last.counts["epoch"]) == ("takeover", 4, {}, 2)
    rounds = [json.loads(new.lake.storage.get(key)) for key in new.lake.storage.list("_protolake/deletes")]
    assert rounds[-1] == {"epoch": 2, "keys": []}


def test_the_number_of_a_takeover_stays_taken_however_many_units_follow(
    two: tuple[SmallLake, SmallLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two
    play(new, 3)
    manifests = new.opened.units.manifests
    manifests.forget(keep=1, needed_from=manifests.last)
    assert manifests.numbers() == [4, 7]
    assert (manifests.gone_until(3), manifests.gone_until(6)) == (6, 0)
    again = Manifests(new.lake)
    again.forget(keep=0, needed_from=again.last)  # another process knows no kinds yet
    assert again.numbers() == [4, 7]
    layout = new.settings.layout
    assert inventory.examine(new.lake, again, new.opened.units.committer, layout) == []
    blind(old, monkeypatch)
    with pytest.raises(LeaseLost, match="another process has committed a unit"):
        old.take(batch_of(KINDS, first=old.ends[0]))
    assert again.numbers() == [4, 7]


def test_missing_manifests_behind_those_that_stay_are_still_named(two: tuple[SmallLake, SmallLake]) -> None:
    _, new = two
    play(new, 4)
    manifests = new.opened.units.manifests
    manifests.forget(keep=3, needed_from=manifests.last)
    new.lake.storage.delete(f"{Lake.manifests}/{7:012d}.json")
    found = inventory.examine(new.lake, manifests, new.opened.units.committer, new.settings.layout)
    assert [one.what for one in found] == ["manifests 7 to 7 are missing"]


def test_what_the_new_process_made_of_a_table_is_no_loss_to_the_old_one(
    two: tuple[SmallLake, SmallLake],
) -> None:
    """It was stopped between the manifest of its last unit and the entries: 65 would hold it for ever."""
    old, new = two
    last = old.opened.units.manifests.read(3)
    play(new)
    old.opened.units.committer.forget("bronze_events")
    with pytest.raises(LeaseLost, match="was taken over by"):
        old.opened.units.committer.apply(last)


def test_an_entry_of_the_old_process_names_no_file_that_was_removed(
    two: tuple[SmallLake, SmallLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two
    name, tables = "bronze_events", old.opened.units.committer.tables
    table = tables.get(name)
    assert table is not None
    [paths] = rewrite.plan(rewrite.live(table), 1 << 30)
    merged = rewrite.merge(old.lake.storage, name, paths, columns_of(table), "zstd")
    newer = new.opened.units.committer.tables.get(name)
    assert newer is not None
    assert newer.version() == table.version()
    time.sleep(RETENTION_S)
    assert merged.path in sweep(new.lake, name, newer)
    blind(old, monkeypatch)
    with pytest.raises(FileExistsError):
        tables.replace_files(name, [merged], paths)
    check(new)


def test_files_are_not_removed_if_the_old_process_was_faster(two: tuple[SmallLake, SmallLake]) -> None:
    _, new = two
    name = "bronze_events"
    newer = new.opened.units.committer.tables.get(name)
    assert newer is not None
    new.lake.storage.replace(f"{name}/orphan.parquet", b"x", durable=False)
    play_entry(new.lake, name, newer.version() + 1)
    time.sleep(RETENTION_S)
    before = contents(new.lake)
    assert sweep(new.lake, name, newer) == []
    assert contents(new.lake) == before
    assert sweep(new.lake, name, newer) == ["orphan.parquet"]


def test_doctor_leaves_files_that_an_old_process_could_still_commit(address: StorageAddress, tmp_path: Path) -> None:
    """It takes the lake over without a unit, so that process can commit its next one."""
    old = lake_at(address, tmp_path / "old", **COMPACTING)
    play(old, 2)
    orphan = "bronze_events/part-000000000003-00000000-0.parquet"
    old.lake.storage.replace(orphan, b"x", durable=False)
    old.lake.lease._ended.set()  # type: ignore[attr-defined]  # as if it were stopped
    doctor = Lake(replace(old.lake.address, local=str(tmp_path / "doctor")))
    doctor.local_state.create_folders(doctor.state)
    doctor.lease.acquire()
    time.sleep(RETENTION_S)
    [problem] = file_checks.orphans(doctor, old.opened.units.manifests, old.opened.units.committer)
    assert problem.repair is not None
    assert problem.repair().startswith("left the files of bronze_events to the app")
    assert doctor.storage.exists(orphan)
    doctor.lease.release()


def play_entry(lake: Lake, name: str, version: int) -> None:
    lake.storage.put_if_absent(f"{name}/_delta_log/{version:020d}.json", b'{"commitInfo": {"timestamp": 1}}')


def gold_of(lake: SmallLake) -> GoldTables:
    aggregates = {"n": {"function": "count", "field": "x"}}
    known = lake.settings.model_dump() | {"event": {"key": "gamer"}, "gold": {"aggregates": aggregates}}
    return GoldTables(lake.opened, GoldSpec.all_of(type(lake.settings).model_validate(known))[0])


def part(kind: pa.DataType, **counts: int) -> pa.Table:
    return pa.table({"gamer": list(counts), "n": pa.array(counts.values(), kind)})


@pytest.mark.parametrize(
    "attempt",
    [
        lambda gold: gold.merge("a", part(pa.int64(), x=1), 4),
        lambda gold: gold.merge("a", part(pa.decimal128(38, 0), x=1), 4),
        lambda gold: gold.replace("a", part(pa.int64(), x=1), 4),
        lambda gold: gold.merge("b", part(pa.int64(), x=1), 4),
    ],
    ids=["fold", "rewrite", "replace", "begin"],
)
def test_gold_is_committed_under_the_lease_only(
    address: StorageAddress, tmp_path: Path, attempt: Callable[[GoldTables], Any]
) -> None:
    old = lake_at(address, tmp_path / "old")
    gold = gold_of(old)
    gold.merge("a", part(pa.int64(), x=1), 3)
    old.lake.lease._ended.set()  # type: ignore[attr-defined]  # as if it were stopped
    new = lake_at(address, tmp_path / "new")
    before = {key for key in contents(new.lake) if "_delta_log" in key}
    with pytest.raises(LeaseLost):
        attempt(gold)
    assert {key for key in contents(new.lake) if "_delta_log" in key} == before
    new.lake.lease.release()


def test_a_commit_of_delta_rs_is_made_for_one_version(
    address: StorageAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_at(address, tmp_path)
    gold = gold_of(lake)
    gold.merge("a", part(pa.int64(), x=1), 3)
    name = "gold_a_player_agg"
    assert gold.get("a") is not None
    play_entry(lake.lake, name, 1)
    with pytest.raises(DeltaError):
        gold._rewrite(name, part(pa.int64(), x=1), 4)
    uri = lake.lake.storage.uri(name)
    assert DeltaTable(uri, storage_options=lake.lake.storage.delta_options).version() == 1


def test_no_copy_of_a_reference_table_comes_back_under_the_name_of_a_removed_one(
    two: tuple[SmallLake, SmallLake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old process is stopped right before it removes the copy of a version, which is then in force again."""
    old, new = two
    path = write(tmp_path, ("ann", "FR", 1))
    settings = {"players": Reference(**section(path, keep_versions=2)["players"])}
    with monkeypatch.context() as patch:
        blind(old, patch)
        patch.setattr(old.lake.storage, "_fence", lambda: None)
        patch.setattr(old.lake.deletes, "delete", lambda keys: None)
        tables = ReferenceTables(old.lake, settings)
        first = tables.versions()["players"].content
        for country in ("IT", "DE"):
            write(tmp_path, ("ann", country, 1))
            assert tables.versions()["players"].content != first
    write(tmp_path, ("ann", "FR", 1))
    found = ReferenceTables(new.lake, settings).versions()["players"].content
    old.lake.storage.delete(f"{Lake.references}/players/{first}.arrow")
    assert found != first
    assert read_copy(new.lake.storage, "players", found).num_rows == 1
    with pytest.raises(LeaseLost):
        old.lake.deletes.delete([f"{Lake.references}/players/{found}.arrow"])
    assert ReferenceTables(new.lake, settings).versions()["players"].content == found


def test_copies_of_an_earlier_release_are_found(address: StorageAddress, tmp_path: Path) -> None:
    lake = lake_at(address, tmp_path / "local")
    path = write(tmp_path, ("ann", "FR", 1))
    settings = {"players": Reference(**section(path)["players"])}
    content = ReferenceTables(lake.lake, settings).versions()["players"].content
    digest, storage = content.partition("-")[0], lake.lake.storage
    storage.move(f"{Lake.references}/players/{content}.arrow", f"{Lake.references}/players/{digest}.arrow")
    listed = f"{Lake.references}/players.json"
    storage.replace(listed, storage.get(listed).replace(content.encode(), digest.encode()))
    again = ReferenceTables(lake.lake, settings)
    assert again.versions()["players"].content == digest
    write(tmp_path, ("ann", "FR", 1))
    assert again.versions()["players"].content == digest


def test_attempts_at_a_request_are_counted_under_the_lease(two: tuple[SmallLake, SmallLake]) -> None:
    old, new = two
    request = Request("replay", {})
    requests.submit(new.lake, request)
    tries, manifests = RequestAttempts(new.lake, request), new.opened.units.manifests
    assert tries.begin() is None
    save_progress(new.lake, manifests, request, {})
    with pytest.raises(LeaseLost):
        RequestAttempts(old.lake, request).begin()
    requests.discard(Lake(replace(new.lake.address, local="")), request)  # a person cancels it
    tries.failed("an error")  # which is nobody else's write
    save_progress(new.lake, manifests, request, {})


def test_rounds_of_two_threads_have_two_numbers(
    two: tuple[SmallLake, SmallLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest, gold and the events remove files side by side: none takes the other for another process."""
    _, new = two
    deletes, looks = new.lake.deletes, new.lake.lease.check
    barrier = threading.Barrier(2)

    def look() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.5)  # both have counted, unless they take turns
        looks()

    monkeypatch.setattr(new.lake.lease, "check", look)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(deletes.delete, (["bronze_events/x.parquet"], ["bronze_events/y.parquet"])))
