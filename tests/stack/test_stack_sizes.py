"""A micro-batch is bounded by bytes, on an empty lake and when the records change their size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
LARGE = b"\x07" + bytes(1_999)


def unit_bytes(stage: Stage) -> list[int]:
    """Bytes of values of each unit of ingest, in their order."""
    manifests = Manifests(Lake(stage.lake))
    units = map(manifests.read, manifests.numbers())
    return [unit.counts["value_bytes"] for unit in units if unit.kind == "ingest"]


@pytest.mark.nightly
def test_the_first_batch_of_a_lake_is_bounded(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(BATCH__MAX_BYTES="200000")
    stage.produce(20_000, partitions="2")
    assert stage.run("--available-now") == ExitCode.DONE
    assert stage.verify() == {}
    found = unit_bytes(stage)
    assert max(found) < 400_000
    assert sum(found) > 800_000


@pytest.mark.nightly
def test_batches_are_planned_anew_when_records_grow(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(BATCH__MAX_BYTES="1000000", BATCH__MAX_RECORDS="2000")
    stage.produce(6_000, partitions="1")
    producer = Producer({"bootstrap.servers": stage.brokers})
    for _ in range(10_000):
        producer.produce(stage.topic, LARGE)
        producer.poll(0)
    producer.flush()
    assert stage.run("--available-now") == ExitCode.DONE
    assert stage.verify() == {}
    found = unit_bytes(stage)
    broken = [position for position, size in enumerate(found) if size > 2_000_000]
    assert len(broken) <= 2, "those that show that the records have grown"
    assert len(found) > 3 + 2 + 4
    assert sum("planned again" in line for line in stage.lines()) in (1, 2)
    assert not any("Traceback" in line for line in stage.lines())
