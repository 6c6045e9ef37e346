"""One record that no memory would hold stops nobody, and one that memory holds lands whole, in a file of its own."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from producer.delivery import producer_settings
from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
GIANT = bytes(300 << 20)  # a broker counts it compressed: 30 KiB
LARGE = b"\x07" + bytes(40 << 20)
AT = 20
MOST_RSS = 2 << 30  # bytes of app, JVM and workers together


def send(stage: Stage, *values: bytes) -> None:
    sender = Producer(
        {"bootstrap.servers": stage.brokers, "compression.type": "zstd", "message.max.bytes": 1_000_000_000}
    )
    for value in values:
        sender.produce(stage.topic, value)
    assert sender.flush(60) == 0


def fill(stage: Stage, *values: bytes) -> None:
    """The values between small records, from offset `AT` of the only partition."""
    stage.produce(AT, partitions="1")
    send(stage, *values)
    stage.produce(AT, seed="8")


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """The most memory of the process and all below it, in bytes, as the only entry."""
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            try:
                tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            except psutil.Error:
                continue
            most[0] = max(most[0], sum(map(_rss, tree)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def drain(stage: Stage, **settings: str) -> tuple[int, int]:
    """(exit code, most memory in bytes)."""
    app = stage.start("--available-now", **settings)
    try:
        with watched(app.pid) as most:
            return app.wait(300), most[0]
    finally:
        kill(app)


@pytest.mark.nightly
def test_a_record_that_no_memory_holds_stops_nobody(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="1g", SCHEMAS__UNKNOWN_ID_GRACE_S="1")
    fill(stage, GIANT)
    code, most = drain(stage)
    assert code == ExitCode.DONE
    assert most < MOST_RSS
    bronze = read_back.read(stage.lake, "bronze_events")
    assert sorted(bronze["offset"].to_pylist()) == [*range(2 * AT + 1)]
    kept = ["offset", "value", "omitted_bytes", "omitted_sha256"]
    expected = [dict(zip(kept, (AT, None, len(GIANT), _digest(GIANT)), strict=True))]
    assert [row for row in bronze.select(kept).to_pylist() if row["omitted_bytes"]] == expected
    refused = read_back.read(stage.lake, "quarantine_events")
    assert refused.select(kept).to_pylist() == expected
    assert refused["cause"].to_pylist() == ["record_size"]
    assert sum(read_back.read(stage.lake, name).num_rows for name in read_back.tables(stage.lake, "silver_")) == 2 * AT
    assert stage.verify() == {}
    stage.produce(AT, seed="9")
    assert stage.run("--available-now") == ExitCode.DONE
    assert stage.verify() == {}
    assert stage.command("replay").returncode == ExitCode.DONE
    assert stage.verify() == {}


@pytest.mark.nightly
def test_a_record_that_memory_holds_lands_whole_in_a_file_of_its_own(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="1g")
    fill(stage, LARGE)
    code, most = drain(stage)
    assert code == ExitCode.DONE
    assert most < MOST_RSS
    files = (stage.lake / "bronze_events").glob("*.parquet")
    found = {tuple(rows["offset"].to_pylist()): rows for rows in map(pq.read_table, files)}
    assert found[(AT,)]["value"].to_pylist() == [LARGE]
    assert sorted(offset for offsets in found for offset in offsets) == [*range(2 * AT + 1)]
    assert stage.verify() == {}


@pytest.mark.nightly
def test_the_limit_may_change_between_starts(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="1g")
    fill(stage, LARGE)
    assert drain(stage, BATCH__MAX_RECORD_BYTES="1000000")[0] == ExitCode.DONE
    send(stage, LARGE)
    assert drain(stage)[0] == ExitCode.DONE
    rows = read_back.read(stage.lake, "bronze_events").sort_by("offset").to_pylist()
    sizes = {row["offset"]: (row["omitted_bytes"], row["value"] == LARGE) for row in (rows[AT], rows[-1])}
    assert sizes == {AT: (len(LARGE), False), 2 * AT + 1: (None, True)}
    for most in ("1000000", str(64 << 20)):
        assert stage.verify(BATCH__MAX_RECORD_BYTES=most) == {}


@pytest.mark.nightly
def test_many_topics_and_partitions_large_records_and_headers_stay_within_the_same_memory(
    new_stage: Callable[..., Stage],
) -> None:
    stage = new_stage(SPARK__DRIVER_MEMORY="1g", TABLES__MAX_TABLES="10")
    stage.produce(AT, partitions="64")
    topics = [stage.topic, *(f"{stage.topic}_{number}" for number in range(11))]
    admin = AdminClient({"bootstrap.servers": stage.brokers})
    for made in admin.create_topics([NewTopic(name, 64) for name in topics[1:]]).values():
        made.result(30)
    options = producer_settings(patience=60) | {"message.max.bytes": 2_000_000}
    sender = Producer({"bootstrap.servers": stage.brokers, **options})
    sent: dict[tuple[str, int], list[str]] = {}

    def refused(error: object, _: object) -> None:
        assert error is None

    for number in range(768 * 4):
        place = topics[number % 12], number // 12 % 64
        value = b"\x07" + os.urandom(1_000_000 if number % 50 == 1 else 1000)  # no frame: quarantined, byte for byte
        headers = {"trace": os.urandom(100_000 if number % 97 == 0 else 16)}
        sender.produce(place[0], value, partition=place[1], headers=headers, on_delivery=refused)
        sender.poll(0)
        sent.setdefault(place, []).append(_digest(value))
    assert sender.flush(60) == 0
    code, most = drain(stage, KAFKA__TOPIC=",".join(topics))
    assert code == ExitCode.DONE
    assert most < MOST_RSS
    quarantined = read_back.read(stage.lake, "quarantine_events").sort_by("offset").to_pylist()
    found: dict[tuple[str, int], list[str]] = {}
    for row in (row for row in quarantined if len(row["value"]) > 1000):  # not what the demo's producer breaks itself
        found.setdefault((row["topic"], row["partition"]), []).append(_digest(row["value"]))
    differing = {place: (found.get(place), values) for place, values in sent.items() if found.get(place) != values}
    assert not differing
    assert found.keys() == sent.keys()
    assert stage.verify(KAFKA__TOPIC=",".join(topics)) == {}
