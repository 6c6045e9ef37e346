"""./scripts/run with a lake in a bucket: it starts the object store, and single commands find it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.local import lakes
from scripts.local.artifacts import ROOT
from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.options import TOPIC, parse
from scripts.local.ports import free_ports
from scripts.local.registry import Registry
from spark_app.model.errors import ExitCode
from tests.chaos import read_back

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
RECORDS = 2000


def call(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.nightly
def test_a_stack_with_its_own_object_store_is_read_back_record_by_record(tmp_path: Path) -> None:
    address, state, acks = f"s3://games/{tmp_path.name}", tmp_path / "state", tmp_path / "acks.jsonl"
    kafka_port, registry_port, store_port = free_ports(3)
    arguments = ["--lake", address, "--state", str(state), "--kafka-port", str(kafka_port), "--page-port", "0"]
    arguments += ["--registry-port", str(registry_port), "--object-store-port", str(store_port)]
    producer = {"PRODUCER_RATE": "0", "PRODUCER_ACKS": str(acks), "AWS_PROFILE": "of something else"}
    try:
        for turn in (1, 2):  # the second one goes on with the lake of the first
            done = call("scripts.local", *arguments, "--records", str(RECORDS), **producer)
            assert done.returncode == 0, done.stderr
            assert f"all {RECORDS:,} records are in the lake" in done.stdout
            assert "page http://127.0.0.1:" in done.stdout
            assert f"bronze {turn * RECORDS:,}" in done.stdout
        ended = [line.split()[0] for line in done.stderr.splitlines() if " ended after " in line]
        assert ended == ["page", "spark", "kafka", "registry", "objects"]
        down = call("scripts.local.command", "status", "--lake", address)
        assert (down.returncode, f"start it with ./scripts/run --lake {address}" in down.stderr) == (69, True)
        with (
            Kafka(state, kafka_port) as kafka,
            Registry(state, registry_port) as registry,
            ObjectStore(state, store_port, "games"),
        ):
            addresses = {"PROTOLAKE_KAFKA__BROKERS": kafka.bootstrap, "PROTOLAKE_REGISTRY__URL": registry.url}
            shown = call("scripts.local.command", "status", "--lake", address)
            assert "silver" in shown.stdout, shown.stderr
            audit = call(
                "scripts.local.command", "audit", "--json", "--acks", str(acks), "--lake", address, **addresses
            )
            assert audit.returncode == ExitCode.DONE, audit.stdout + audit.stderr
            verdict = json.loads(audit.stdout)
            assert (verdict["named"], verdict["left"]) == ({}, 0)
            bronze = read_back.read(parse(arguments).address, "bronze_events", ["topic", "partition", "offset"])
            landed = Counter(read_back.identities(bronze))
            assert landed == Counter(dict.fromkeys(read_back.consume(kafka.bootstrap, TOPIC), 1))
            assert len(landed) == 2 * RECORDS
    finally:
        lakes.noted(address).unlink(missing_ok=True)  # the notes are those of the whole clone
