"""Two lakes share a topic by its partitions: each record is in one of them, also after the topic has grown."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
GAMES = "hearts,uno"


@pytest.fixture
def stages(tmp_path: Path, kafka: Kafka, registry: Registry) -> dict[str, Stage]:
    """Partitions -> the app that takes them."""
    return {
        partitions: Stage(tmp_path / partitions, kafka, registry, "shared", KAFKA__PARTITIONS=partitions)
        for partitions in ("0-1", "2-")
    }


@pytest.mark.nightly
def test_each_record_is_in_the_lake_of_its_partition(stages: dict[str, Stage]) -> None:
    first, last = stages.values()
    for stage in stages.values():
        stage.lake.parent.mkdir()
    first.produce(2_000, games=GAMES, partitions="4")
    assert [stage.drain()[-1] for stage in stages.values()] == [ExitCode.DONE] * 2
    assert [stage.verify() for stage in stages.values()] == [{}, {}]
    assert [_partitions(stage) for stage in stages.values()] == [{0, 1}, {2, 3}]

    app = last.start()
    try:
        wait_until(lambda: last.status().get("pid") == app.pid and last.status()["state"] == "running", "the start")
        admin = AdminClient({"bootstrap.servers": last.brokers})
        admin.create_partitions([NewPartitions(last.topic, 6)])[last.topic].result()
        first.produce(2_000, games=GAMES, seed="7", partitions="6")
        wait_until(lambda: _partitions(last) == {2, 3, 4, 5}, "the added partitions", 120)
    finally:
        kill(app)
    assert [stage.drain()[-1] for stage in stages.values()] == [ExitCode.DONE] * 2
    assert [stage.verify() for stage in stages.values()] == [{}, {}]
    places = [set(_places(stage)) for stage in stages.values()]
    sent = {(partition, offset) for _, partition, offset in read_back.consume(first.brokers, first.topic)}
    assert places[0] | places[1] == sent
    assert not places[0] & places[1]

    done = first.command("run", "--available-now", KAFKA__PARTITIONS="0")
    assert done.returncode == ExitCode.CONFIGURATION
    assert "the lake has records of shared/1" in done.stderr
    done = last.command("run", "--available-now", KAFKA__PARTITIONS="2-,70-71")
    assert done.returncode == ExitCode.DONE


def _places(stage: Stage) -> list[tuple[int, int]]:
    rows = read_back.read(stage.lake, "bronze_events", ["partition", "offset"]).to_pylist()
    return [(row["partition"], row["offset"]) for row in rows]


def _partitions(stage: Stage) -> set[int]:
    return {partition for partition, _ in _places(stage)}
