"""Compaction by workers: the same rows, whatever fails."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.lake import Lake
from spark_app.settings.storing import LakeSettings
from spark_app.units.driver.worker_merger import WorkerMerger
from tests.chaos.units import ingest_unit, open_lake
from tests.support.units import open_committer

pytestmark = pytest.mark.spark

TABLES = [f"silver_{number}_events" for number in range(12)]
UNITS = 5
SETTINGS = LakeSettings(compact_files=2)


@pytest.fixture
def filled(tmp_path: Path, spark: SparkSession) -> tuple[Lake, Maintainer]:
    """A lake whose tables have a file of each unit, and who compacts them."""
    lake = open_lake(tmp_path)
    manifests, committer = open_committer(lake, SETTINGS)
    for sequence in range(1, UNITS + 1):
        rows = pa.table({"x": [sequence, -sequence], "s": ["a", None]})
        manifest = ingest_unit(lake, sequence, dict.fromkeys(TABLES, rows))
        manifests.commit(manifest)
        committer.apply(manifest)
    merger = WorkerMerger(lambda: spark, lake.storage)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced, merger=merger)
    maintainer.count_files(TABLES)
    return lake, maintainer


def files_of(lake: Lake, name: str) -> list[str]:
    return sorted(DeltaTable(str(lake.path(name))).get_add_actions()["path"].to_pylist())


def rows_of(lake: Lake, name: str) -> list[int]:
    found: list[int] = DeltaTable(str(lake.path(name))).to_pyarrow_table()["x"].to_pylist()
    return found


EXPECTED = [x for sequence in range(1, UNITS + 1) for x in (sequence, -sequence)]


def test_all_tables_that_are_due_are_merged_after_one_unit(filled: tuple[Lake, Maintainer]) -> None:
    lake, maintainer = filled
    assert maintainer.step()
    done = maintainer.take_done()
    # Four tables for each of two cores.
    assert (done["compactions"], done["files_before"], done["files_after"]) == (8, 8 * UNITS, 8)
    assert maintainer.step()
    assert not maintainer.step()
    for name in TABLES:
        assert [path[:7] for path in files_of(lake, name)] == ["merged-"]
        assert rows_of(lake, name) == EXPECTED


def test_a_damaged_file_keeps_only_its_own_table_from_compaction(
    filled: tuple[Lake, Maintainer], capsys: pytest.CaptureFixture[str]
) -> None:
    lake, maintainer = filled
    before = files_of(lake, TABLES[0])
    (lake.path(TABLES[0]) / before[2]).write_bytes(b"damaged")
    while maintainer.step():
        pass
    assert capsys.readouterr().err.count("cannot be compacted") == 1
    assert files_of(lake, TABLES[0]) == before
    assert {path.name for path in lake.path(TABLES[0]).glob("*.parquet")} == set(before)
    assert all(len(files_of(lake, name)) == 1 and rows_of(lake, name) == EXPECTED for name in TABLES[1:])


def test_a_full_disk_leaves_no_files(filled: tuple[Lake, Maintainer], monkeypatch: pytest.MonkeyPatch) -> None:
    lake, maintainer = filled
    before = {name: files_of(lake, name) for name in TABLES}
    monkeypatch.setattr(maintainer._tables, "replace_files", no_room)
    with pytest.raises(OSError, match="No space left"):
        maintainer.step()
    left = {name: {path.name for path in lake.path(name).glob("*.parquet")} - set(before[name]) for name in TABLES}
    assert [name for name in TABLES if left[name]] == [TABLES[0]]  # it may be committed


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_without_workers_the_app_merges(
    filled: tuple[Lake, Maintainer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, maintainer = filled

    def fail(*_: object) -> None:
        raise PySparkException("no executor is left")

    monkeypatch.setattr("pyspark.core.context.SparkContext.parallelize", fail)
    while maintainer.step():
        pass
    assert "workers could not merge files, so the app does" in capsys.readouterr().err
    assert all(len(files_of(lake, name)) == 1 and rows_of(lake, name) == EXPECTED for name in TABLES)
