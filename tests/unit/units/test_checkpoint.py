"""Spark's checkpoint against the manifests: what goes on, what is refused, what is rebuilt."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.delta.manifest import Manifest, follows
from spark_app.lake.lake import Lake
from spark_app.model.offsets import Offsets
from spark_app.units.spark import checkpoint
from tests.chaos.units import open_lake
from tests.support.checkpoints import CHECKSUM_OF_METADATA, METADATA, checksum, write, write_checkpoint
from tests.support.examples import examples


def at(*offsets: int, topic: str = "t") -> Offsets:
    return {topic: {str(partition): offset for partition, offset in enumerate(offsets)}}


def unit(end: Offsets, kind: str = "ingest") -> Manifest:
    return Manifest(7, kind, {"batch": 2, "start": {}, "end": end, "topic_ids": {}}, {}, {})  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Batches 3 to 5 end at 30, 40 and 50 of two partitions; all are done."""
    lake = open_lake(tmp_path)
    write_checkpoint(lake.path(lake.checkpoint), at(0, 0), [at(30, 30), at(40, 40), at(50, 50)], first=3)
    return lake


def faults(lake: Lake, end: Offsets) -> list[str]:
    return [problem.what for problem in checkpoint.examine(lake, unit(end))]


def test_one_that_ends_where_the_manifests_do_goes_on(lake: Lake) -> None:
    assert faults(lake, at(50, 50)) == []


def test_a_batch_that_is_planned_and_not_decided_goes_on(lake: Lake) -> None:
    for path in (lake.path(lake.checkpoint) / "commits" / "5", checksum(lake.path(lake.checkpoint) / "commits" / "5")):
        path.unlink()
    assert faults(lake, at(40, 40)) == []  # planned
    assert faults(lake, at(50, 50)) == []  # decided, its end not noted
    shutil.rmtree(lake.path(lake.checkpoint) / "commits")
    assert faults(lake, at(40, 40)) == []


@pytest.mark.parametrize(
    "end", [at(40, 40), at(60, 60), at(50, 51), at(50), at(50, 50, topic="u"), at(50, 50, 0), {}], ids=str
)
def test_one_of_another_place_is_refused(lake: Lake, end: Offsets) -> None:
    [problem] = checkpoint.examine(lake, unit(end))
    assert problem.fatal
    assert "`doctor --repair`" in problem.remedy
    assert problem.repair is not None
    assert "aside" in problem.repair()
    assert checkpoint.examine(lake, unit(end)) == []
    assert next(path.name for path in lake.path(lake.aside).iterdir()).startswith("checkpoint-")


def test_the_first_batch_starts_at_the_sources_own_offsets(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    write_checkpoint(lake.path(lake.checkpoint), at(50, 50, 3), [at(60, 60, 9)], done=0)
    assert faults(lake, at(50, 50)) == []  # the third partition came while there was no checkpoint
    assert len(faults(lake, at(50, 49))) == 1
    shutil.rmtree(lake.path(lake.checkpoint) / "offsets")
    (lake.path(lake.checkpoint) / "offsets").mkdir()
    assert faults(lake, at(50, 50)) == []
    assert len(faults(lake, at(51, 50))) == 1


def test_none_is_no_fault(lake: Lake) -> None:
    shutil.rmtree(lake.path(lake.checkpoint) / "offsets")
    assert not checkpoint.is_there(lake)
    assert faults(lake, at(1, 1)) == []
    shutil.rmtree(lake.path(lake.checkpoint))
    assert faults(lake, at(1, 1)) == []


def test_without_a_unit_there_is_nothing_to_compare(lake: Lake) -> None:
    assert checkpoint.examine(lake, None) == []


READ = ["metadata", "offsets/5", "offsets/4", "commits/5", "sources/0/0"]


@pytest.mark.parametrize("kept", [True, False], ids=["with checksum", "without"])
@pytest.mark.parametrize("kind", ["truncated", "emptied", "junk"])
@pytest.mark.parametrize("name", READ)
def test_a_damaged_file_that_spark_reads_is_named(lake: Lake, name: str, kind: str, kept: bool) -> None:
    path = lake.path(lake.checkpoint) / name
    data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "emptied": b"", "junk": bytes(range(128, 200))}[kind])
    if not kept:
        checksum(path).unlink()
    [what] = faults(lake, at(50, 50))
    assert str(path) in what
    assert checkpoint.REMEDY not in what  # it is said behind


@pytest.mark.parametrize("name", ["metadata", "offsets/5", "offsets/4"])
def test_a_missing_file_that_spark_needs_is_named(lake: Lake, name: str) -> None:
    (lake.path(lake.checkpoint) / name).unlink()
    assert len(faults(lake, at(50, 50))) == 1


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("data", [b"", b"crc\0", b"junk", b"crc\0\0\0\2\0\1\2\3\4"], ids=repr)
def test_a_checksum_that_is_not_the_files_is_named(lake: Lake, name: str, data: bytes) -> None:
    checksum(lake.path(lake.checkpoint) / name).write_bytes(data)
    assert len(faults(lake, at(50, 50))) == 1


@pytest.mark.parametrize("name", ["commits/5", "commits/6", "offsets/6"])
def test_a_checksum_without_its_file_is_named(lake: Lake, name: str) -> None:
    """Spark would run the batch and then die of it, each time."""
    path = lake.path(lake.checkpoint) / name
    write(path, "x")
    path.unlink()
    assert len(faults(lake, at(50, 50))) == 1


def test_an_empty_future_file_is_named(lake: Lake) -> None:
    (lake.path(lake.checkpoint) / "offsets" / "6").touch()
    assert len(faults(lake, at(50, 50))) == 1


@pytest.mark.parametrize("name", ["offsets/3", "commits/4", "offsets/.6.77.tmp", "offsets/x", "junk"])
def test_what_spark_does_not_read_is_no_fault(lake: Lake, name: str) -> None:
    (lake.path(lake.checkpoint) / name).write_bytes(b"\xff\0")
    assert faults(lake, at(50, 50)) == []


def test_checksums_are_hadoops(tmp_path: Path) -> None:
    write(tmp_path / "metadata", METADATA)
    assert checksum(tmp_path / "metadata").read_bytes() == CHECKSUM_OF_METADATA


def test_a_forgotten_one_leaves_nothing(lake: Lake) -> None:
    checkpoint.forget(lake, "a test")
    assert not lake.path(lake.checkpoint).exists()
    assert not lake.path(lake.checkpoint).with_suffix(".old").exists()


COORDINATE_TYPES = st.dictionaries(
    st.sampled_from("tu"), st.dictionaries(st.sampled_from("012"), st.integers(0, 3), max_size=3)
)


@given(COORDINATE_TYPES, COORDINATE_TYPES)
@examples(1)
def test_a_batch_follows_only_where_every_partition_goes_on(start: Offsets, end: Offsets) -> None:
    taken = {(t, p): offset for t, parts in end.items() for p, offset in parts.items()}
    begun = {(t, p): offset for t, parts in start.items() for p, offset in parts.items()}
    assert follows(start, end) == (taken.items() <= begun.items())


def test_a_loss_moves_the_end_as_well(lake: Lake) -> None:
    assert checkpoint.examine(lake, replace(unit(at(50, 50)), kind="loss")) == []
