"""What the audit reads of a source of files: the ledger beside a running app, and the columns of any file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_app.audit.source_files import Files
from spark_app.audit.source_records import Records
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, UnreachableError
from spark_app.model.offsets import Span
from spark_app.settings.models import Settings
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")
KINDS = [pa.int64(), *map(pa.timestamp, ("ms", "us", "ns"))]  # Parquet has no seconds


def settings_of(folder: Path) -> Settings:
    return Settings(source={"kind": "files", "path": str(folder / "in")}, lake={"path": str(folder / "lake")})  # type: ignore[arg-type]


def ledger_of(folder: Path, files: int) -> Lake:
    """A ledger of files of two rows, with a segment for each."""
    lake = Lake(folder / "lake")
    ledger = IngestedFiles(lake.storage, lake.ingested)
    for number in range(files):
        ledger.add(number + 1, [IngestedFile(f"{number}.json", 10, 1, 1, "d" * 64, 2 * number, 2, 2)])
    return lake


def read_by_both(folder: Path, name: str, written: pa.Table | str) -> tuple[Records, Records]:
    """The records of a file as the app has them in bronze, and as the audit reads them."""
    path = folder / "in" / name
    path.parent.mkdir()
    if isinstance(written, str):
        path.write_text(written)
        batch = COLUMNS.from_lines(list(enumerate(path.read_bytes().splitlines())), "files", 7)
    else:
        pq.write_table(written, path, version="2.6")
        stored = pq.read_table(path, columns=[column for column in COLUMNS.names if column in written.column_names])
        assert COLUMNS.problem(stored.schema) is None
        batch = COLUMNS.from_parquet(stored.combine_chunks().to_batches()[0], "files", 0, 7)
    bronze = Records()
    bronze.add_bronze(pa.Table.from_batches([batch]))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    lake = Lake(folder / "lake")
    file = IngestedFile(name, 10, 1, 7000, digest, 0, len(batch), len(batch))
    IngestedFiles(lake.storage, lake.ingested).add(1, [file])
    return bronze, Files(settings_of(folder)).read([Span("files", 0, 0, len(batch))], 1 << 30)[0]


@example(kind=pa.uint64(), counts=[2**64 - 1, 2**63, 0])
@example(kind=pa.timestamp("us"), counts=[-(2**63), 2**63 - 1])
@example(kind=pa.timestamp("ms"), counts=[-(2**63), 2**63 - 1])
@given(kind=st.sampled_from(KINDS), counts=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_the_audit_reads_the_times_that_the_app_reads(
    tmp_path_factory: pytest.TempPathFactory, kind: pa.DataType, counts: list[int | None]
) -> None:
    times = pa.array(counts, kind)
    columns: dict[str, Any] = {"value": pa.array([b"v"] * len(counts)), "timestamp": times}
    written = pa.table(columns | {"valid_until": pa.array([2**62] * len(counts), pa.timestamp("ms"))})
    bronze, audited = read_by_both(tmp_path_factory.mktemp("times"), "a.parquet", written)
    assert audited.time == bronze.time


NOT_UTF8 = pa.array([b"\xff\xfe", b"YQ==", None, b"a b", b"\xff"]).view(pa.string())
HEADER_KEYS = pa.array([b"\xff", b"k", b"l", b"m", b"n"]).view(pa.string())
HEADERS = pa.StructArray.from_arrays([HEADER_KEYS, NOT_UTF8], ["key", "value"])
WITH_NULL = pa.StructArray.from_arrays(
    [HEADER_KEYS, NOT_UTF8], ["key", "value"], mask=pa.array([False, True] + [False] * 3)
)
NUMBERS = pa.StructArray.from_arrays([pa.array(range(5)), pa.array(range(5))], ["key", "value"])
STARTS = [0, 1, 1, 3, 4, 5]


@pytest.mark.parametrize(
    "headers",
    [
        NOT_UTF8,
        NOT_UTF8.dictionary_encode(),
        pa.array(["", "null", "{}", '[{"key":1,"value":null}]', '[{"key":"k","value":"?"}]']),
        pa.ListArray.from_arrays(pa.array(STARTS, pa.int32()), HEADERS),
        pa.LargeListArray.from_arrays(pa.array(STARTS, pa.int64()), HEADERS),
        pa.LargeListArray.from_arrays(pa.array([0, 2, 2, 3, 4, 5], pa.int64()), WITH_NULL),
        pa.FixedSizeListArray.from_arrays(HEADERS, 1),
        pa.FixedSizeListArray.from_arrays(NUMBERS, 1),
        pa.FixedSizeListArray.from_arrays(NOT_UTF8, 1),
    ],
)
def test_the_audit_reads_the_bytes_that_the_app_reads(tmp_path: Path, headers: pa.Array) -> None:
    written = pa.table({"value": NOT_UTF8, "key": NOT_UTF8.dictionary_encode(), "headers": headers})
    bronze, audited = read_by_both(tmp_path, "a.parquet", written)
    assert audited.value == audited.key == [b"\xff\xfe", b"a", None, b"a b", b"\xff"]
    assert (bronze.value, bronze.key) == (audited.value, audited.key)
    assert [list(found or ()) for found in audited.headers] == bronze.headers
    assert any(bronze.headers)


def test_the_audit_reads_the_lines_that_the_app_reads(tmp_path: Path) -> None:
    times = ["1711012412345", "17110124", "-7", "9" * 30, "20240321T000000Z", "7.5", "--7", "\u0663", "", 7]
    lines = [json.dumps({"value": base64.b64encode(b"v").decode(), "timestamp": time}) for time in times]
    bronze, audited = read_by_both(tmp_path, "a.json", "".join(f"{line}\n" for line in lines))
    assert (audited.time[:3], audited.time_type) == (
        [1_711_012_412_345_000, 17_110_124_000, -7000],
        [0] * 5 + [-1] * 4 + [0],
    )
    assert (bronze.time, bronze.time_type, bronze.value) == (audited.time, audited.time_type, audited.value)


def test_a_ledger_with_a_missing_segment_is_refused(tmp_path: Path) -> None:
    lake = ledger_of(tmp_path, 4)
    assert Files(settings_of(tmp_path)).ends("files") == {0: 8}
    sorted(lake.path(lake.ingested).glob("*.parquet"))[1].unlink()
    with pytest.raises(ContractError, match="lacks the rows 2 to 3: restore it from a backup"):
        Files(settings_of(tmp_path))


def test_a_file_that_cannot_be_read_now_is_not_reported_as_one_that_is_gone(tmp_path: Path) -> None:
    ledger_of(tmp_path, 2)
    assert list(Files(settings_of(tmp_path)).unproven().values()) == [2]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").symlink_to("1.json")  # refused to root, too
    with pytest.raises(UnreachableError, match=r"in/1\.json cannot be read \(.*\): .*; make the file readable"):
        Files(settings_of(tmp_path)).unproven()


def test_segments_may_be_merged_while_the_audit_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ledger_of(tmp_path, 4)
    one, two, *_ = sorted(lake.path(lake.ingested).glob("*.parquet"))
    listed = LocalStorage.list

    def merge_after(storage: LocalStorage, *arguments: Any) -> list[str]:
        found = listed(storage, *arguments)
        if one.exists() and one.name in str(found):
            merged = pa.concat_tables([pq.read_table(one), pq.read_table(two)])
            pq.write_table(merged, one.with_name("000000000001-000000000002.parquet"))
            one.unlink()
            two.unlink()
        return found

    monkeypatch.setattr(LocalStorage, "list", merge_after)
    assert Files(settings_of(tmp_path)).ends("files") == {0: 8}
    assert not one.exists()
