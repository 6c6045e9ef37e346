"""Records whose value was left out, from bronze: no replay, rebuild or later schema makes anything else of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from spark_app.audit import audit
from tests.spark.parts import ORIGIN, TOPIC, Parts, events
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_replay import replay
from tests.support.frames import batch_of
from tests.support.lakes import Batches

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c")]
LIMIT = {"max_record_bytes": 500}
GIANT = events(1, [("rummy", "g" * 1_000)])[0]
QUARANTINE = "quarantine_events"


def values_of(first: int, version: int = 1) -> list[bytes | None]:
    return [*events(version, PLAYERS), GIANT, None, b"no frame"] if first == 0 else [GIANT, *events(version, PLAYERS)]


def check(parts: Parts) -> None:
    """What a reader with the whole values finds wrong."""
    kafka = Batches()
    kafka.id = ORIGIN.topic_ids[TOPIC]
    kafka.batches = [batch_of(values_of(first), first, TOPIC) for first in (0, 6)]
    parts.gold.run()
    verdict = audit(parts.settings, source=kafka)
    assert (verdict.faults(), dict(verdict.notes), verdict.records) == ({}, {}, 10)


def build(new_parts: NewParts, *, known: bool = True, land_only: bool = False) -> Parts:
    """Offsets 3 and 6 of ten are giants, 4 is a tombstone, 5 has no frame."""
    parts = new_parts(batch=LIMIT)
    if known:
        parts.learn(1)
    for first in (0, 6):
        report = parts.take(values_of(first), replace(ORIGIN, land_only=land_only))
        assert report.quarantine["record_size"] == 1
    return parts


def giants(parts: Parts, name: str) -> list[tuple[int, object, int, str]]:
    rows = parts.read(name).filter(parts.read(name)["omitted_bytes"].is_not_null()).sort("offset")
    return rows.select("offset", "value", "omitted_bytes", "omitted_sha256").rows()


BOTH = [(offset, None, len(GIANT), hashlib.sha256(GIANT).hexdigest()) for offset in (3, 6)]


@pytest.mark.nightly
def test_a_replay_leaves_them_where_they_are(new_parts: NewParts) -> None:
    parts = build(new_parts)
    result = replay(parts)
    assert result["refused"] == {"record_size": 2, "frame_magic": 1}
    assert (result["resolved"], result["waiting"]) == ({}, 0)
    assert giants(parts, "bronze_events") == giants(parts, QUARANTINE) == BOTH
    check(parts)


def test_a_rebuild_finds_them_in_their_place_or_puts_them_there(new_parts: NewParts) -> None:
    parts = build(new_parts)
    sound = counts(ask(parts))
    assert sound[QUARANTINE] == {"expected": 3, "present": 3}
    DeltaTable(str(parts.lake.path(QUARANTINE))).delete("offset = 3")
    result = ask(parts)
    assert (counts(result)[QUARANTINE], result["exit_code"]) == ({"expected": 3, "present": 2, "added": 1}, 0)
    assert giants(parts, QUARANTINE) == BOTH
    check(parts)


@pytest.mark.parametrize("land_only", [False, True])
def test_they_do_not_wait(new_parts: NewParts, land_only: bool) -> None:
    """Neither for their schema, nor where all others are only landed."""
    parts = build(new_parts, known=False, land_only=land_only)
    assert not set(parts.read("deferred_events")["offset"]) & {3, 6}
    parts.learn(1)
    while (report := parts.deferred.step()) and report.bronze:
        pass
    assert giants(parts, "bronze_events") == giants(parts, QUARANTINE) == BOTH
    check(parts)
