"""Workers fetch a record about once, in whatever order Spark gives them its tasks."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.benches import topics
from scripts.benches.shape import Shape
from scripts.local.kafka import Kafka
from scripts.local.registry import Registry
from scripts.local.spark_cluster import SparkMaster, SparkWorker
from tests.chaos.proxy import Proxy
from tests.chaos.scenarios.broker import BehindProxy
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(1200)]
SHAPE = Shape(records=170_000, message="rich", games=1, partitions=4)
SENT_BYTES = 32 << 10  # a broker cuts a batch that does not fit its answer, and sends it again
FIRST, BATCH = 40_000, 10_000  # of the first records some are read twice, to learn their tables
# Up to 20 MiB of what is left when the count begins are fetched already. If two workers read a partition by turns, each
# of them fetches all of it.
LEAST, MOST = 0.3, 1.0


@pytest.fixture
def kafka_behind_proxy(tmp_path: Path) -> Iterator[BehindProxy]:
    kafka = BehindProxy(tmp_path / "behind-proxy")
    kafka.proxy = Proxy(kafka.port)
    with kafka.proxy, kafka:
        yield kafka


def size_of(kafka: Kafka, topic: str) -> int:
    return sum(path.stat().st_size for path in (kafka.folder / "data").glob(f"{topic}-*/*.log"))


@pytest.mark.parametrize(
    ("where", "tasks"),
    [("local", 1), ("local", 2), ("cluster", 1), ("cluster", 2)],
)
def test_two_workers_fetch_a_record_once(
    where: str, tasks: int, tmp_path: Path, kafka_behind_proxy: BehindProxy, registry: Registry
) -> None:
    kafka = kafka_behind_proxy
    alone = "100" if tasks > 1 else str(2 * BATCH)
    small = {
        "BATCH__SINGLE_TASK_BELOW": alone,
        "BATCH__MAX_RECORDS": str(BATCH),
        "BATCH__INTERVAL_S": "0",
        "GOLD__INTERVAL_S": "600",
    }
    with ExitStack() as servers:
        if where == "cluster":
            master = servers.enter_context(SparkMaster(tmp_path / "cluster"))
            for number in (1, 2):
                servers.enter_context(SparkWorker(master, number))
            own = {name.removeprefix("PROTOLAKE_"): value for name, value in master.settings().items()}
        else:
            own = {"SPARK__MASTER": "local[2,4]"}
        stage = Stage(tmp_path, kafka, registry, "fetched_once", KAFKA__BROKERS=kafka.through, **small, **own)
        topics.fill(kafka.through, registry.url, stage.topic, SHAPE, batch_bytes=SENT_BYTES)
        app = stage.start()
        try:
            wait_until(lambda: (stage.status().get("bronze") or 0) >= FIRST, "the first records", 400)
            read, fetched = stage.status()["bronze"], kafka.proxy.returned
            wait_until(lambda: stage.status().get("bronze") == SHAPE.records, "all records", 400)
            fetched = kafka.proxy.returned - fetched
        finally:
            kill(app)
    stored = size_of(kafka, stage.topic) * (SHAPE.records - read) / SHAPE.records
    print(
        f"{where}, {tasks}: {fetched / stored:.2f} bytes fetched for each byte of the topic, {stored / 2**20:.0f} MiB"
    )
    assert LEAST <= fetched / stored <= MOST
