"""What is known of the files of `deferred_events`, and how their rows are written again. No JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_app.model.record_schemas import DEFERRED_SCHEMA
from spark_app.units.driver import deferred
from spark_app.units.driver.deferred import MIXED, DeferredFiles, group_by_key
from tests.chaos.units import ingest_unit, open_lake
from tests.support.units import open_committer

TABLE = "deferred_events"
GUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


def rows(keys: list[str | None], first: int = 0) -> pa.Table:
    count = len(keys)
    columns = {
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": range(first, first + count),
        "waits_for": keys,
        "deferred_at": [0] * count,
    }
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in DEFERRED_SCHEMA]
    return pa.table(arrays, schema=DEFERRED_SCHEMA)


def known(folder: Path, *files: list[str | None]) -> DeferredFiles:
    lake = open_lake(folder)
    manifests, committer = open_committer(lake)
    for number, keys in enumerate(files, 1):
        manifest = ingest_unit(lake, number, {TABLE: rows(keys)}, records=10)
        manifests.commit(manifest)
        committer.apply(manifest)
    found = DeferredFiles(committer.tables, TABLE)
    found.refresh()
    return found


def test_the_log_tells_what_a_file_waits_for_and_only_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = known(tmp_path, ["7", "7"], [None] * 3, ["7", None], [GUID] * 2, ["7", "8", "8"])
    assert [(file.kind, file.rows) for file in found.files] == [("7", 2), (None, 3)]
    read: list[str] = []
    monkeypatch.setattr(found, "_count_keys", lambda path, own=found._count_keys: read.append(path) or own(path))
    found.read_counts()
    assert [(file.kind, file.rows) for file in found.files] == [("7", 2), (None, 3), (MIXED, 2), (GUID, 2), (MIXED, 3)]
    assert len(read) == 3
    schemas = pa.array([None, "8"], pa.string())
    assert [file.count(schemas) for file in found.files] == [0, 3, 1, 0, 2]
    found.refresh()
    found.read_counts()
    assert len(read) == 3


def test_rows_are_cut_into_files_and_those_that_many_share_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(deferred, "ALONE", 2)
    keys = ["7", None, "9", "7", "7", None, "8", "7"]
    files = [part["waits_for"].to_pylist() for part in group_by_key(rows(keys).to_batches())]
    assert files == [["7"] * 3, ["7"], [None] * 2, ["9", "8"]]


def test_a_file_of_millions_that_an_earlier_release_made_is_never_held_whole(tmp_path: Path) -> None:
    """It let delta-rs merge files until they had 128 MiB."""
    found, count = known(tmp_path, [None]), 2_000_000
    path = tmp_path / TABLE / "part-00000-of-delta-rs.parquet"
    part = rows([None] * 100_000)
    with pq.ParquetWriter(path, DEFERRED_SCHEMA) as writer:
        for _ in range(count // part.num_rows):
            writer.write_table(part)
    file = found._count_keys(path.name)
    assert (file.kind, file.rows) == (None, count)
    before, most, pieces = pa.total_allocated_bytes(), 0, []
    for piece in group_by_key(found.read([file])):
        pieces.append(piece.num_rows)
        most = max(most, pa.total_allocated_bytes() - before)
    assert pieces == [deferred.MOST_AT_ONCE] * (count // deferred.MOST_AT_ONCE)
    assert most < 128 << 20
