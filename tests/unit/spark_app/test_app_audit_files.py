"""What the audit reads of a source of files: the ledger beside a running app, and the times of any file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_app.audit.source_files import Files
from spark_app.intake.columns_of_source import SourceColumns
from spark_app.intake.taken_files import TakenFile, TakenFiles
from spark_app.model.errors import ContractError
from spark_app.model.offsets import Span
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake
from spark_app.storage.local import LocalStorage

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")
KINDS = [pa.int64(), *map(pa.timestamp, ("ms", "us", "ns"))]  # Parquet has no seconds


def settings_of(folder: Path) -> Settings:
    return Settings(source={"kind": "files", "path": str(folder / "in")}, lake={"path": str(folder / "lake")})  # type: ignore[arg-type]


def ledger_of(folder: Path, files: int) -> Lake:
    """A ledger of files of two rows, with a segment for each."""
    lake = Lake(folder / "lake")
    ledger = TakenFiles(lake.storage, lake.taken)
    for number in range(files):
        ledger.add(number + 1, [TakenFile(f"{number}.json", 10, 1, 1, "d" * 64, 2 * number, 2, 2)])
    return lake


@example(kind=pa.timestamp("us"), counts=[-(2**63), 2**63 - 1])
@example(kind=pa.timestamp("ms"), counts=[-(2**63), 2**63 - 1])
@given(kind=st.sampled_from(KINDS), counts=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_the_audit_reads_the_times_that_the_app_reads(
    tmp_path_factory: pytest.TempPathFactory, kind: pa.DataType, counts: list[int | None]
) -> None:
    folder = tmp_path_factory.mktemp("times")
    times = pa.array(counts, pa.int64()).cast(kind)
    columns: dict[str, Any] = {"value": pa.array([b"v"] * len(counts)), "timestamp": times}
    written = pa.table(columns | {"valid_until": pa.array([2**62] * len(counts), pa.timestamp("ms"))})
    (folder / "in").mkdir()
    pq.write_table(written, folder / "in/a.parquet", version="2.6")
    stored = pq.read_table(folder / "in/a.parquet", columns=["value", "timestamp"])
    batch = COLUMNS.from_parquet(stored.to_batches()[0], "files", 0, 7)
    digest = hashlib.sha256((folder / "in/a.parquet").read_bytes()).hexdigest()
    lake = Lake(folder / "lake")
    file = TakenFile("a.parquet", 10, 1, 7000, digest, 0, len(counts), len(counts))
    TakenFiles(lake.storage, lake.taken).add(1, [file])
    records, _ = Files(settings_of(folder)).read([Span("files", 0, 0, len(counts))], 1 << 30)
    assert records.time == batch.column("timestamp").cast(pa.int64()).to_pylist()


def test_a_ledger_with_a_missing_segment_is_refused(tmp_path: Path) -> None:
    lake = ledger_of(tmp_path, 4)
    assert Files(settings_of(tmp_path)).ends("files") == {0: 8}
    sorted(lake.path(lake.taken).glob("*.parquet"))[1].unlink()
    with pytest.raises(ContractError, match="lacks the rows 2 to 3: restore it from a backup"):
        Files(settings_of(tmp_path))


def test_segments_may_be_merged_while_the_audit_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ledger_of(tmp_path, 4)
    one, two, *_ = sorted(lake.path(lake.taken).glob("*.parquet"))
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
