"""The expert's consumer without Spark: confluent-kafka, ptars (not strict), pyarrow and delta-rs in one process.

The only Python code per record takes its fields out of the client's message. It lacks headers, strict parsing, routing
by rule, column additions, fsync, bounds in Delta's log, gold, and exactly-once.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from ptars import HandlerPool, PtarsConfig

from scripts.benches.rivals import given

AT_ONCE = 20_000
FRAME = 6
OPTIONS = {
    "group.id": "expert",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "log_level": 0,
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 8 << 20,
    "queued.max.messages.kbytes": 256 << 10,
}
PTARS = PtarsConfig(timestamp_unit="us", timestamp_tz="UTC", enum_repr="string")
Added = dict[str, tuple[pa.Schema, AddAction]]  # table -> its file of a batch


class Decoder:
    """Decodes payloads to columns; if ptars rejects a batch, Google's parser finds the bad payloads."""

    def __init__(self, descriptors: bytes):
        pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        event: Any = next(iter(pool.FindFileByName(file.name).message_types_by_name.values()))
        self._class = GetMessageClass(event)
        self._handler = HandlerPool([event.file], PTARS).get_for_message(event)

    def decode(self, payloads: pa.Array) -> tuple[pa.RecordBatch, pa.Array | None]:
        """(columns, mask of the decoded payloads, or None for all)."""
        try:
            return self._handler.array_to_record_batch(payloads), None
        except Exception:
            good = pa.array([self._reads(payload.as_py()) for payload in payloads])
            return self._handler.array_to_record_batch(payloads.filter(good)), good

    def _reads(self, payload: bytes) -> bool:
        try:
            self._class.FromString(payload)
        except DecodeError:
            return False
        return True


def batches(consumer: Consumer, partitions: dict[int, int], most: int) -> Iterator[list[pa.Table]]:
    """Batches of up to `most` records until each partition is at its end; the consumer is at the beginning."""
    left = sum(partitions.values())
    while left:
        parts, taken = list[pa.Table](), 0
        while taken < most and left:
            messages = consumer.consume(min(AT_ONCE, most - taken), 1.0)
            columns = {
                "key": pa.array([message.key() for message in messages], pa.binary()),
                "value": pa.array([message.value() for message in messages], pa.binary()),
                "_partition": pa.array([message.partition() for message in messages], pa.int32()),
                "_offset": pa.array([message.offset() for message in messages], pa.int64()),
                "_timestamp": pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC")),
            }
            parts.append(pa.table(columns))
            taken, left = taken + len(messages), left - len(messages)
        yield parts


def write(lake: Path, parts: list[pa.Table], decoder: Decoder, pool: Executor) -> Added:
    """Write one file per table of a batch."""
    decoded, refused = list[pa.Table](), list[pa.Table]()
    for part in parts:
        payloads = pc.binary_slice(part["value"].combine_chunks(), FRAME, 1 << 30)
        columns, good = decoder.decode(payloads)
        if good is not None:
            refused.append(part.filter(pc.invert(good)))
            part = part.filter(good)
        places = [part[name] for name in ("_partition", "_offset")]
        decoded.append(pa.table([*columns.columns, *places], names=[*columns.schema.names, "_partition", "_offset"]))
    tables = {"bronze": pa.concat_tables(parts), **dict(split(pa.concat_tables(decoded)))}
    if refused:
        tables["quarantine"] = pa.concat_tables(refused)
    return dict(zip(tables, pool.map(lambda one: _write(lake / one[0], one[1]), tables.items()), strict=True))


def split(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Table -> its rows."""
    names = rows["game_name"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy().astype(np.int16)
    ordered = rows.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=len(names.dictionary)))
    for name, first, end in zip(names.dictionary.to_pylist(), [0, *ends], ends, strict=False):
        yield f"silver_{name}", ordered.slice(first, end - first)


def _write(folder: Path, rows: pa.Table) -> tuple[pa.Schema, AddAction]:
    folder.mkdir(exist_ok=True)
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, path)
    stats = f'{{"numRecords":{len(rows)}}}'
    return rows.schema, AddAction(path.name, path.stat().st_size, {}, int(time.time() * 1000), True, stats)


class Committer:
    """Appends to the tables of a lake; there is one committer per lake."""

    def __init__(self, lake: Path):
        self._lake, self._tables, self._batches = lake, dict[str, DeltaTable](), 0

    def commit(self, added: Added) -> None:
        for name, (columns, action) in added.items():
            schema = Schema.from_arrow(columns)
            if name in self._tables:
                self._tables[name].create_write_transaction([action], "append", schema)
            else:
                path = str(self._lake / name)
                create_table_with_add_actions(path, schema, [action], "append")
                self._tables[name] = DeltaTable(path)
        given.mark(self._lake, "commits", self._batches)
        self._batches += 1


def open_consumer(partitions: list[int]) -> tuple[Consumer, dict[int, int]]:
    """A consumer at the beginning of the partitions, and the current end of each."""
    topic = os.environ["PROTOLAKE_KAFKA__TOPIC"]
    consumer = Consumer({"bootstrap.servers": os.environ["PROTOLAKE_KAFKA__BROKERS"], **OPTIONS})
    places = [TopicPartition(topic, number, 0) for number in partitions]
    consumer.assign(places)
    return consumer, {place.partition: consumer.get_watermark_offsets(place)[1] for place in places}


def main() -> None:
    lake, most = Path(os.environ["PROTOLAKE_LAKE__PATH"]), int(os.environ["PROTOLAKE_BATCH__RECORDS"])
    given.mark(lake, "offsets", 0)
    consumer, ends = open_consumer(list(range(given.shape().partitions)))
    decoder, committer = Decoder(given.descriptors()), Committer(lake)
    with ThreadPoolExecutor(2) as pool:
        for parts in batches(consumer, ends, most):
            committer.commit(write(lake, parts, decoder, pool))
    consumer.close()


if __name__ == "__main__":
    main()
