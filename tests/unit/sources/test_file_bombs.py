"""Few bytes that become many: rows and bytes of a unit stay within its limits, and what no limit can hold is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_app.sources.files import folder as folders
from spark_app.sources.files import memory, scanning
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import DiskFolder
from spark_app.sources.files.input import FileShare, Part
from spark_app.sources.files.scanning import JSON, PARQUET, scan
from tests.stores.test_stores_file_planning import LINES, VALUES, Taking
from tests.support.exports import DiskExports
from tests.support.file_sources import framed, parquet_bytes

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")


@pytest.fixture
def disk(tmp_path: Path) -> DiskExports:
    return DiskExports(tmp_path / "in")


def repeated(value: bytes, rows: int) -> pa.Table:
    """Parquet keeps the value once."""
    indices = pa.array([0], pa.int32()).take(pa.array([0] * rows, pa.int32()))
    return pa.table({"value": pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.binary()))})


def write(disk: DiskExports, name: str, table: pa.Table, **options: object) -> None:
    disk.folder.mkdir(exist_ok=True)
    given = {"row_group_size": len(table), "compression": "zstd"} | options
    pq.write_table(table, disk.folder / name, **given)


@pytest.mark.parametrize("stores_schema", [False, True])
def test_a_row_bomb_is_named_and_the_next_file_is_ingested(
    tmp_path: Path, disk: DiskExports, monkeypatch: pytest.MonkeyPatch, stores_schema: bool
) -> None:
    monkeypatch.setattr(scanning, "LEAST_BYTES", 4 << 20)
    write(disk, "a.parquet", repeated(b"\0" * 34, 1_000_000), store_schema=stores_schema)
    write(disk, "b.parquet", pa.table({"value": pa.nulls(2_000_000, pa.binary())}))
    disk.write("c.json", LINES)
    taking = Taking(tmp_path, disk)
    assert (taking.take(), taking.take(), taking.values) == (["c.json"], [], VALUES)
    assert list(taking.planner.broken) == ["a.parquet", "b.parquet"]
    assert {why.split(":")[0] for why in taking.planner.broken.values()} == {
        "its records have more than 1,000 times its size"
    }


@pytest.mark.parametrize("limits", [{"max_records": 2000}, {"max_bytes": 2001 * 10_004}])
def test_one_row_group_is_split_over_units_and_over_starts(
    tmp_path: Path, disk: DiskExports, limits: dict[str, int]
) -> None:
    value = b"\1" * 10_000
    write(disk, "a.parquet", repeated(value, 4500))
    rows = []
    for most in (limits, limits, {"max_records": 1000}, limits):  # each time a start, with other settings too
        taking = Taking(tmp_path, disk, batch=most)
        taking.take()
        rows.append(len(taking.values))
        assert set(taking.values) <= {value}
    assert rows == [2000, 2000, 500, 0]


def test_tasks_read_any_pieces_of_a_group(disk: DiskExports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "PIECE_ROWS", 7)
    values = framed(50)
    disk.write("a.parquet", parquet_bytes(values, 20))
    folder = DiskFolder(str(disk.folder))
    listed = folder.look("a.parquet")
    assert listed is not None
    pieces = scan(folder, listed, PARQUET, COLUMNS).pieces
    assert [piece.rows for piece in pieces] == [7, 7, 6, 7, 7, 6, 7, 3]
    for some in (pieces, pieces[1::2], pieces[::-1]):
        parts = tuple(Part(listed, PARQUET, piece, piece.row) for piece in some)
        due = [value for part in parts for value in values[part.first : part.first + part.piece.rows]]
        share = FileShare(folder, COLUMNS, "files", parts, 1000, 1 << 20, 1 << 20)
        assert [value for batch in share.read() for value in batch.column("value").to_pylist()] == due


BOMB = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
size, rows = 240 << 20, 20
wide, entries = pa.array([b"\\0" * (size // rows)] * rows), 400_000
values = pa.array([b"v" * 1000]).take(pa.array([0] * entries))
entry = pa.StructArray.from_arrays([pa.array(["k"] * entries), values], ["key", "value"])
headers = pa.ListArray.from_arrays(pa.array([0, entries]), entry)
made = {
    "page": ({"value": wide}, {"use_dictionary": False, "data_page_size": 1 << 31, "write_batch_size": 1 << 20}),
    "row": ({"value": pa.array([b"\\0" * size])}, {"use_dictionary": False}),
    "fixed": ({"value": pa.nulls(2, pa.binary(size // 2))}, {}),
    "headers": ({"value": pa.array([b""]), "headers": headers}, {}),
    "delta": ({"value": wide}, {"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY"}}),
}
for name, (columns, options) in made.items():
    options |= {"compression": "zstd", "write_statistics": False}
    pq.write_table(pa.table(columns), f"{sys.argv[1]}/{name}.parquet", **options)
"""


