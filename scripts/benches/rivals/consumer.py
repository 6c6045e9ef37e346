"""No Spark: one process that consumes, deserializes with the official deserializer and appends with delta-rs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import write_deltalake

from scripts.benches import messages
from scripts.benches.rivals import given
from scripts.benches.row_udf import to_row
from spark_app.lake.lake import Lake
from spark_app.protobuf.columns.types import ordered_fields
from spark_app.protobuf.decode import arrow_schema
from spark_app.settings import config

AT_ONCE = 10_000
COORDINATES = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
RAW = pa.schema([("key", pa.binary()), ("value", pa.binary()), *COORDINATES])


class Tables:
    """The rows of a batch, and the tables that they are appended to."""

    def __init__(self, lake: Lake, event: Any):
        self._lake = lake
        self._fields = [field.name for field in ordered_fields(event.DESCRIPTOR)]
        silver = pa.schema([*arrow_schema(event.DESCRIPTOR), *COORDINATES])
        self._schemas = defaultdict(lambda: silver, bronze=RAW, quarantine=RAW)
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def add(self, record: Message, event: Any) -> None:
        place = {"_topic": record.topic(), "_partition": record.partition(), "_offset": record.offset()}
        raw = {"key": record.key(), "value": record.value(), **place}
        self._rows["bronze"].append(raw)
        if event is None:
            self._rows["quarantine"].append(raw)
        else:
            values = dict(zip(self._fields, to_row(event), strict=True))
            self._rows[f"silver_{event.game_name}"].append(values | place)

    def append(self) -> None:
        for table, rows in self._rows.items():
            made = pa.Table.from_pylist(rows, self._schemas[table])
            write_deltalake(str(self._lake.path(table)), made, mode="append")
        self._rows.clear()


def main() -> None:
    settings = config.load()
    lake, topic = Lake(settings.lake.path), settings.kafka.topics[0]
    _, kind = messages.compile_version(given.shape().message, given.shape().versions)
    deserialize = ProtobufDeserializer(kind, {"use.deprecated.format": False})  # without a registry it fetches nothing
    context, tables = SerializationContext(topic, MessageField.VALUE), Tables(lake, kind)
    consumer, ends = _open(settings.kafka.brokers, topic)
    at, batch = dict.fromkeys(ends, 0), 0
    while at != ends:
        given.mark(lake.root, "offsets", batch)
        taken = 0
        while taken < settings.batch.max_records and at != ends:
            for record in consumer.consume(AT_ONCE, 1.0):
                assert record.error() is None
                tables.add(record, _event(deserialize, record.value(), context))
                at[record.partition() or 0] = (record.offset() or 0) + 1
                taken += 1
        tables.append()
        offsets = [TopicPartition(topic, number, offset) for number, offset in at.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        given.mark(lake.root, "commits", batch)
        batch += 1
    consumer.close()


def _open(brokers: str, topic: str) -> tuple[Consumer, dict[int, int]]:
    """A consumer at the beginning, and the current end of each partition."""
    options = {"group.id": "rival", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": brokers, **options})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    return consumer, {n: consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in partitions}


def _event(deserialize: ProtobufDeserializer, value: bytes | None, context: SerializationContext) -> Any:
    try:
        return deserialize(value, context)
    except Exception:
        return None


if __name__ == "__main__":
    main()
