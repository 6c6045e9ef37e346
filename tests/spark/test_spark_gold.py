"""Gold is what Polars computes from silver, whatever was merged, recomputed, lost or crashed on the way."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableMerger
from pyspark.sql import SparkSession

from spark_app.followers.gold import tables as gold_tables
from spark_app.lake.delta.maintenance import sweep
from spark_app.lake.delta.table_handles import Tables
from tests.spark.parts import Parts
from tests.spark.silver import add, check, decide, learn, rows_of

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
SCORES = {
    "games": {"function": "count"},
    "scored": {"function": "count", "field": "score"},
    "total": {"function": "sum", "field": "score"},
    "lowest": {"function": "min", "field": "score"},
    "latest": {"function": "max"},
}
SPREAD = {
    "games": {"function": "count"},
    "mean": {"function": "mean", "field": "score"},
    "middle": {"function": "median", "field": "score"},
    "moments": {"function": "distinct"},
}
OLD = rows_of([("x", 5, None), ("y", None, None), (None, 7, None)], with_score=False)
ONE = rows_of([("x", 1, 10), ("x", 9, None), ("y", 4, 3), (None, None, 2)])
TWO = rows_of([("x", 0, -5), ("z", 2, 1), (None, 3, None), ("y", None, None)])


class Broken(Exception):
    """A merge that fails."""


class FailsLate:
    """A merge that commits, by another handle, and fails then, as on a disk that is full for the checkpoint."""

    def __init__(self, merge: TableMerger):
        self._merge = merge

    def when_matched_update(self, updates: dict[str, str]) -> FailsLate:
        return FailsLate(self._merge.when_matched_update(updates))

    def when_not_matched_insert(self, updates: dict[str, str]) -> FailsLate:
        return FailsLate(self._merge.when_not_matched_insert(updates))

    def execute(self) -> None:
        self._merge.execute()
        raise Broken


def opened(new_parts: NewParts, aggregates: dict[str, Any] = SCORES, **sections: Any) -> Parts:
    return learn(new_parts(gold={"aggregates": aggregates}, **sections))


def break_gold(parts: Parts, broken: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 0) -> list[str]:
    """Let the writes to one gold table fail and the others take a while; the list is of the tables written."""
    written: list[str] = []
    for method in ("merge", "replace"):
        write = getattr(parts.gold._tables, method)

        def attempt(name: str, *rest: Any, write: Any = write) -> None:
            if name == broken:
                raise Broken
            time.sleep(seconds)
            write(name, *rest)
            written.append(name)

        monkeypatch.setattr(parts.gold._tables, method, attempt)
    return written


def state(parts: Parts) -> dict[str, int]:
    """When each file that gold writes was last written."""
    paths = [parts.lake.path(parts.lake.state) / "gold.json", *parts.lake.root.glob("gold_*/**/*")]
    return {str(path): path.stat().st_mtime_ns for path in paths if path.is_file()}


def test_units_are_folded_table_by_table(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD, b=ONE)
    assert parts.gold.run() == {"a": 3, "b": 3}
    check(parts, "a", "b")
    add(parts, a=ONE, c=OLD)
    add(parts, a=TWO)
    assert parts.gold.run() == {"a": 4, "c": 3}
    check(parts, "a", "b", "c")
    parts = opened(new_parts)
    monkeypatch.setattr(parts.gold.planner, "snapshot", None)  # nothing may be recomputed
    add(parts, b=TWO, c=rows_of([("x", None, None)], with_score=False))
    parts.gold.run()
    check(parts, "a", "b", "c")
    assert parts.gold.cursor() == 4


def test_run_without_news_reads_and_writes_nothing(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = opened(new_parts)
    assert parts.gold.run() == {}
    check(parts)
    add(parts, a=ONE)
    parts.gold.run()
    before = state(parts)
    assert len(before) > 2
    for again in (parts, opened(new_parts)):
        monkeypatch.setattr(again.gold._calculator, "_session", None)
        assert again.gold.run() == {}
        assert state(again) == before
    check(parts, "a")


@pytest.mark.parametrize("aggregates", [SCORES, SPREAD], ids=["merged", "recomputed"])
def test_crash_between_two_merges(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, aggregates: dict[str, Any]
) -> None:
    parts = opened(new_parts, aggregates)
    add(parts, a=OLD, b=ONE)
    break_gold(parts, "a", monkeypatch)
    with pytest.raises(Broken):
        parts.gold.run()
    parts = opened(new_parts, aggregates)
    parts.gold.run()
    add(parts, a=ONE, b=TWO)
    break_gold(parts, "b", monkeypatch)
    with pytest.raises(Broken):
        parts.gold.run()
    parts = opened(new_parts, aggregates)
    add(parts, b=OLD)
    parts.gold.run()
    check(parts, "a", "b")


def test_failed_run_ends_with_its_last_write(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = opened(new_parts)
    add(parts, a=ONE, b=ONE, c=ONE)
    written = break_gold(parts, "a", monkeypatch, seconds=1)
    with pytest.raises(Broken):
        parts.gold.run()
    assert sorted(written) == ["b", "c"]


def test_files_compacted_away_before_gold_ran(new_parts: NewParts) -> None:
    parts = opened(new_parts, lake={"log_retention_hours": 1e-6})
    add(parts, a=OLD, b=OLD)
    parts.gold.run()
    for rows in (ONE, TWO):
        add(parts, a=rows, b=rows)
    table = parts.committer.tables.get("silver_a_events")
    assert table is not None
    table.optimize.compact()
    time.sleep(1.1)
    assert len(sweep(parts.lake, "silver_a_events", table)) == 3
    add(parts, a=OLD, b=ONE)
    parts.gold.run()
    check(parts, "a", "b")
    add(parts, a=TWO)
    parts.gold.run()
    check(parts, "a", "b")


def test_changed_definition_recomputes_every_table(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD, b=TWO)
    parts.gold.run()
    parts = opened(new_parts, SPREAD)
    add(parts, a=ONE)
    assert parts.gold.run() == {"a": 3, "b": 4}
    check(parts, "a", "b")
    add(parts, a=TWO, c=rows_of([(None, None, None)]))
    add(parts, b=rows_of([("y", 3, 4), (None, 1, 1)]))
    parts.gold.run()
    check(parts, "a", "b", "c")


def test_manifests_that_gold_needs_are_kept(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD)
    parts.gold.run()
    for rows in (ONE, TWO):
        add(parts, a=rows, b=rows)
    break_gold(parts, "b", monkeypatch)
    with pytest.raises(Broken):
        parts.gold.run()
    parts.manifests.forget(0, parts.gold.cursor())
    assert parts.manifests.numbers() == [2, 3]
    parts = opened(new_parts)
    parts.gold.run()
    check(parts, "a", "b")
    parts.manifests.forget(0, parts.gold.cursor())
    assert parts.manifests.numbers() == [3]


def test_gold_is_recomputed_if_the_manifests_that_it_lacks_are_gone(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD)
    parts.gold.run()
    for rows in (ONE, TWO):
        add(parts, a=rows, b=rows)
    parts.manifests.forget(1, 3)
    assert parts.manifests.numbers() == [3]
    assert set(parts.gold.run()) == {"a", "b"}
    check(parts, "a", "b")
    assert parts.gold.cursor() == 3


def test_unit_that_is_not_finished_is_not_counted_twice(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD)
    decide(parts, a=ONE, b=ONE)
    manifest = parts.manifests.read(2)
    name = "silver_a_events"
    parts.committer._commit(manifest, name, False)
    parts.gold.run()  # of a lake that has no gold yet: from the snapshot, which has a part of unit 2
    parts.committer.redo()
    parts.gold.run()
    check(parts, "a", "b")


def test_field_that_comes_later_has_its_own_type(new_parts: NewParts) -> None:
    parts = new_parts(gold={"aggregates": SCORES})
    parts.learn(1)
    parts.tables.admit({"a": ["protolake.demo.GameEvent"]})
    add(parts, a=OLD)
    parts.gold.run()
    parts = opened(new_parts)
    add(parts, a=rows_of([("x", 1, 10), ("y", 2, 7)]))
    parts.gold.run()
    add(parts, a=rows_of([("x", 1, 9)]))
    parts.gold.run()
    check(parts, "a")
    assert parts.read("gold_a_player_agg")["lowest"].dtype.is_integer()


def test_lost_gold_is_made_again(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD, b=ONE)
    parts.gold.run()
    shutil.rmtree(parts.lake.path("gold_a_player_agg"))
    parts = opened(new_parts)
    add(parts, a=ONE, b=TWO)
    parts.gold.run()
    check(parts, "a", "b")


def test_gold_that_the_power_tore_is_folded_again(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = opened(new_parts)
    add(parts, a=OLD, b=ONE)
    parts.gold.run()
    parts.gold.close()
    for rows in (ONE, TWO):
        add(parts, a=rows, b=rows)
        parts.gold.run()
    max((parts.lake.path("gold_a_player_agg") / "_delta_log").glob("*.json")).write_bytes(b"")
    [file] = parts.committer.tables.get("gold_b_player_agg").file_uris()  # type: ignore[union-attr]
    Path(file).write_bytes(Path(file).read_bytes()[:-1])
    parts = opened(new_parts)
    monkeypatch.setattr(parts.gold.planner, "snapshot", None)  # nothing is recomputed
    parts.gold.run()
    check(parts, "a", "b")


def test_lake_with_an_odd_path(spark: SparkSession, tmp_path: Path) -> None:
    parts = learn(Parts(spark, tmp_path / "my lake, 50% ü", "http://127.0.0.1:1", {"gold": {"aggregates": SPREAD}}))
    for rows in (ONE, TWO):
        add(parts, a=rows, b=rows)
        parts.gold.run()
        check(parts, "a", "b")


def test_empty_values_of_a_key_are_one_row(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    nothing = pa.table({"event_timestamp": OLD["event_timestamp"]})
    add(parts, a=nothing)
    parts.gold.run()
    add(parts, a=nothing)
    assert parts.gold.run() == {"a": 1}
    assert parts.read("gold_a_player_agg")["games"].to_list() == [6]


def test_gold_that_is_only_looked_at_is_made_by_the_next_run(new_parts: NewParts) -> None:
    parts = opened(new_parts)
    add(parts, a=ONE)
    parts.gold.run()
    add(parts, b=TWO)
    assert parts.gold.renew({"a", "b"}, dry_run=True)["gold_b_player_agg"]["differing"] > 0
    assert "gold_b_player_agg" not in parts.lake.tables()
    parts.gold.run()
    check(parts, "a", "b")
    shutil.rmtree(parts.lake.path("gold_a_player_agg"))
    parts = opened(new_parts)
    parts.gold.run()
    check(parts, "a", "b")


@pytest.mark.parametrize("small", [True, False])
def test_a_merge_that_failed_after_its_commit_does_not_stop_gold(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    parts = opened(new_parts)
    add(parts, a=ONE)
    parts.gold.run()
    add(parts, a=TWO)
    parts.gold.run()
    add(parts, a=OLD)
    table = parts.gold._tables.get("a")
    assert table is not None

    replace_rows = Tables.replace_rows

    def write_late(*what: Any) -> None:
        replace_rows(*what)
        raise Broken

    with monkeypatch.context() as full:
        full.setattr(gold_tables, "SMALL_BYTES", gold_tables.SMALL_BYTES if small else -1)
        full.setattr(Tables, "replace_rows", write_late)
        full.setattr(table, "merge", lambda *how, **more: FailsLate(DeltaTable(table.table_uri).merge(*how, **more)))
        with pytest.raises(Broken):
            parts.gold.run()
    add(parts, a=ONE)
    parts.gold.run()
    check(parts, "a")
