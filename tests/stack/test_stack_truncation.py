"""A log that loses its end between plan and reading of a batch, as by an election of a broker that is behind."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
TAKEN, PLANNED, KEPT, LATER = 1000, 700, 200, 300


@pytest.mark.nightly
def test_a_batch_that_the_log_no_longer_has_is_planned_anew(tmp_path: Path, registry: Registry) -> None:
    with Kafka(tmp_path / "broker") as kafka:
        stage = Stage(tmp_path, kafka, registry, "truncated")
        stage.produce(TAKEN, partitions="1")
        assert stage.run("--available-now") == ExitCode.DONE
        for seed in range(PLANNED // 100):
            stage.produce(100, seed=str(seed))
        stage.arm(["pass.before"])
        assert stage.run("--available-now", FAILPOINTS="on") < 0
        assert stage.unmet() == []
        kafka.kill()
        truncate(kafka.folder / "data" / f"{stage.topic}-0", TAKEN + KEPT)
        kafka.start()
        assert stage.run("--available-now") == ExitCode.DONE
        assert any("planned again" in line for line in stage.lines())
        stage.produce(LATER, seed="99")
        assert stage.run("--available-now") == ExitCode.DONE
        stage.acks.unlink()  # the broker acknowledged what it has lost
        assert stage.verify() == {}
        offsets = read_back.read(stage.lake, "bronze_events")["offset"].to_pylist()
        assert sorted(offsets) == [*range(TAKEN + KEPT + LATER)]


def truncate(folder: Path, end: int) -> None:
    """Let the log of a partition end with that offset, at which one of its batches begins."""
    (log,) = folder.glob("*.log")
    data, at = log.read_bytes(), 0
    while at < len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if base == end:
            log.write_bytes(data[:at])
            for index in (*folder.glob("*index"), *folder.glob("*.snapshot")):
                index.unlink()
            return
        at += size + 12
    raise AssertionError(f"no batch begins at {end}")
