"""One record that is larger than the JVM's heap: it is named, and the README's ways out lead out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from scripts.campaign import ledger
from scripts.campaign.stage import Stage
from spark_app.errors import ExitCode

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
BYTES = 300 << 20  # a broker counts them compressed: 30 KiB
AT = 20


def fill(stage: Stage) -> None:
    """The record between small ones, at offset `AT` of the only partition."""
    stage.produce(AT, partitions="1")
    sender = Producer(
        {"bootstrap.servers": stage.brokers, "compression.type": "zstd", "message.max.bytes": 1_000_000_000}
    )
    sender.produce(stage.topic, bytes(BYTES))
    sender.flush()
    stage.produce(AT, seed="8")


def test_a_record_larger_than_the_heap_is_named_and_can_be_left_out(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="1g")
    fill(stage)
    assert stage.run("--available-now") == ExitCode.BUG
    assert re.search(rf"batch of {stage.topic}/0 0 to {2 * AT + 1}, try 1 ended the app", stage.status()["reason"])

    shutil.rmtree(stage.lake / "_protolake" / "checkpoint")
    assert stage.run("--available-now", BATCH__RECORDS="1") == ExitCode.BUG
    assert re.search(rf"batch of {stage.topic}/0 {AT} to {AT + 1}, try 1 ended the app", stage.status()["reason"])

    admin = AdminClient({"bootstrap.servers": stage.brokers})
    for done in admin.delete_records([TopicPartition(stage.topic, 0, AT + 1)]).values():
        done.result()
    shutil.rmtree(stage.lake / "_protolake" / "checkpoint")
    assert stage.run("--available-now") == ExitCode.LOSS
    assert stage.run("--available-now", "--accept-loss") == ExitCode.DONE
    lost = ledger.read(stage.lake, "lost_events").select(["partition", "first", "end"]).to_pylist()
    assert lost == [{"partition": 0, "first": AT, "end": AT + 1}]
    bronze = ledger.read(stage.lake, "bronze_events")["offset"].to_pylist()
    assert sorted(bronze) == [*range(AT), *range(AT + 1, 2 * AT + 1)]


def test_a_larger_heap_takes_it(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="4g")
    fill(stage)
    assert stage.run("--available-now") == ExitCode.DONE
    assert sorted(ledger.read(stage.lake, "bronze_events")["offset"].to_pylist()) == [*range(2 * AT + 1)]
