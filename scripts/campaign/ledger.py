"""Verifies a run: compares an independent read_committed consumer with the tables as delta-rs reads them.

It compares identities (topic, partition, offset) and content, not counts, because two errors can cancel in a sum.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from deltalake import DeltaTable

Identity = tuple[str, int, int]


def consume(brokers: str, topic: str) -> dict[Identity, str]:
    """Every readable record of the topic: identity -> sha256 of its value ("" for a tombstone)."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = list(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    found: dict[Identity, str] = {}
    open_partitions = set(partitions)
    while open_partitions:
        for message in consumer.consume(10_000, timeout=5):
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            if message.error():
                open_partitions.discard(partition)
            else:
                found[(topic, partition, offset)] = digest(message.value())
    consumer.close()
    return found


def digest(value: bytes | None) -> str:
    return "" if value is None else hashlib.sha256(value).hexdigest()


def read(lake: Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """A table, read with delta-rs; an empty one if it does not exist."""
    if not DeltaTable.is_deltatable(str(lake / name)):
        return pa.table({c: [] for c in columns or []})
    return DeltaTable(str(lake / name)).to_pyarrow_table(columns=columns)


def tables(lake: Path, prefix: str) -> list[str]:
    return sorted(p.name for p in lake.iterdir() if p.name.startswith(prefix) and (p / "_delta_log").is_dir())


def identities(table: pa.Table, prefix: str = "") -> list[Identity]:
    columns = [table[f"{prefix}{name}"].to_pylist() for name in ("topic", "partition", "offset")]
    return list(zip(*columns, strict=True))


@dataclass
class Verdict:
    """The differences; empty if there are none."""

    lost: list[Identity] = field(default_factory=list)
    doubled: list[Identity] = field(default_factory=list)
    phantom: list[Identity] = field(default_factory=list)
    altered: list[Identity] = field(default_factory=list)
    misplaced: list[Identity] = field(default_factory=list)
    gold: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, object]:
        return {name: (len(found), found[:3]) for name, found in vars(self).items() if found}


def verify(lake: Path, truth: dict[Identity, str], with_gold: bool = True) -> Verdict:
    """Every record is in bronze once with its bytes, and once in silver, in open quarantine or in deferred, or it is a
    tombstone."""
    verdict = Verdict()
    bronze = read(lake, "bronze_events", ["topic", "partition", "offset", "value"])
    landed = identities(bronze)
    _compare(verdict, Counter(landed), truth)
    for identity, value in zip(landed, bronze["value"].to_pylist(), strict=True):
        if identity in truth and digest(value) != truth[identity]:
            verdict.altered.append(identity)
    placed: Counter[Identity] = Counter()
    for name in tables(lake, "silver_"):
        rows = read(lake, name, ["game_name", "_topic", "_partition", "_offset"])
        found = identities(rows, "_")
        placed.update(found)
        owners = rows["game_name"].to_pylist()
        verdict.misplaced += [i for i, owner in zip(found, owners, strict=True) if f"silver_{owner}_events" != name]
    for name in ("quarantine_events", "deferred_events"):
        placed.update(identities(read(lake, name, ["topic", "partition", "offset"])))
    resolved = Counter(identities(read(lake, "resolved_events", ["topic", "partition", "offset"])))
    refused = Counter(identities(read(lake, "quarantine_events", ["topic", "partition", "offset"])))
    verdict.phantom += list((resolved - refused).keys())  # resolved twice, or never in quarantine
    placed -= resolved
    _compare(verdict, placed, {i: v for i, v in truth.items() if v})
    if with_gold:
        verdict.gold = wrong_gold(lake)
    return verdict


def _compare(verdict: Verdict, found: Counter[Identity], truth: dict[Identity, str]) -> None:
    verdict.lost += [i for i in truth if i not in found]
    verdict.doubled += [i for i, count in found.items() if count > 1]
    verdict.phantom += [i for i in found if i not in truth]


def wrong_gold(lake: Path) -> list[str]:
    """Games whose gold differs from what Polars computes from silver."""
    wrong = []
    for silver in tables(lake, "silver_"):
        name = silver.removeprefix("silver_").removesuffix("_events")
        rows = pl.DataFrame(read(lake, silver, ["gamer_id", "event_timestamp"]))
        expected = gold_of(rows)
        gold = read(lake, f"gold_{name}_player_agg")
        actual = pl.DataFrame(gold).select(expected.columns) if gold.num_rows else pl.DataFrame(schema=expected.schema)
        if not expected.sort("gamer_id").equals(actual.sort("gamer_id")):
            wrong.append(name)
    return wrong


def gold_of(rows: pl.DataFrame, time: str = "event_timestamp") -> pl.DataFrame:
    """The demo's aggregates of silver rows."""
    return rows.group_by("gamer_id").agg(
        pl.len().cast(pl.Int64).alias("session_count"),
        pl.col(time).min().alias("min_timestamp"),
        pl.col(time).max().alias("max_timestamp"),
    )


def schema_id(value: bytes) -> int:
    return int(struct.unpack(">i", value[1:5])[0])
