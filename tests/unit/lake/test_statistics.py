"""What a file and a table's log say of the values in a file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.table_handles import INDEXED
from spark_app.lake.delta.table_schema import columns_of
from spark_app.lake.files.local import LocalStorage
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import open_lake
from tests.support import filters
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
    gold = GoldTables(OpenLake.of(open_lake(tmp_path), settings), GoldSpec.all_of(settings)[0])
    for number, unit in enumerate(UNITS, 1):
        gold.merge("a", unit.select(["row", "u", "d"]).rename_columns(["row", "gamer", "d"]), number)
    assert lost(tmp_path / GOLD) == []
    table = DeltaTable(str(tmp_path / GOLD))
    assert sorted(table.to_pyarrow_table()["row"].to_pylist()) == [0, 1, 2, 3, 4]
    actions = pa.table(table.get_add_actions(flatten=True))
    bounds = {name for name in actions.column_names if name.startswith(("min.", "max."))}
    assert {name for name in bounds if actions[name].null_count < len(actions)} == {"min.row", "max.row"}


def test_compaction_makes_readers_use_the_bounds_behind_a_struct_that_grew(tmp_path: Path) -> None:
    inner = [{"a": 1}] * 10, [{"a": 1, "b": 2, "c": 3}] * 10
    units = [wide(10 * n, 30).add_column(1, "nested", [pa.array(values)]) for n, values in enumerate(inner)]
    apart, merged = (DeltaTable(str(write(tmp_path / str(one), units, one).path(TABLE))) for one in (True, False))
    reached = [int(table.metadata().configuration[INDEXED]) for table in (apart, merged)]
    assert reached[1] == reached[0] + 2 == files.reach(columns_of(merged))


@pytest.mark.nightly
def test_bounds_of_files_from_before_a_struct_grew_hide_no_row(tmp_path: Path) -> None:
    inner = [{"a": 1}] * 10, [{"a": 1, "b": 2, "c": 3}] * 10
    units = [wide(10 * n).add_column(1, "nested", [pa.array(values)]) for n, values in enumerate(inner)]
    lake = write(tmp_path / "lake", units, last_apart=False)
    again = write(tmp_path / "apart", units)
    for one in (lake, again):
        assert lost(one.path(TABLE)) == []