READ = """
import json, sys
from spark_app.sources.files import memory, scanning
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import DiskFolder
memory.MOST_MEMORY, scanning.MOST_RATIO, said = 100 << 20, 1 << 30, {}
folder = DiskFolder(sys.argv[1])
for listed in sorted(folder.files(), key=lambda listed: listed.size):
    try:
        scanning.scan(folder, listed, "parquet", SourceColumns("value", "key", "headers", "timestamp"))
    except scanning.Unreadable as error:
        said[listed.key] = str(error)
with open("/proc/self/status") as status:
    most = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
print(json.dumps([said, most]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_what_takes_more_memory_than_a_task_may_have_is_named(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", BOMB, str(tmp_path)], check=True)
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 20
    pool = {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # another one keeps what was freed
    run = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)], check=True, capture_output=True, env=os.environ | pool
    )
    said, most = json.loads(run.stdout)
    names = ("page", "row", "fixed", "headers", "delta")
    why = "it cannot be read (it takes more than 100 MiB of memory at once)"
    assert said == {f"{name}.parquet": why for name in names}
    assert most < 400 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_a_line_that_is_far_larger_once_it_is_parsed_is_a_record_as_it_is(
    tmp_path: Path, disk: DiskExports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST_MEMORY", 300 << 20)
    line = b'{"value": "", "more": [' + b"[]," * 15_000_000 + b"[]]}"  # more than a process has free
    disk.write("a.json", line + b"\n" + LINES)
    taking = Taking(tmp_path, disk)
    plan = taking.plan()
    assert plan is not None
    share = FileShare(DiskFolder(str(disk.folder)), COLUMNS, "files", plan.parts, 1000, 1 << 20, 64 << 20)
    assert [value for batch in share.read() for value in batch.column("value").to_pylist()] == [line, *VALUES]


@pytest.mark.parametrize("kind", [JSON, PARQUET])
def test_a_scan_ends_between_two_chunks_if_the_app_is_asked_to_stop(disk: DiskExports, kind: str) -> None:
    class Stopped(Exception):
        pass

    def proceed() -> None:
        left.pop()
        if not left:
            raise Stopped

    disk.write("a.json", LINES * 50_000)
    disk.write("a.parquet", parquet_bytes(framed(20_000), 20_000))
    folder = DiskFolder(str(disk.folder))
    listed = folder.look(f"a.{kind}")
    assert listed is not None
    left = [None] * 1000
    scan(folder, listed, kind, COLUMNS, proceed)
    used = 1000 - len(left)
    assert used > 5
    for some in range(1, used):
        left = [None] * some
        with pytest.raises(Stopped):
            scan(folder, listed, kind, COLUMNS, proceed)


def test_a_log_whose_entry_is_too_large_is_refused_in_one_line(disk: DiskExports) -> None:
    disk.write("_delta_log/00000000000000000000.json", json.dumps({"protocol": {}}).encode())
    large = disk.folder / "_delta_log" / "00000000000000000001.json"
    large.touch()
    with large.open("r+b") as file:
        file.truncate(folders.MOST_BYTES + 1)
    folder = DiskFolder(str(disk.folder))
    with pytest.raises(folders.NotRegular, match=r"1\.json: it has more than 128 MiB"):
        folder.check_regular("_delta_log")
    with pytest.raises(folders.NotRegular, match="it has more than 128 MiB"):
        folder.get(f"_delta_log/{large.name}")
