"""What a look at the waiting records costs follows what became ready: files that hold nothing of it are left alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.lake.files.local import LocalStorage
from spark_app.units.driver import deferred, ingest
from tests.spark.parts import Killed, Parts, events, source
from tests.spark.test_spark_deferred import LANDED, landed
from tests.support.answers import Answers

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
DEFERRED = "deferred_events"


def files_of(parts: Parts) -> dict[str, list[int]]:
    """File of `deferred_events` -> its offsets."""
    folder = parts.lake.path(DEFERRED)
    paths = DeltaTable(str(folder)).get_add_actions()["path"].to_pylist()
    return {path: pq.ParquetFile(folder / path).read(["offset"])["offset"].to_pylist() for path in sorted(paths)}


def read_paths(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files of `deferred_events` that are opened from now on."""
    opened: list[str] = []
    open_input = LocalStorage.open_input

    def watch(storage: LocalStorage, key: str) -> pa.NativeFile:
        folder, _, name = key.partition("/")
        opened.extend([name] if folder == DEFERRED else [])
        return open_input(storage, key)

    monkeypatch.setattr(LocalStorage, "open_input", watch)
    return opened


def test_only_the_files_of_a_schema_that_is_ready_are_read_and_leave(
    new_parts: NewParts, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["/schemas/ids/2"] = answers["/schemas/ids/3"] = (500, {"error_code": 50001, "message": "starting"})
    parts = new_parts(answers.url)
    parts.learn(1)
    for version, game in itertools.product((2, 3), ("rummy", "uno")):
        parts.take(events(version, [(game, "a"), (game, "b")]))
    assert parts.deferred.step(None) is None
    before = files_of(parts)
    assert list(before.values()) == [[0, 1], [2, 3], [4, 5], [6, 7]]

    answers.schema(3, source(3))
    parts = new_parts(answers.url)  # a start has nothing but the log
    opened = read_paths(parts, monkeypatch)
    report = parts.deferred.step(None)
    assert report is not None
    assert report.silver == {"rummy": 2, "uno": 2}
    assert set(opened) == {name for name, offsets in before.items() if offsets[0] >= 4}
    assert files_of(parts) == {name: offsets for name, offsets in before.items() if offsets[0] < 4}
    opened.clear()
    assert parts.deferred.step(None) is None
    assert opened == []


def test_what_goes_on_waiting_of_a_mixed_file_is_written_once(
    new_parts: NewParts, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred, "ALONE", 2)
    answers["/schemas/ids/2"] = answers["/schemas/ids/3"] = (500, {})
    parts = new_parts(answers.url)
    parts.learn(1)
    unknown = [b"\0" + number.to_bytes(4) + b"\0" for number in (2000, 2001)]
    players = [("rummy", "a"), ("uno", "b")]
    parts.take([*events(2, players), *events(3, players), *unknown])
    assert [*files_of(parts).values()] == [[0, 1, 2, 3, 4, 5]]
    parts = new_parts(answers.url, schemas={"unknown_id_grace_s": 0.001})
    report = parts.deferred.step(None)  # the two that the registry says it does not know are given up
    assert report is not None
    assert landed(parts)["quarantine_events"] == [4, 5]
    left = files_of(parts)
    assert sorted(left.values()) == [[0, 1], [2, 3]]
    answers.schema(2, source(2))
    parts = new_parts(answers.url)
    assert parts.deferred.step(None) is not None
    assert files_of(parts) == {name: offsets for name, offsets in left.items() if offsets == [2, 3]}


def test_a_file_with_more_than_a_unit_takes_is_cut_once(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ingest, deferred):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(deferred, "MOST_READ", 8)
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, [("rummy", "a")] * 13), LANDED)
    assert parts.deferred.step(None) is not None
    pieces = files_of(parts)
    assert sorted(map(len, pieces.values())) == [1, 4, 4]
    for left in (2, 1, 0):
        report = parts.deferred.step(None)
        assert report is not None
        assert len(files_of(parts)) == left
        gone = {name: offsets for name, offsets in pieces.items() if name not in files_of(parts)}
        assert report.bronze == len(*gone.values())
        pieces = files_of(parts)
    assert parts.deferred.step(None) is None
    assert landed(parts) == {DEFERRED: [], "silver_rummy_events": [*range(13)]}


