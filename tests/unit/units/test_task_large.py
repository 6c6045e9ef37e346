"""The pass and records that are large: those that were left out, and those that have files of their own."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_app.lake.files.local import LocalStorage
from spark_app.model.record_schemas import BRONZE_SCHEMA, OMITTED_SCHEMA
from spark_app.model.reports import Report
from spark_app.protobuf.framing import VALUE_HEADER
from spark_app.sources.bronze import Share, find_row_groups
from tests.support.frames import batch_of, frame, headers_of, leave_out
from tests.unit.units.test_task import KINDS, LAYOUT, OLD, event, places, plan_for, read_back, run

SIZE, DIGEST = OMITTED_SCHEMA.names
MOST = 100
GIANT = event(OLD, "rummy", c0=1) + bytes(500)
SMALL = event(OLD, "rummy", c0=5)


def shares_of(folder: Path, report: Report) -> list[pa.RecordBatch]:
    """Bronze of the report, as a worker reads it."""
    storage, keys = LocalStorage(folder), [f"{LAYOUT.bronze}/{entry.path}" for entry in report.files[LAYOUT.bronze]]
    return list(Share(storage, tuple(find_row_groups(storage, keys, None)), None, 1_000, 1 << 20).read())


def files_of(folder: Path, report: Report, table: str) -> list[list[bytes]]:
    """The values in each file of a raw table, in the order of the files."""
    return [pq.read_table(folder / table / entry.path)["value"].to_pylist() for entry in report.files[table]]


def test_a_record_that_was_left_out_is_refused_and_no_tombstone(tmp_path: Path) -> None:
    batch = leave_out(batch_of([SMALL, GIANT, None, b"\0\0", SMALL]), MOST)
    report = run([batch], plan_for(tmp_path, max_record_bytes=MOST))
    assert (report.tombstones, report.quarantine, report.silver) == (
        1,
        {"record_size": 1, "frame_short": 1},
        {"rummy": 2},
    )
    assert report.balance() == (5, 5)
    assert report.value_bytes >= len(GIANT)
    tables = read_back(tmp_path, report)
    digest = hashlib.sha256(GIANT).hexdigest()
    for name, offset in ((LAYOUT.bronze, 1), (LAYOUT.quarantine, 0)):
        rows = tables[name].to_pylist()
        assert (rows[offset]["value"], rows[offset][SIZE], rows[offset][DIGEST]) == (None, len(GIANT), digest)
        assert [row[SIZE] for row in rows if row["offset"] != 1] == [None] * (len(rows) - 1)
    refused = tables[LAYOUT.quarantine].to_pylist()[0]
    assert (refused["cause"], refused["hop"], refused["schema_id"]) == ("record_size", "record", None)
    assert refused["detail"] == f"{len(GIANT)} bytes, the most is {MOST}; SHA-256 {digest}"


def test_tables_know_nothing_of_it_until_there_is_such_a_record(tmp_path: Path) -> None:
    empty = leave_out(batch_of([SMALL, GIANT, None, b"\0\0"]), MOST).slice(2)
    report = run([empty, batch_of([SMALL], first=4)], plan_for(tmp_path))
    tables = read_back(tmp_path, report)
    assert tables[LAYOUT.bronze].schema.names == BRONZE_SCHEMA.names
    assert SIZE not in tables[LAYOUT.quarantine].schema.names


def test_batches_with_and_without_share_their_files(tmp_path: Path) -> None:
    batches = [batch_of([SMALL, b"x"]), leave_out(batch_of([GIANT], first=2), MOST), batch_of([b"x"], first=3)]
    report = run(batches, plan_for(tmp_path))
    assert [len(report.files[name]) for name in (LAYOUT.bronze, LAYOUT.quarantine)] == [1, 1]
    tables = read_back(tmp_path, report)
    assert tables[LAYOUT.bronze][SIZE].to_pylist() == [None, None, len(GIANT), None]
    assert tables[LAYOUT.quarantine][SIZE].to_pylist() == [None, len(GIANT), None]


@pytest.mark.parametrize("land_only", [False, True])
def test_bronze_as_the_source_says_the_same(tmp_path: Path, land_only: bool) -> None:
    """No later pass can decode it, so it never waits, not even where all others do."""
    values = [*(value for value, _ in KINDS.values()), GIANT, SMALL]
    batch = leave_out(batch_of(values), MOST)
    first = run([batch], plan_for(tmp_path / "a", land_only=land_only))
    assert (first.tombstones, first.quarantine["record_size"]) == (1, 1)
    assert first.balance() == (len(values), len(values))
    if land_only:
        assert (first.quarantine, first.deferred) == ({"record_size": 1}, len(values) - 2)
    again = run(shares_of(tmp_path / "a", first), plan_for(tmp_path / "b", write_bronze=False))
    direct = run([batch], plan_for(tmp_path / "c"))
    assert replace(again, files={}) == replace(direct, files={})
    assert places(read_back(tmp_path / "b", again)) == places(
        {name: rows for name, rows in read_back(tmp_path / "c", direct).items() if name != LAYOUT.bronze}
    )
    refused = read_back(tmp_path / "b", again)[LAYOUT.quarantine].to_pylist()
    (row,) = [row for row in refused if row["cause"] == "record_size"]
    assert (row[SIZE], row[DIGEST]) == (len(GIANT), hashlib.sha256(GIANT).hexdigest())
    assert "the most is" not in row["detail"], "by which limit it was left out is not known any more"


def test_a_header_does_not_make_a_value_that_was_left_out_wait(tmp_path: Path) -> None:
    named = headers_of([[(VALUE_HEADER, frame(77, b""))]])
    report = run([leave_out(batch_of([GIANT], headers=named), MOST)], plan_for(tmp_path))
    assert (report.new_ids, report.quarantine, report.balance()) == ({}, {"record_size": 1}, (1, 1))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_large_record_has_files_of_its_own(tmp_path: Path, place: int) -> None:
    large = event(OLD, "r" * 400)
    values = [SMALL, SMALL]
    values.insert(place, large)
    report = run([batch_of(values), batch_of([SMALL], first=3)], plan_for(tmp_path, own_file_bytes=300))
    found = files_of(tmp_path, report, LAYOUT.bronze)
    assert [large] in found
    assert Counter(value for values in found for value in values) == Counter({SMALL: 3, large: 1})
    assert report.spans == {"t/0": [0, 3, 4]}
