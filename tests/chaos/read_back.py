"""Reads a topic with a read_committed consumer, and a lake's tables with delta-rs, with none of the app's code."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from deltalake import DeltaTable

from spark_app.lake.files.object_clients import read_credentials
from spark_app.model.address import StorageAddress

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


def read(lake: Path | StorageAddress, name: str, columns: list[str] | None = None) -> pa.Table:
    """A table, read with delta-rs; an empty one if it does not exist."""
    uri, options = f"{_root(lake)}/{name}", _options(lake)
    if not DeltaTable.is_deltatable(uri, options):
        return pa.table({c: [] for c in columns or []})
    return DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=columns)


def _root(lake: Path | StorageAddress) -> str:
    return lake.root if isinstance(lake, StorageAddress) else str(lake)


def _options(lake: Path | StorageAddress) -> dict[str, str]:
    """How delta-rs reaches a bucket."""
    if isinstance(lake, Path) or not lake.scheme:
        return {}
    keys = {name.upper(): text for name, text in read_credentials(lake.credentials_file).items()}
    return {"AWS_ENDPOINT_URL": lake.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": lake.region, **keys}


def tables(lake: Path, prefix: str) -> list[str]:
    return sorted(p.name for p in lake.iterdir() if p.name.startswith(prefix) and (p / "_delta_log").is_dir())


def wrong_events(lake: Path | StorageAddress, last: int) -> dict[str, list[int]]:
    """Units up to `last` that are not exactly once in the table of events, which begins with some unit."""
    rows = read(lake, "pipeline_events", ["kind", "unit"]).to_pylist()
    found = Counter(row["unit"] for row in rows if row["kind"] == "unit")
    missing = [unit for unit in range(min(found), last + 1) if unit not in found] if found else []
    return {"missing": missing, "doubled": [unit for unit, times in found.items() if times > 1]}


def identities(table: pa.Table, prefix: str = "") -> list[Identity]:
    columns = [table[f"{prefix}{name}"].to_pylist() for name in ("topic", "partition", "offset")]
    return list(zip(*columns, strict=True))


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
