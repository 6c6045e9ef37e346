"""R9: records that Kafka loses before they are ingested: expired, or their topic deleted and recreated, smaller or
larger.

The app exits with 65 and names the offset ranges; with --accept-loss it records them and continues.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_app.lake.files.failpoints import POINTS
from tests.chaos import read_back
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.scenarios.failpoints import OF_LOSSES
from tests.chaos.stage import Stage, kill, wait_until

DONE, LOSS = 0, 65
PARTITIONS = 3
RECORDS = 900
REFUSES_S = 60.0

Range = tuple[int, int, int | None, str]  # partition, first, end, reason


@dataclass
class Tally:
    """The results of the losses."""

    ranges: int = 0
    offsets: int = 0
    noticed_s: list[float] = field(default_factory=list)
    faults: dict[str, object] = field(default_factory=dict)


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Each way to lose records, `times` times, found at the start or by the running app, in turn."""
    tally = Tally()
    ways = (_expire, _make_smaller, _make_larger)
    for number in range(size.times):
        for way in ways:
            name = f"{way.__name__.strip('_')} {number}"
            try:
                _lose(lab, way, (number + (way is _make_larger)) % 2 == 1, dice, tally)
            except AssertionError as fault:
                tally.faults[name] = str(fault)
    figures = {
        "ranges": tally.ranges,
        "offsets_lost": tally.offsets,
        "noticed_while_running_after_s_at_most": max(tally.noticed_s, default=0.0),
    }
    return Outcome(size.times * len(ways), tally.faults, figures)


def _lose(lab: Lab, way: Any, running: bool, dice: Random, tally: Tally) -> None:
    """One loss on its own stage; exactly the remaining records are ingested."""
    stage = lab.stage(BATCH__INTERVAL_S="0", GOLD__INTERVAL_S="1", FAILPOINTS="on")
    admin = AdminClient({"bootstrap.servers": stage.brokers})
    stage.produce(RECORDS, partitions=str(PARTITIONS))
    assert stage.drain()[-1] == DONE
    taken, old = _ends(stage), _topic_id(stage, admin)
    lost = _while_running(stage, admin, way, dice, tally) if running else way(stage, admin, dice)
    code = stage.run("--available-now")
    assert code == LOSS, f"ended with {code}: {stage.lines()[-1]}"
    for partition, first, end, reason in lost:
        words = f"{stage.topic}/{partition} {first} to {'unknown' if end is None else end} ({reason.replace('_', ' ')})"
        assert words in stage.lines()[-1], f"{words} is not in {stage.lines()[-1]}"
    assert stage.lines()[-1].count(f"{stage.topic}/") == len(lost), f"more than {lost}: {stage.lines()[-1]}"
    if not running:
        _die_accepting(stage, dice)
    code = stage.run("--available-now", "--accept-loss")
    assert code == DONE, f"ended with {code}: {stage.lines()[-1]}"
    assert _written_off(stage) == sorted(lost), f"wrote {_written_off(stage)} instead of {lost}"
    faults = _verify(stage, old, taken, _topic_id(stage, admin))
    assert not faults, json.dumps(faults, default=str)
    tally.ranges += len(lost)
    tally.offsets += sum(end - first for _, first, end, _ in lost if end is not None)


def _while_running(stage: Stage, admin: AdminClient, way: Any, dice: Random, tally: Tally) -> list[Range]:
    """The same under a running app that is stopped (SIGSTOP) meanwhile: after it continues it has to detect the
    loss."""
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("state") == "running", "the start")
        os.killpg(app.pid, signal.SIGSTOP)
        lost: list[Range] = way(stage, admin, dice)
        os.killpg(app.pid, signal.SIGCONT)
        began = time.monotonic()
        code = app.wait(REFUSES_S)
        tally.noticed_s.append(round(time.monotonic() - began, 1))
        assert code == LOSS, f"ended with {code} while it ran: {stage.lines()[-1]}"
        return lost
    finally:
        kill(app)


def _expire(stage: Stage, admin: AdminClient, dice: Random) -> list[Range]:
    """Delete records of some partitions up to an offset between the ingested end and the end of the log."""
    taken = _ends(stage)
    stage.produce(RECORDS, seed=str(dice.randrange(10_000)))
    ends, lost = _ends(stage), []
    for partition in dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS)):
        upto = dice.randint(taken[partition] + 1, ends[partition])
        _wait(admin.delete_records([TopicPartition(stage.topic, partition, upto)]))
        lost.append((partition, taken[partition], upto, "expired"))
    return sorted(lost)


