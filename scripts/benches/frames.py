"""Makes records like the demo producer, framed by the official serializer, in files of `SOURCE_SCHEMA`."""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.schema_registry import SchemaRegistryClient

from producer.encoder import Encoder
from producer.games import Event, make_events
from producer.schemas import compile_version
from scripts.benches.shape import game_names
from spark_app.model.record_schemas import SOURCE_SCHEMA

GAMERS = 1000
SEED = 7


def new_encoder(topic: str, registry: str) -> Encoder:
    """The producer's encoder of schema version 1, registered under the topic's subject."""
    client = SchemaRegistryClient.new_client({"url": registry})
    version = compile_version(1)
    client.register_schema(f"{topic}-value", version.registry_form)
    return Encoder(topic, version, client)


def play(tables: int, gamers: int | None = None) -> Iterator[Event]:
    """Endless events with so many routing values: either few gamers play a lot and many play little, or `gamers` gamers
    play once each before any of them plays again."""
    events = make_events(SEED, game_names(tables), GAMERS, 0)
    if gamers is None:
        return events
    turns = cycle(random.Random(SEED).sample(range(gamers), gamers))
    return (event._replace(gamer_id=f"gamer-{turn:07}") for event, turn in zip(events, turns, strict=False))


def write_records(
    folder: Path, encoder: Encoder, topic: str, events: Iterator[Event], records: int, partitions: int
) -> list[Path]:
    """Write the next `records` events, one Parquet file of `SOURCE_SCHEMA` per Kafka partition."""
    return [
        _write_partition(folder / f"{p}.parquet", encoder, topic, p, islice(events, _share(records, partitions, p)))
        for p in range(partitions)
    ]


def _write_partition(path: Path, encoder: Encoder, topic: str, partition: int, events: Iterator[Event]) -> Path:
    moment = time.time_ns() // 1000
    made = [(event.gamer_id.encode(), encoder.encode(event, moment)) for event in events]
    return write_partition(path, topic, partition, made)


def write_partition(path: Path, topic: str, partition: int, made: Sequence[tuple[bytes, bytes]]) -> Path:
    """Write records with these keys and values as a Parquet file of `SOURCE_SCHEMA`."""
    moment = time.time_ns() // 1000
    keys, values = zip(*made, strict=True) if made else ((), ())
    count = len(made)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(count, pa.string()),
        pa.array([topic] * count),
        pa.array([partition] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([moment] * count, pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    pq.write_table(pa.Table.from_arrays(columns, schema=SOURCE_SCHEMA), path)
    return path


def _share(records: int, partitions: int, partition: int) -> int:
    return records // partitions + (partition < records % partitions)
