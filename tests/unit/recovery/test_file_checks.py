"""`doctor` on the ledger of taken files: it names what is damaged or missing, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.reports import Report
from spark_app.recovery import doctor, file_checks
from spark_app.settings.models import Settings
from spark_app.sources.files import ingested
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.units.driver.open_lake import OpenLake

UNITS = 6


def settings_of(lake: Lake) -> Settings:
    return Settings(source={"kind": "files", "path": "in"}, lake={"path": str(lake.root)})  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake that has taken a file of two rows with each unit; the last file is open."""
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    opened = OpenLake.of(lake, settings_of(lake))
    ledger = IngestedFiles(lake.storage, lake.ingested)
    for number in range(UNITS):
        start, end = ({"files": {"0": rows}} for rows in (2 * number, 2 * number + 2))
        file = IngestedFile(f"{number}.json", 10, 1, 1, "d" * 64, 2 * number, 2, 2 + (number == UNITS - 1))
        source = {"start": start, "end": end, "topic_ids": {"files": "files"}, "files": [vars(file)]}
        opened.commit(Report(), "ingest", source)
        ledger.add(opened.units.manifests.last, [file])
    return lake


def segments(lake: Lake) -> list[Path]:
    return sorted(lake.path(lake.ingested).glob("*.parquet"))


def said(lake: Lake) -> list[str]:
    """What is said of the ledger; nothing may change."""
    before = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    problems = doctor.examine(lake, settings_of(lake))
    assert {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()} == before
    found = [problem for problem in problems if lake.ingested in problem.what]
    assert all(problem.fatal and problem.repair is None and "backup" in problem.remedy for problem in found)
    return [problem.what for problem in found]


def test_a_ledger_in_order_is_left_alone(lake: Lake) -> None:
    assert said(lake) == []
    segments(lake)[-1].unlink()  # a start writes it again from the manifest
    assert said(lake) == []


def test_a_lake_of_topics_has_no_ledger(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "topics")
    lake.prepare()
    assert file_checks.ingested(lake) == []


def test_a_damaged_segment_is_named(lake: Lake) -> None:
    segment = segments(lake)[2]
    segment.write_bytes(segment.read_bytes()[:50])
    (what,) = said(lake)
    assert f"{segment} is damaged" in what


@pytest.mark.parametrize(
    ("number", "where"),
    [
        (0, "row 0 is not in it, a segment is missing before 000000000002-000000000002.parquet"),
        (2, "after 000000000002-000000000002.parquet and before 000000000004-000000000004.parquet"),
    ],
)
def test_a_missing_segment_is_named_by_its_neighbours(lake: Lake, number: int, where: str) -> None:
    segments(lake)[number].unlink()
    (what,) = said(lake)
    assert where in what


def test_a_damaged_beginning_of_a_delta_table_is_named(lake: Lake) -> None:
    began = lake.path(lake.ingested) / "began.json"
    began.write_text("{")
    (what,) = said(lake)
    assert f"{began} is damaged" in what


def test_segments_that_a_merge_left_are_no_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {path: path.read_bytes() for path in segments(lake)}
    monkeypatch.setattr(ingested, "LEAST_MERGED", 3)
    IngestedFiles(lake.storage, lake.ingested)._merge()
    for path, data in kept.items():
        path.write_bytes(data)
    assert said(lake) == []
