"""Lakes of earlier releases, whose compaction delta-rs wrote: found, and put right; and what a file says of itself."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.definition import Definition
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta import statistics
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.table_handles import INDEXED
from spark_app.lake.files import failpoints
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.recovery import doctor
from spark_app.settings.models import Settings
from spark_app.settings.storing import LakeSettings
from spark_app.sources.kafka.topics import BrokerUnreachable, Topics
from spark_app.tables.fixed_settings import write_rules
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import ingest_unit, open_lake
from tests.support import filters
from tests.support.delta_log import replay
from tests.support.units import open_committer
from tests.unit.lake.test_filters import TABLE, lost, write

NAN = float("nan")
BIG = pa.decimal128(20, 0)
GOLD = "gold_a_player_agg"


def rows(row: int, number: int, real: float) -> pa.Table:
    return pa.table(
        {
            "row": pa.array([row], pa.int64()),
            "u": pa.array([Decimal(number)], BIG),
            "d": pa.array([real], pa.float64()),
            "s": pa.array([{"u": Decimal(number)}], pa.struct([("u", BIG)])),
            "l": pa.array([[{"d": real}]], pa.list_(pa.struct([("d", pa.float64())]))),
            "_offset": pa.array([row], pa.int64()),
        }
    )


UNITS = [rows(0, 5, 1.0), rows(1, 2**64 - 1, NAN), rows(2, 2**53 + 1, -0.0), rows(3, 2**63, -5.0), rows(4, 7, 0.0)]


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake as an earlier release left it: bounds of floating-point values in each file, compacted by delta-rs."""
    with monkeypatch.context() as patch:
        patch.setattr(files, "FLOATING", set())
        patch.setattr(Lake, "mark_statistics", lambda _: None)
        patch.setattr("spark_app.lake.delta.table_handles.skipping", lambda _: {})
        patch.setattr(Maintainer, "step", lambda _: False)
        lake = write(tmp_path / "lake", UNITS)
        files._describe.cache_clear()
    DeltaTable(str(lake.path(TABLE))).optimize.compact()
    write_deltalake(str(lake.path(GOLD)), pa.concat_tables(UNITS))
    assert lost(lake.path(TABLE)) != []
    return lake


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise BrokerUnreachable("no broker")

    monkeypatch.setattr(Topics, "look", unreachable)


def settings_of(lake: Lake) -> Settings:
    return Settings(lake={"path": str(lake.root)})  # type: ignore[arg-type]


def examine(lake: Lake) -> list[str]:
    write_rules(lake, settings_of(lake))
    (lake.path(lake.state) / "tables.json").write_text('{"names": {"a": "a"}, "messages": {}}')
    found = doctor.examine(lake, settings_of(lake))
    return [finding.what for finding in found if "statistics" in finding.what]


def changes(lake: Lake, after: int) -> list[bool]:
    """`dataChange` of everything that was committed to the table after a version."""
    log = lake.path(TABLE) / "_delta_log"
    entries = (log / f"{v:020d}.json" for v in range(after + 1, DeltaTable(str(lake.path(TABLE))).version() + 1))
    actions = [json.loads(line) for entry in entries for line in entry.read_bytes().splitlines()]
    return [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]


def test_doctor_names_statistics_that_hide_rows_and_puts_them_right(earlier: Lake) -> None:
    before = DeltaTable(str(earlier.path(TABLE)))
    [what] = examine(earlier)
    assert f"{GOLD}, {TABLE}" in what
    [finding] = statistics.earlier(earlier)
    assert "doctor --repair" in finding.remedy
    done = list(doctor.repair(earlier, settings_of(earlier)))
    assert len(done) == 1
    assert lost(earlier.path(TABLE)) == []
    assert lost(earlier.path(GOLD)) == []
    assert (examine(earlier), statistics.earlier(earlier)) == ([], [])
    assert set(changes(earlier, before.version())) == {False}
    after = DeltaTable(str(earlier.path(TABLE)))
    assert (
        after.to_pyarrow_table().sort_by("row").to_pylist().__repr__() == pa.concat_tables(UNITS).to_pylist().__repr__()
    )
    assert after.transaction_version(earlier.identity()) == len(UNITS)
    assert after.protocol() == before.protocol()
    assert after.metadata().configuration[INDEXED] == "32"


