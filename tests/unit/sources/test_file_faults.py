"""Files that cannot be read: what says nothing of the content is never taken for another content."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_app.model.errors import ContractError
from spark_app.sources.files import planning
from spark_app.sources.files.folder import DiskFolder, Listed
from spark_app.sources.files.input import FileFailed
from tests.stores.test_stores_file_planning import LINES, VALUES, Taking
from tests.support.exports import DiskExports
from tests.support.file_sources import framed, json_text, parquet_bytes

CODES = [errno.EACCES, errno.EIO]


@pytest.fixture
def disk(tmp_path: Path) -> DiskExports:
    return DiskExports(tmp_path / "in")


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Called with a key and the error of each attempt to open that file; 0 = none any more."""
    opened, codes = DiskFolder.open_input, dict[str, int]()

    def fail(folder: DiskFolder, listed: Listed) -> Any:
        if code := codes.get(listed.key):
            raise OSError(code, "refused", listed.key)
        return opened(folder, listed)

    monkeypatch.setattr(DiskFolder, "open_input", fail)
    return codes.__setitem__


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the planner's clock."""
    moved, monotonic = [0.0], planning.time.monotonic

    def move(seconds: float) -> None:
        moved[0] += seconds

    monkeypatch.setattr("spark_app.sources.files.planning.time.monotonic", lambda: monotonic() + moved[0])
    return move


def damaged(values: list[bytes], group: int, number: int) -> bytes:
    """A Parquet file whose values of this row group cannot be decoded."""
    data = bytearray(parquet_bytes(values, group))
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(number).column(1)
    assert column.path_in_schema == "value"
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    return bytes(data)


@pytest.mark.parametrize("code", CODES)
def test_a_new_file_that_the_system_refuses_is_named_and_tried_again_later(
    tmp_path: Path, disk: DiskExports, refuse: Callable[[str, int], None], later: Callable[[float], None], code: int
) -> None:
    taking = Taking(tmp_path, disk)
    for name in ("a.json", "b.json"):
        disk.write(name, LINES)
    refuse("a.json", code)
    assert taking.take() == ["b.json"]
    assert "refused" in taking.planner.broken["a.json"]
    later(planning.REFUSED_S + 1)
    assert taking.take() == []
    assert "refused" in taking.planner.broken["a.json"]
    refuse("a.json", 0)
    assert taking.take() == []  # not before its time
    later(planning.REFUSED_S + 1)
    assert taking.take() == ["a.json"]
    assert taking.planner.broken == {}


@pytest.mark.parametrize("code", CODES)
def test_a_taken_file_that_the_system_refuses_was_not_replaced(
    tmp_path: Path, disk: DiskExports, refuse: Callable[[str, int], None], later: Callable[[float], None], code: int
) -> None:
    taking = Taking(tmp_path, disk)
    disk.write("a.json", LINES)
    assert taking.take() == ["a.json"]
    disk.write("a.json", LINES)
    refuse("a.json", code)
    disk.write("b.json", LINES)
    assert taking.take() == ["b.json"]
    assert "refused" in taking.planner.broken["a.json"]
    refuse("a.json", 0)
    later(planning.REFUSED_S + 1)
    assert (taking.take(), taking.planner.broken) == ([], {})
    disk.write("a.json", json_text(VALUES[1:]).encode())
    with pytest.raises(ContractError, match=r"a\.json was replaced"):
        taking.take()


def test_a_file_that_is_taken_in_part_and_refused_is_waited_for(
    tmp_path: Path, disk: DiskExports, refuse: Callable[[str, int], None]
) -> None:
    taking = Taking(tmp_path, disk, batch={"max_records": 10})
    values = framed(30)
    disk.write("a.parquet", parquet_bytes(values, 10))
    assert taking.take() == ["a.parquet"]
    disk.write("a.parquet", parquet_bytes(values, 10))
    refuse("a.parquet", errno.EIO)
    with pytest.raises(OSError, match="refused"):
        taking.take()
    refuse("a.parquet", 0)
    assert [taking.take() for _ in range(3)] == [["a.parquet"], ["a.parquet"], []]
    assert taking.values == values


