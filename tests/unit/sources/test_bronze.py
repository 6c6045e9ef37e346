"""Bronze as the source of a pass: each record that is meant is read once, as it is in the file, whoever wrote that."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.files.local import LocalStorage
from spark_app.model.record_schemas import BRONZE_SCHEMA, COORDINATES
from spark_app.sources import bronze
from spark_app.sources.bronze import Share
from tests.support.frames import batch_of

Coordinate = tuple[str, str | None, int, int]
IDENTITIES = st.tuples(
    st.sampled_from(["t", "u"]), st.sampled_from([None, "a", "b"]), st.integers(0, 2), st.integers(0, 30)
)

DISK = LocalStorage("/")  # keys are absolute paths without the first slash


def rows_of(coordinates: list[Coordinate]) -> pa.Table:
    """Rows of bronze with these coordinates; the value of each says which they are."""
    drawn = dict(zip(COORDINATES, zip(*coordinates, strict=True), strict=True)) if coordinates else {}
    columns = {name: pa.array(drawn.get(name, []), BRONZE_SCHEMA.field(name).type) for name in COORDINATES}
    columns["value"] = pa.array([repr(one).encode() for one in coordinates], pa.binary())
    rest = {f.name: pa.nulls(len(coordinates), f.type) for f in BRONZE_SCHEMA if f.name not in columns}
    return pa.table(columns | rest).select(BRONZE_SCHEMA.names).cast(BRONZE_SCHEMA)


def read(paths: list[Path], ranges: bronze.Ranges | None = None, tasks: int = 2, size: int = 7) -> pa.Table:
    found = bronze.find_row_groups(DISK, [str(path)[1:] for path in paths], ranges)
    pieces = bronze.split_among_tasks(found, tasks)
    batches = [batch for own in pieces for batch in Share(DISK, own, ranges, size, 1 << 20).read()]
    assert all(batch.num_rows <= size for batch in batches)
    return pa.Table.from_batches(batches, BRONZE_SCHEMA)


@given(st.lists(IDENTITIES), st.lists(IDENTITIES, min_size=1))
def test_the_records_at_the_coordinates_are_meant_and_no_others(
    there: list[Coordinate], asked: list[Coordinate]
) -> None:
    ranges = bronze.ranges_of(rows_of(asked))
    for batch in rows_of(there).to_batches():
        found = batch.filter(bronze.within(batch, ranges))
        assert found["value"].to_pylist() == [repr(one).encode() for one in there if one in asked]
    first, last = bronze.bounds(ranges)
    assert (first, last) == (min(one[-1] for one in asked), max(one[-1] for one in asked))


@pytest.mark.parametrize(("group", "meant"), [(5, 8 + 8 + 5), (30, 2 + 2 + 1), (1000, 3)])
@pytest.mark.parametrize("tasks", [1, 2, 9])
def test_each_record_is_read_once(tmp_path: Path, group: int, meant: int, tasks: int) -> None:
    paths = []
    for file in range(4):
        paths.append(tmp_path / f"{file}.parquet")
        pq.write_table(
            rows_of([("t", "a", file % 2, 100 * file + n) for n in range(40)]), paths[-1], row_group_size=group
        )
    everything = read(paths, tasks=tasks)
    assert sorted(everything["offset"].to_pylist()) == [100 * file + n for file in range(4) for n in range(40)]

    asked = rows_of([("t", "a", 1, offset) for offset in (100, 101, 139, 320, 200)])  # 200 is of the other partition
    ranges = bronze.ranges_of(asked)
    assert sorted(read(paths, ranges, tasks)["offset"].to_pylist()) == [100, 101, 139, 320]
    assert len(bronze.find_row_groups(LocalStorage(tmp_path), [path.name for path in paths], ranges)) == meant


def test_a_task_ends_at_its_limit(tmp_path: Path) -> None:
    pq.write_table(rows_of([("t", "a", 0, n) for n in range(40)]), tmp_path / "0.parquet", row_group_size=10)
    pieces = tuple(bronze.find_row_groups(LocalStorage(tmp_path), ["0.parquet"], None))
    for limit in (0, 1, 7, 12, 40, 100):
        batches = list(Share(LocalStorage(tmp_path), pieces, None, 7, 1 << 20, limit).read())
        assert sum(batch.num_rows for batch in batches) == min(limit, 40)


def test_an_arrow_batch_is_bounded_by_bytes(tmp_path: Path) -> None:
    batch = batch_of([b"x" * 10_000] * 200)
    rows = pa.Table.from_batches([batch])
    for name in BRONZE_SCHEMA.names[len(rows.column_names) :]:
        rows = rows.append_column(name, pa.nulls(200, BRONZE_SCHEMA.field(name).type))
    pq.write_table(rows, tmp_path / "0.parquet", use_dictionary=False)
    pieces = tuple(bronze.find_row_groups(LocalStorage(tmp_path), ["0.parquet"], None))
    sizes = [batch.nbytes for batch in Share(LocalStorage(tmp_path), pieces, None, 1000, 100_000).read()]
    assert sum(sizes) >= 2_000_000
    assert max(sizes) <= 110_000


def test_files_of_other_writers_are_read_as_ours(tmp_path: Path) -> None:
    """Polars has large types, an older lake fewer columns, Spark INT96 where nobody told it otherwise."""
    rows = rows_of([("t", "a", 0, n) for n in range(5)])
    moments = pa.array(
        [-62_135_596_800_000_000 + 1, 0, 1_700_000_000_000_000, None, 253_402_300_799_999_999], pa.int64()
    )
    at = BRONZE_SCHEMA.get_field_index("timestamp")
    rows = rows.set_column(at, BRONZE_SCHEMA.field(at), moments.cast(BRONZE_SCHEMA.field(at).type))
    pl.DataFrame(rows).write_parquet(tmp_path / "large.parquet")
    pq.write_table(rows, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(rows.drop_columns(["schema_guid", "topic_id"]), tmp_path / "older.parquet")
    assert read([tmp_path / "large.parquet"], tasks=1) == rows
    assert read([tmp_path / "int96.parquet"], tasks=1) == rows
    older = read([tmp_path / "older.parquet"], tasks=1)
    assert older["topic_id"].null_count == 5
    assert older.drop_columns(["topic_id"]) == rows.drop_columns(["topic_id"])