def test_small_files_are_merged_and_no_record_is_written_often(new_parts: NewParts) -> None:
    """Hundreds of units with a waiting record each: the files stay few, whichever start merges them."""
    parts = new_parts(lake={"compact_files": 5, "log_retention_hours": 1 / 3600})
    parts.learn(1)
    most, written = 0, 0
    for unit in range(60):
        parts.take(events(1, [("rummy", "a")]), LANDED)
        if unit == 30:
            parts = new_parts(lake={"compact_files": 5, "log_retention_hours": 1 / 3600})
        before = files_of(parts)
        while parts.deferred.merge():
            pass
        after = files_of(parts)
        most = max(most, len(after))
        written += sum(len(offsets) for name, offsets in after.items() if name not in before)
        assert sorted(itertools.chain(*after.values())) == [*range(unit + 1)]
    assert most <= 2 * 4
    assert written <= 2 * 60
    assert len(list(parts.lake.path(DEFERRED).glob("*.parquet"))) < 60  # those that were replaced are removed, too
    assert parts.deferred.step(None) is not None
    assert landed(parts) == {DEFERRED: [], "silver_rummy_events": [*range(60)]}


def test_a_merge_that_crashes_is_redone_once(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = new_parts(lake={"compact_files": 2})
    parts.learn(1)
    for _ in range(2):
        parts.take(events(1, [("rummy", "a")]), LANDED)
    parts.kill_at_commit(DEFERRED, monkeypatch)
    with pytest.raises(Killed):
        parts.deferred.merge()
    parts = new_parts(lake={"compact_files": 2})
    assert (parts.redone_units, [*files_of(parts).values()]) == (1, [[0, 1]])
    assert not parts.deferred.merge()
    assert parts.deferred.step(None) is not None
    assert landed(parts) == {DEFERRED: [], "silver_rummy_events": [0, 1]}


def test_files_that_an_earlier_release_merged_or_wrote_without_the_schema_are_taken(
    new_parts: NewParts, answers: Answers
) -> None:
    """It let delta-rs merge everything; and there were files before there was the column."""
    answers["/schemas/ids/2"] = (500, {})
    parts = new_parts(answers.url)
    parts.learn(1)
    parts.take(events(2, [("rummy", "a")]))
    parts.take(events(1, [("rummy", "b")]), LANDED)
    folder = str(parts.lake.path(DEFERRED))
    rows = pl.read_delta(folder).filter(pl.col("offset") == 1).drop("waits_for")
    DeltaTable(folder).delete("offset = 1")
    write_deltalake(folder, rows.to_arrow(), mode="append", schema_mode="merge")
    DeltaTable(folder).optimize.compact()
    parts = new_parts(answers.url)
    report = parts.deferred.step(None)
    assert report is not None
    assert report.silver == {"rummy": 1}
    answers.schema(2, source(2))
    assert new_parts(answers.url).deferred.step(None) is not None
    assert landed(parts) == {DEFERRED: [], "silver_rummy_events": [0, 1]}


def test_the_lock_is_only_held_for_the_unit(new_parts: NewParts, answers: Answers) -> None:
    """While a file is summed up and while the registry is asked, others may decide units."""
    parts = new_parts(answers.url)
    parts.learn(1)
    unknown = [b"\0" + number.to_bytes(4) + b"\0" for number in (2000, 2001)]
    parts.take(unknown)
    lock, held = parts.unit_lock, []

    read_counts, wait_for = parts.deferred._waiting.read_counts, parts.schemas._resolvers.look_up
    parts.deferred._waiting.read_counts = lambda: held.append(lock.locked()) or read_counts()
    parts.schemas._resolvers.look_up = lambda key: held.append(lock.locked()) or wait_for(key)
    assert parts.deferred.step(None) is None
    assert held[:3] == [False, False, False]