@pytest.mark.parametrize("code", CODES)
def test_a_task_that_is_refused_does_not_say_that_the_file_is_broken(
    tmp_path: Path, disk: DiskExports, refuse: Callable[[str, int], None], code: int
) -> None:
    taking = Taking(tmp_path, disk)
    disk.write("a.json", LINES)
    plan = taking.plan()
    assert plan is not None
    refuse("a.json", code)
    with pytest.raises(FileFailed, match="refused") as failed:
        taking.read(plan)
    assert not failed.value.unreadable
    assert taking.planner.failed(failed.value)  # only the task could not read it
    assert taking.planner.broken == {}
    disk.write("a.json", LINES)
    assert not taking.planner.failed(failed.value)


def test_a_file_with_a_damaged_group_is_kept_out_before_anything_is_taken(tmp_path: Path, disk: DiskExports) -> None:
    taking = Taking(tmp_path, disk, batch={"max_records": 10})
    values = framed(30)
    disk.write("a.parquet", damaged(values, 10, 2))
    disk.write("b.json", LINES)
    assert (taking.take(), taking.values) == (["b.json"], VALUES)
    assert list(taking.planner.broken) == ["a.parquet"]
    disk.write("a.parquet", parquet_bytes(values, 10))
    assert [taking.take() for _ in range(4)] == [*[["a.parquet"]] * 3, []]
    assert taking.values == VALUES + values


def split(tmp_path: Path, disk: DiskExports, values: list[bytes], **source: Any) -> Taking:
    """Has taken the first ten rows of a file."""
    taking = Taking(tmp_path, disk, batch={"max_records": 10}, **source)
    disk.write("a.parquet", parquet_bytes(values, 10))
    assert taking.take() == ["a.parquet"]
    return taking


def test_a_file_that_is_written_again_while_it_is_taken_in_part_is_waited_for(
    tmp_path: Path, disk: DiskExports, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = framed(30)
    taking = split(tmp_path, disk, values)
    taking.listing._source = taking.listing._source.model_copy(update={"settle_s": 1000.0})
    data = disk.read("a.parquet")
    disk.write("b.json", LINES)
    for written in (len(data) // 2, len(data)):
        disk.write("a.parquet", data[:written])
        assert (taking.take(), taking.planner.is_resting) == ([], True)
        assert "a.parquet is being written again, but 10 of its 30 rows are ingested" in taking.planner.rewritten
    monkeypatch.setattr("spark_app.sources.files.listing.time.time", lambda: 1e12)
    assert [taking.take() for _ in range(4)] == [["a.parquet"], ["a.parquet"], ["b.json"], []]
    assert (taking.values, taking.planner.waiting, taking.planner.rewritten) == (values + VALUES, 0, "")


def test_other_content_in_a_file_that_is_taken_in_part_is_refused_once_it_rests(
    tmp_path: Path, disk: DiskExports
) -> None:
    taking = split(tmp_path, disk, framed(30))
    disk.write("a.parquet", parquet_bytes(framed(30, 10), 10))
    with pytest.raises(ContractError, match=r"a\.parquet was replaced"):
        taking.take()


def test_a_folder_that_is_away_while_a_file_is_taken_in_part_is_waited_for(tmp_path: Path, disk: DiskExports) -> None:
    values = framed(30)
    taking = split(tmp_path, disk, values)
    disk.folder.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="the folder is not there"):
        taking.take()
    (tmp_path / "away").rename(disk.folder)
    assert taking.take() == ["a.parquet"]
    disk.remove("a.parquet")
    with pytest.raises(ContractError, match=r"a\.parquet is gone, but only 20 of its 30 rows are ingested"):
        taking.take()
