"""The audit on real parts: beside the running app, after a kill, of transactions, of what Kafka no longer has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import DeltaTable

from scripts.local.kafka import Kafka
from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]


def audited(stage: Stage, *arguments: str) -> tuple[int, dict[str, Any]]:
    """(exit code, verdict)."""
    done = stage.command("audit", "--json", *arguments)
    assert done.stdout, (done.returncode, done.stderr)
    return done.returncode, json.loads(done.stdout)


def send_transactions(stage: Stage) -> None:
    """Records with headers of a transaction that is committed, between two that are aborted."""
    producer = Producer({"bootstrap.servers": stage.brokers, "transactional.id": f"audit-{stage.topic}"})
    producer.init_transactions(20)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for value in (b"no frame", None, b""):
            producer.produce(stage.topic, value, key=b"k%d" % number, headers=[("a", b"1"), ("b", None), ("a", b"")])
        producer.flush(20)
        end(20)


@pytest.mark.nightly
def test_a_lake_is_audited_while_it_grows_and_after_a_kill(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    stage = new_stage(
        SCHEMAS__UNKNOWN_ID_GRACE_S="1", BATCH__INTERVAL_S="0.2", BATCH__MAX_RECORDS="3000", GOLD__INTERVAL_S="1"
    )
    acks = tmp_path / "acks"
    demo = {"schema_version": "3", "num_versions": "3", "poison": "0.02", "partitions": "3", "acks": str(acks)}
    stage.produce(15_000, **demo)
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("batch") is not None, "a batch")
        code, verdict = audited(stage)
        assert (code, verdict["named"]) == (ExitCode.DONE, {}), verdict
    finally:
        kill(app)
    send_transactions(stage)
    stage.produce(5_000, seed="9", **demo)
    assert stage.drain() == [ExitCode.DONE]
    code, verdict = audited(stage, "--acks", str(acks))
    assert (code, verdict["named"], verdict["left"], verdict["notes"]) == (ExitCode.DONE, {}, 0, {}), verdict
    assert verdict["records"] == 20_003
    assert stage.verify() == {}

    admin = AdminClient({"bootstrap.servers": stage.brokers})
    for done in admin.delete_records([TopicPartition(stage.topic, 0, 100)]).values():
        done.result(20)
    code, verdict = audited(stage, "--acks", str(acks))
    assert (code, verdict["named"], verdict["records"]) == (ExitCode.DONE, {}, 20_003), verdict
    assert verdict["notes"][f"offsets of {stage.topic}/0 are no longer in Kafka"] == 100

    DeltaTable(str(stage.lake / "silver_uno_events")).delete("_partition = 1 AND _offset < 200")
    code, verdict = audited(stage)
    assert code == ExitCode.LOSS
    assert {wrong["table"] for wrong in verdict["named"]["lost"]} == {"silver_uno_events"}
    assert {wrong["what"].split("@")[0] for wrong in verdict["named"]["lost"]} == {f"{stage.topic}/1"}
    assert verdict["named"].keys() == {"lost", "gold"}


def test_servers_that_are_not_there_end_with_their_code(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(10)
    assert stage.drain() == [ExitCode.DONE]
    done = stage.command("audit", KAFKA__BROKERS="127.0.0.1:1")
    assert (done.returncode, "127.0.0.1:1 did not answer" in done.stderr) == (ExitCode.UNREACHABLE, True)


def test_commands_ask_the_servers_of_the_last_start_and_never_another_kafka(
    new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = new_stage(EXPECTATIONS='{"plausible": {"check": "gamer_id <> \'\'", "action": "warn"}}')
    stage.produce(200)
    assert stage.drain() == [ExitCode.DONE]
    bare = ("KAFKA__BROKERS", "KAFKA__TOPIC", "REGISTRY__URL", "EXPECTATIONS")
    for command, said in (
        ("audit", "clean"),
        ("doctor", "nothing is wrong"),
        ("expect", "plausible"),
        ("rebuild", "rows"),
    ):
        done = stage.command(command, *(["check"] if command == "expect" else []), without=bare)
        assert (done.returncode, said in done.stdout) == (ExitCode.DONE, True), (done.stdout, done.stderr)
        assert f"protolake: kafka {stage.brokers} and registry http" in done.stderr
    with Kafka(tmp_path / "other") as other:
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        admin.create_topics([NewTopic(stage.topic, 1)])[stage.topic].result(20)
        done = stage.command("audit", KAFKA__BROKERS=other.bootstrap)
        assert (done.returncode, "or this is another Kafka" in done.stdout) == (ExitCode.DONE, True), done.stdout
        done = stage.command("doctor", KAFKA__BROKERS=other.bootstrap)
        assert (done.returncode, "or kafka.brokers is another Kafka" in done.stdout) == (ExitCode.LOSS, True)
