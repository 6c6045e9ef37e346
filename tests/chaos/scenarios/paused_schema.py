"""The records of one game wait for a decision about their schema: the other games stay as fresh as they are without,
and once a person has decided, each record that waited comes into silver once, although the app is killed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import message_factory

from producer.delivery import producer_settings
from scripts.pages import compile_text
from spark_app.protobuf.decode.google_parser import load_files
from tests.chaos import read_back
from tests.chaos.ages import summary, watch
from tests.chaos.flow import Flow
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.scenarios.failpoints import GAMES
from tests.chaos.stage import Stage, kill, wait_for, wait_until

RATE = 500  # records/s of all other games
WARM_S = 15.0
SECONDS = 45.0  # for which the game's records are sent, each time
SLACK_S = 10.0
WITHOUT = 3  # times before its schema changes
TRIAL = "trial"
FIELDS = ("score", "points")  # of version 1 and 2
TEXT = 'syntax = "proto3"; message Trial { string game_name = 1; string gamer_id = 2; int64 %s = 3; }'
PAUSING = {"SCHEMAS__CHANGES": '{"rename": "pause"}', "BATCH__MAX_RECORDS": "5000"}
KILL_S = 8.0  # after a start, at most
LATE = 1.5  # times the worst p99 without: a busy machine is no fault


class Trials:
    """Sends records of the game, by both versions of its schema."""

    def __init__(self, stage: Stage, registry: str):
        self._stage = stage
        self._subject = f"{stage.topic}-trial"
        self._client = SchemaRegistryClient({"url": registry})
        self._client.set_compatibility(self._subject, "NONE")
        self._producer = Producer({"bootstrap.servers": stage.brokers, **producer_settings(patience=60)})
        self.sent: dict[str, tuple[int, str]] = {}  # gamer -> version, value

    def register(self, version: int) -> int:
        text = TEXT % FIELDS[version - 1]
        found: int = self._client.register_schema(self._subject, Schema(text, "PROTOBUF"))
        return found

    def send(self, version: int, records: int, seconds: float) -> None:
        """At a steady rate."""
        frame = bytes(SchemaId("PROTOBUF", schema_id=self.register(version), message_indexes=[0]).id_to_bytes())
        pool, _ = load_files(compile_text(TEXT % FIELDS[version - 1]))
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Trial"))
        began = time.monotonic()
        for number in range(records):
            gamer = f"{version}-{len(self.sent)}"
            values: dict[str, Any] = {"game_name": TRIAL, "gamer_id": gamer, FIELDS[version - 1]: number}
            self._producer.produce(self._stage.topic, frame + kind(**values).SerializeToString())
            self.sent[gamer] = version, str(number)
            self._producer.poll(0)
            time.sleep(max(0.0, began + seconds * number / records - time.monotonic()))
        assert self._producer.flush(60) == 0


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Send the game's records three times by its first version and once by its second, which waits; decide; kill."""
    stage = lab.stage(BATCH__INTERVAL_S="0.3", GOLD__INTERVAL_S="2", **PAUSING)
    trials, share = Trials(stage, lab.registry.url), size.records
    stage.produce(len(GAMES) * 100, games=",".join(GAMES))
    flow = Flow(stage)
    try:
        flow.await_start()
        with ThreadPoolExecutor(1) as pool:
            records = int(RATE * (WARM_S + (WITHOUT + 1) * SECONDS + SLACK_S))
            others = pool.submit(stage.produce, records, games=",".join(GAMES), rate=str(RATE))
            trials.send(1, 100, WARM_S)  # makes its tables
            without = [_ages(stage, trials, 1, share) for _ in range(WITHOUT)]
            during = _ages(stage, trials, 2, share)
            others.result()
        wait_until(lambda: stage.status()["deferred"] == share, "the wait of all records", 120.0)
        schema = trials.register(2)
        assert stage.command("accept-schema", str(schema), "--as", "alias").returncode == 0
        began, kills = time.monotonic(), 0
        while kills < size.times:
            wait_for(flow.app, KILL_S * dice.random())
            kill(flow.app)
            kills += 1
            flow.restart()
        wait_until(lambda: _has_let_all_in(flow), "the end of the wait")
        seconds = time.monotonic() - began
        faults = flow.finish()
    finally:
        kill(flow.app)
    worst = max(ages["p99"] for ages in without)
    if during["p99"] > LATE * worst:
        faults["age"] = {"without": without, "during": during}
    faults |= _differences(stage, trials)
    figures = {
        "records_that_waited": share,
        **{f"age_of_others_s_{name}": age for name, age in during.items()},
        "age_of_others_s_p99_without": worst,
        "kills": kills,
        "in_silver_after_s": round(seconds, 1),
    }
    return Outcome(kills, faults, figures)


def _has_let_all_in(flow: Flow) -> bool:
    running = {"pid": flow.app.pid, "state": "running", "deferred": 0}
    return running.items() <= flow.stage.status().items()


def _ages(stage: Stage, trials: Trials, version: int, records: int) -> dict[str, float]:
    """Ages of the other games' rows while the game sends records."""
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(trials.send, version, records, SECONDS)
        ages = watch(stage.lake, GAMES, sending.done)
        sending.result()
    return summary(ages)


def _differences(stage: Stage, trials: Trials) -> dict[str, object]:
    """What was sent, and what is in silver: each record once, both versions in one column."""
    rows = read_back.read(stage.lake, f"silver_{TRIAL}_events").select(["gamer_id", "score"]).to_pylist()
    found = sorted((row["gamer_id"], str(row["score"])) for row in rows)
    expected = sorted((gamer, value) for gamer, (_, value) in trials.sent.items())
    return {} if found == expected else {"trials": {"found": len(found), "sent": len(expected)}}
