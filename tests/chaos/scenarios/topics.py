"""Changes of a topic: more partitions, transactions that are aborted or left open, compaction."""

from __future__ import annotations

import time
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from confluent_kafka.cimpl import NewTopic

from tests.chaos.flow import flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage

FEW, MANY = 3, 12
SAMPLE = 500
PER_TRANSACTION = 100
ABORTED = 0.1
NOTICED_S = 120.0
COMPACTED_S = 120.0
KEYS = 50


def partitions(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Topics that get partitions while they are read."""
    faults: dict[str, object] = {}
    for number in range(size.times):
        stage = lab.stage()
        stage.produce(size.records // size.times, partitions=str(FEW))
        with flowing(stage) as flow:
            admin = AdminClient({"bootstrap.servers": stage.brokers})
            admin.create_partitions([NewPartitions(stage.topic, MANY)])[stage.topic].result()
            stage.produce(size.records // size.times, seed=str(dice.randrange(1000)), partitions=str(MANY))
            flow.await_units(3)
            faults |= {f"topic {number + 1}: {what}": found for what, found in flow.finish().items()}
    return Outcome(size.times, faults, {"records": 2 * size.records})


def transactions(lab: Lab, size: Size, dice: Random) -> Outcome:
    """A topic with transactions, some aborted; each time one is left open the app must report it, and continue when it
    ends."""
    stage = lab.stage()
    stage.produce(SAMPLE, partitions="1")
    values = _values(stage)
    noticed, aborted = [], 0
    with flowing(stage) as flow:
        for number in range(size.times):
            aborted += _send(stage, values, size.records // size.times, dice)
            hanging = _producer(stage, f"hanging-{number}")
            hanging.begin_transaction()
            hanging.produce(stage.topic, values[0])
            hanging.flush()
            _send(stage, values, PER_TRANSACTION, dice)
            began = time.monotonic()
            while not stage.status().get("held_back") and time.monotonic() - began < NOTICED_S:
                time.sleep(0.5)
            noticed.append(time.monotonic() - began)
            if not stage.status().get("held_back"):
                flow.faults[f"transaction {number + 1}"] = f"not noticed in {NOTICED_S:.0f} s"
            hanging.abort_transaction()
            if flow.await_units() > NOTICED_S:
                flow.faults[f"transaction {number + 1} ended"] = "no unit came"
        faults = flow.finish()
    figures = {"records": size.records, "aborted_records": aborted, "noticed_after_s_at_most": max(noticed)}
    return Outcome(size.times, faults, figures)


def compaction(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Compacted topics, half of whose records are tombstones: gaps in the offsets, and no value."""
    faults: dict[str, object] = {}
    gaps = tombstones = 0
    for number in range(size.times):
        source, stage = lab.stage(), lab.stage()
        source.produce(SAMPLE, partitions="1")
        admin = AdminClient({"bootstrap.servers": stage.brokers})
        policy = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.001"}
        admin.create_topics([NewTopic(stage.topic, 1, 1, config=policy)])[stage.topic].result()
        _send_keyed(stage, _values(source), size.records // size.times, dice)
        gaps += _await_gaps(stage, size.records // size.times)
        _keep_all(admin, stage.topic)
        stage.produce(100, partitions="1")  # sets up the subject; these records are read, too
        tombstones += sum(value is None for value in _read(stage))
        codes = stage.drain()
        faults |= {f"topic {number + 1}: drain": codes} if codes[-1] != 0 else {}
        faults |= {f"topic {number + 1}: {what}": found for what, found in stage.verify().items()}
    if not gaps or not tombstones:
        faults["compaction"] = "left no gap or no tombstone"
    return Outcome(size.times, faults, {"records": size.records, "compacted_away": gaps, "tombstones": tombstones})


def _read(stage: Stage) -> list[bytes | None]:
    """The readable values of partition 0."""
    options = {"bootstrap.servers": stage.brokers, "group.id": "campaign", "isolation.level": "read_committed"}
    consumer = Consumer(options | {"enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(stage.topic, 0, 0)])
    found: list[bytes | None] = []
    while (message := consumer.poll(20)) is not None and not message.error():
        found.append(message.value())
    consumer.close()
    return found


def _values(stage: Stage) -> list[bytes]:
    return [value for value in _read(stage) if value]


def _producer(stage: Stage, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": stage.brokers, "transactional.id": f"{stage.topic}-{name}"})
    producer.init_transactions(30)
    return producer


def _send(stage: Stage, values: list[bytes], records: int, dice: Random) -> int:
    """Transactions with copies of the values; returns the number of records in aborted ones."""
    producer, aborted = _producer(stage, "all"), 0
    for _ in range(max(1, records // PER_TRANSACTION)):
        producer.begin_transaction()
        for _ in range(PER_TRANSACTION):
            producer.produce(stage.topic, dice.choice(values))
        producer.flush()
        if dice.random() < ABORTED:
            producer.abort_transaction()
            aborted += PER_TRANSACTION
        else:
            producer.commit_transaction()
    return aborted


def _send_keyed(stage: Stage, values: list[bytes], records: int, dice: Random) -> None:
    producer = Producer({"bootstrap.servers": stage.brokers})
    for number in range(records):
        value = dice.choice(values) if dice.random() < 0.5 else None
        producer.produce(stage.topic, value, key=str(dice.randrange(KEYS)))
        if number % 1000 == 0:
            producer.flush()
            time.sleep(0.25)  # the next record begins a new segment, because only closed segments are compacted
    producer.flush()


def _await_gaps(stage: Stage, records: int) -> int:
    """The number of records that compaction has removed, once it has removed some."""
    deadline = time.monotonic() + COMPACTED_S
    while (left := len(_read(stage))) == records and time.monotonic() < deadline:
        time.sleep(2)
    return records - left


def _keep_all(admin: AdminClient, topic: str) -> None:
    """Stop compaction: otherwise topic and tables would be compared at different times."""
    change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result()
    time.sleep(1)
