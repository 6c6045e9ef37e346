"""A folder that was, or becomes, a Delta table is never taken as one of plain files without a word."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.model.reports import Report
from spark_app.settings.models import Settings
from spark_app.sources.files.folder import DiskFolder
from spark_app.sources.files.listing import OpenedSource
from spark_app.units.driver.open_lake import OpenLake
from tests.support.file_sources import framed, parquet_table, write_parquet


class Runs:
    """Starts of an app without Spark: a plan is committed as a unit without tables."""

    def __init__(self, tmp_path: Path, kind: str = "auto"):
        self.lake = Lake(tmp_path / "lake")
        self.lake.prepare()
        source = {"kind": "files", "path": str(tmp_path / "in"), "format": kind, "settle_s": 0.0, "full_list_s": 1e-6}
        lake = {"path": str(self.lake.root)}
        self.settings = Settings(source=source, lake=lake)  # type: ignore[arg-type]
        self.opened = OpenLake.of(self.lake, self.settings)

    def start(self) -> OpenedSource:
        return OpenedSource(self.lake, self.settings, self.opened.units.manifests, lambda: None)

    def take(self, source: OpenedSource) -> int:
        """The rows of the next unit."""
        plan = source.planner.plan(source.end)
        if plan is None:
            return 0
        start, end = ({"files": {"0": number}} for number in (plan.start, plan.end))
        said = {"start": start, "end": end, "topic_ids": {"files": "files"}, **plan.source(source.planner.version)}
        self.opened.commit(Report(), "ingest", said)
        source.committed(plan)
        return plan.end - plan.start


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder in which a table will be."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def append(table: Path, rows: int = 2) -> None:
    write_deltalake(table, parquet_table(framed(rows)), mode="append")


@pytest.mark.parametrize("taken", [False, True])
def test_a_table_whose_log_is_gone_is_not_taken_as_plain_files(tmp_path: Path, table: Path, taken: bool) -> None:
    append(table)
    runs = Runs(tmp_path)
    source = runs.start()
    assert not taken or runs.take(source) == 2
    shutil.move(table / "_delta_log", tmp_path / "log")
    with pytest.raises(ContractError, match=r"was a Delta table and has no _delta_log any more.*restore its log"):
        runs.start()
    shutil.move(tmp_path / "log", table / "_delta_log")
    again = runs.start()
    assert [runs.take(again), runs.take(again)] == ([0, 0] if taken else [2, 0])


def test_the_version_in_a_unit_tells_it_too(tmp_path: Path, table: Path) -> None:
    append(table)
    runs = Runs(tmp_path)
    source = runs.start()
    assert runs.take(source) == 2
    append(table)
    assert runs.take(source) == 2
    shutil.rmtree(runs.lake.path(runs.lake.ingested))
    shutil.rmtree(table / "_delta_log")
    with pytest.raises(ContractError, match="was a Delta table"):
        runs.start()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_server_that_does_not_say_whether_there_is_a_log_is_asked_again(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    append(table)
    runs, stat = Runs(tmp_path), os.stat

    def fail(path: Any, **given: Any) -> os.stat_result:
        if str(path).endswith("_delta_log"):
            raise OSError(code, "no answer", path)
        return stat(path, **given)

    monkeypatch.setattr("spark_app.sources.files.folder.os.stat", fail)
    with pytest.raises(OSError, match="no answer"):
        runs.start()


def test_a_folder_that_may_not_be_looked_at_is_no_missing_one(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, "no access", path)

    assert (DiskFolder(str(table)).exists(), DiskFolder(f"{table}/other").exists()) == (True, False)
    monkeypatch.setattr("spark_app.sources.files.folder.os.stat", fail)
    with pytest.raises(ConfigurationError, match=r"source\.path: .*no access"):
        DiskFolder(str(table)).exists()


def test_a_table_that_appears_in_an_empty_folder_is_taken_by_the_next_start(tmp_path: Path, table: Path) -> None:
    runs = Runs(tmp_path)
    source = runs.start()
    assert runs.take(source) == 0
    append(table)
    with pytest.raises(ContractError, match=r"has become a Delta table.*nothing was ingested yet: start the app again"):
        runs.take(source)
    assert runs.take(runs.start()) == 2


def test_a_table_that_appears_among_plain_files_is_refused_until_somebody_decides(tmp_path: Path, table: Path) -> None:
    runs = Runs(tmp_path)
    write_parquet(table / "a.parquet", framed(3))
    source = runs.start()
    assert runs.take(source) == 3
    append(table)
    with pytest.raises(ContractError, match=r'plain ones before: .*set source.format, for example to "parquet", or'):
        runs.take(source)
    for kind in ("auto", "delta"):
        with pytest.raises(ContractError, match=r"began\.json is missing.*plain ones.*set source\.format"):
            Runs(tmp_path, kind).start()
    plain = Runs(tmp_path, "parquet")
    assert plain.take(plain.start()) == 2