def _make_smaller(stage: Stage, admin: AdminClient, dice: Random) -> list[Range]:
    return _make_again(stage, admin, dice, RECORDS // 3)


def _make_larger(stage: Stage, admin: AdminClient, dice: Random) -> list[Range]:
    """Grown past the old offsets: only the topic's id shows the loss."""
    return _make_again(stage, admin, dice, RECORDS * 3)


def _make_again(stage: Stage, admin: AdminClient, dice: Random, records: int) -> list[Range]:
    taken = _ends(stage)
    old = _topic_id(stage, admin)
    _wait(admin.delete_topics([stage.topic], operation_timeout=30))
    wait_until(lambda: stage.topic not in admin.list_topics(timeout=10).topics, "the end of the topic")
    _wait(admin.create_topics([NewTopic(stage.topic, PARTITIONS, 1)]))
    wait_until(lambda: _topic_id(stage, admin) not in (None, old), "the new topic")
    stage.produce(records, seed=str(dice.randrange(10_000)))
    return [(partition, taken[partition], None, "made_again") for partition in range(PARTITIONS)]


def _die_accepting(stage: Stage, dice: Random) -> None:
    """Arm one of the failpoints of accepting a loss."""
    stage.arm([dice.choice([point for point in POINTS if point.startswith(OF_LOSSES)])])
    code = stage.run("--available-now", "--accept-loss")
    assert code == -signal.SIGKILL, f"ended with {code} where it should have died: {stage.unmet()}"


def _written_off(stage: Stage) -> list[Range]:
    rows = read_back.read(stage.lake, "lost_events").to_pylist()
    return sorted((row["partition"], row["first"], row["end"], row["reason"]) for row in rows)


def _verify(stage: Stage, old: str | None, taken: list[int], new: str | None) -> dict[str, object]:
    """Compare by (topic id, partition, offset): the tables have exactly the records that were ingested before the loss
    and those that Kafka has now, each once."""
    truth = read_back.consume(stage.brokers, stage.topic)
    expected: dict[tuple[str | None, int, int], str | None]
    expected = {(old, partition, offset): None for partition, end in enumerate(taken) for offset in range(end)}
    expected |= {(new, partition, offset): value for (_, partition, offset), value in truth.items()}
    bronze = read_back.read(stage.lake, "bronze_events", ["topic_id", "partition", "offset", "value"]).to_pylist()
    landed = Counter((row["topic_id"], row["partition"], row["offset"]) for row in bronze)
    altered = [
        row["offset"]
        for row in bronze
        if expected.get((row["topic_id"], row["partition"], row["offset"]))
        not in (None, read_back.digest(row["value"]))
    ]
    placed: Counter[tuple[str, int, int]] = Counter()
    for name in [*read_back.tables(stage.lake, "silver_"), "quarantine_events", "deferred_events"]:
        mark = "_" if name.startswith("silver_") else ""
        columns = [f"{mark}{column}" for column in ("topic_id", "partition", "offset")]
        placed.update(
            tuple(row.values()) for row in read_back.read(stage.lake, name, columns).select(columns).to_pylist()
        )
    found = {
        "lost": sorted(expected.keys() - landed.keys())[:3],
        "phantom": sorted(landed.keys() - expected.keys())[:3],
        "doubled": [identity for identity, count in landed.items() if count > 1][:3],
        "misplaced": list((landed - placed) + (placed - landed))[:3],
        "altered": altered[:3],
        "gold": read_back.wrong_gold(stage.lake),
    }
    return {name: faults for name, faults in found.items() if faults}


def _ends(stage: Stage) -> list[int]:
    consumer = Consumer({"bootstrap.servers": stage.brokers, "group.id": "ends"})
    try:
        places = [TopicPartition(stage.topic, partition) for partition in range(PARTITIONS)]
        return [int(consumer.get_watermark_offsets(place, timeout=20)[1]) for place in places]
    finally:
        consumer.close()


def _topic_id(stage: Stage, admin: AdminClient) -> str | None:
    [answer] = admin.describe_topics(TopicCollection([stage.topic])).values()
    try:
        return str(answer.result().topic_id)
    except KafkaException:
        return None


def _wait(futures: Any) -> None:
    for future in futures.values():
        future.result(60)