def test_only_files_with_nan_are_written_anew(earlier: Lake) -> None:
    manifests, committer = open_committer(earlier)
    unit = ingest_unit(earlier, manifests.last + 1, {TABLE: rows(5, 2**64 - 1, 2.0)})
    manifests.commit(unit)
    committer.apply(unit)
    before = replay(earlier.path(TABLE)).files
    list(doctor.repair(earlier, settings_of(earlier)))
    after = replay(earlier.path(TABLE)).files
    assert (len(before), len(after), len(before & after)) == (2, 2, 1)
    assert unit.tables[TABLE].adds[0].path in after


def test_statistics_are_put_right_beside_what_else_is_mended(earlier: Lake) -> None:
    stray = earlier.path(TABLE) / "stray.parquet"
    stray.touch()
    os.utime(stray, (0, 0))
    write_rules(earlier, settings_of(earlier))
    removed, written = doctor.repair(earlier, settings_of(earlier))
    assert not stray.exists()
    assert removed == f"removed 1 files of {TABLE}"
    assert written.startswith("rewrote the statistics of every table")
    assert lost(earlier.path(TABLE)) == []


def test_the_next_compaction_puts_the_log_right(earlier: Lake) -> None:
    settings = LakeSettings(compact_files=1)
    committer = open_committer(earlier, settings)[1]
    maintainer = Maintainer(committer.tables, settings, committer.synced)
    maintainer.count_files([TABLE])
    assert maintainer.step()
    table = DeltaTable(str(earlier.path(TABLE)))
    assert statistics._bounds(table) == {"row", "_offset"}
    assert pl.scan_delta(table.table_uri).filter(pl.col("u") == 2**64 - 1).collect()["row"].to_list() == [1]
    assert len(statistics.earlier(earlier)) == 1


def test_a_repair_that_was_interrupted_is_done_again(earlier: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "mark_statistics", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            list(doctor.repair(earlier, settings_of(earlier)))
    assert len(statistics.earlier(earlier)) == 1
    list(doctor.repair(earlier, settings_of(earlier)))
    assert (examine(earlier), lost(earlier.path(TABLE))) == ([], [])


@pytest.mark.parametrize("point", ["properties.before", "properties.after"])
def test_a_repair_that_died_at_a_tables_properties_is_done_again(
    earlier: Lake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    met: list[str] = []

    def die(found: str) -> None:
        met.append(found)
        if found == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "_meet", die)
        with pytest.raises(KeyboardInterrupt):
            list(doctor.repair(earlier, settings_of(earlier)))
    assert met[-1] == point
    list(doctor.repair(earlier, settings_of(earlier)))
    assert (examine(earlier), lost(earlier.path(TABLE))) == ([], [])


def test_a_new_lake_has_nothing_to_put_right(tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", UNITS)
    assert (statistics.earlier(lake), examine(lake), lost(lake.path(TABLE))) == ([], [], [])


def test_bounds_of_others_are_named_in_a_lake_that_was_put_right(tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", UNITS)
    table = DeltaTable(str(lake.path(TABLE)))
    table.alter.set_table_properties({INDEXED: "32"})
    table.optimize.compact()
    assert len(examine(lake)) == 1
    list(doctor.repair(lake, settings_of(lake)))
    assert (examine(lake), lost(lake.path(TABLE))) == ([], [])


@pytest.mark.parametrize(
    ("where", "found"),
    [("u = 18446744073709551615", [1]), ("u = 9007199254740993", [2]), ("u >= 9223372036854775808", [1, 3])],
)
def test_a_large_number_is_found_after_compaction(tmp_path: Path, where: str, found: list[int]) -> None:
    table = DeltaTable(str(write(tmp_path / "lake", UNITS, last_apart=False).path(TABLE)))
    answer = QueryBuilder().register("t", table).execute(f"select row from t where {where} order by 1").read_all()
    assert pa.table(answer)["row"].to_pylist() == found


@pytest.mark.parametrize(
    ("where", "found"), [("isnan(d)", [1]), ("d > 100", [1]), ("d = 'NaN'", [1]), ("d = 0", [2, 4])]
)
@pytest.mark.parametrize("compacted", [False, True])
def test_nan_is_found_by_the_bounds_in_parquet(tmp_path: Path, where: str, found: list[int], compacted: bool) -> None:
    units = UNITS if compacted else [pa.concat_tables(UNITS)]
    table = DeltaTable(str(write(tmp_path / "lake", units, last_apart=False).path(TABLE)))
    paths = [f"{table.table_uri}/{path}" for path in table.get_add_actions()["path"].to_pylist()]
    query = f"select row from read_parquet({paths}) where {where} order by 1"
    assert [row for (row,) in duckdb.sql(query).fetchall()] == found


def test_no_floating_point_value_has_bounds_at_any_depth(tmp_path: Path) -> None:
    files.write_file(LocalStorage(tmp_path), ".", "a.parquet", UNITS[0], "zstd")
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    found = {group.column(n).path_in_schema: group.column(n).statistics for n in range(group.num_columns)}
    assert {path for path, bounds in found.items() if bounds is None} == {"d", "l.list.element.d"}


def wide(first: int, columns: int = 60) -> pa.Table:
    """Ten records as silver has them, of an event with many fields."""
    offsets = pa.array(range(first, first + 10), pa.int64())
    lineage: dict[str, Any] = {f.name: pa.nulls(10, f.type) for f in LINEAGE_SCHEMA}
    lineage |= {"_offset": offsets, "_partition": pa.array([0] * 10, pa.int32())}
    lineage |= {name: offsets.cast(filters.TIMESTAMP) for name in ("_kafka_timestamp", "_landed_at")}
    return pa.table({"row": offsets, **{f"c{n}": offsets for n in range(columns)}, **lineage})


def test_every_file_of_a_wide_event_has_bounds_of_its_records(tmp_path: Path) -> None:
    wanted = {"_partition", "_offset", "_kafka_timestamp", "_landed_at"}
    for last_apart in (True, False):
        lake = write(tmp_path / str(last_apart), [wide(0), wide(10), wide(20)], last_apart)
        state = DeltaTable(str(lake.path(TABLE)))
        actions = pa.table(state.get_add_actions(flatten=True))
        assert len(actions) == 1 + last_apart
        for name in wanted:
            assert actions[f"min.{name}"].null_count == 0
            assert actions[f"max.{name}"].null_count == 0
        plan = (
            QueryBuilder().register("t", state).execute("explain analyze select * from t where _offset = 25").read_all()
        )
        scanned = [str(row) for row in pa.table(plan)["plan"].to_pylist()]
        assert any("files_ranges_pruned_statistics=1 total" in text for text in scanned)


@pytest.mark.parametrize("merged", [False, True], ids=["folded", "merged"])
def test_gold_of_large_keys_and_nan_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    if merged:
        monkeypatch.setattr(gold_tables, "SMALL_BYTES", -1)
    aggregates = {name: {"function": "max", "field": name} for name in ("row", "d")}
    settings = Settings.model_validate(
        {"lake": {"path": str(tmp_path)}, "event": {"key": "gamer"}, "gold": {"aggregates": aggregates}}
    )
    gold = GoldTables(OpenLake.of(open_lake(tmp_path), settings), Definition.of(settings))
    for number, unit in enumerate(UNITS, 1):
        gold.merge("a", unit.select(["row", "u", "d"]).rename_columns(["row", "gamer", "d"]), number)
    assert lost(tmp_path / GOLD) == []
    table = DeltaTable(str(tmp_path / GOLD))
    assert sorted(table.to_pyarrow_table()["row"].to_pylist()) == [0, 1, 2, 3, 4]
    assert statistics._bounds(table) == {"row"}


@pytest.mark.nightly
def test_bounds_of_files_from_before_a_struct_grew_are_no_finding(tmp_path: Path) -> None:
    inner = [{"a": 1}] * 10, [{"a": 1, "b": 2, "c": 3}] * 10
    units = [wide(10 * n).add_column(1, "nested", [pa.array(values)]) for n, values in enumerate(inner)]
    lake = write(tmp_path / "lake", units, last_apart=False)
    again = write(tmp_path / "apart", units)
    for one in (lake, again):
        one.mark_statistics()
        assert (examine(one), lost(one.path(TABLE))) == ([], [])


def test_a_table_without_a_log_does_not_keep_the_others_from_being_put_right(earlier: Lake) -> None:
    (earlier.path("silver_z_events") / "_delta_log").mkdir(parents=True)
    list(doctor.repair(earlier, settings_of(earlier)))
    assert lost(earlier.path(TABLE)) == []
