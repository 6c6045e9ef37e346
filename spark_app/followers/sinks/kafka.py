"""Records of Kafka: rows as framed Protobuf, each call one transaction.

A call that is repeated is found out, so that readers with `isolation.level=read_committed` see each row once: its
transaction commits an offset of the group `protolake-<lake>-<sink>`, too, whose metadata are the marks of the newest
calls. A new process fences the transactions of the one before, and reads the marks then. What a crash may repeat are
the calls that are not in the ledger (`delivery.MOST_UNWRITTEN`) and those in flight, half as many as there are marks:
so also the calls before a second crash, which follows soon, are found out.

Kafka keeps at most 4096 characters of metadata (`offset.metadata.max.bytes`), for seven days after the last call
(`offsets.retention.minutes`): after a crash and a longer pause some calls may be repeated. A topic of marks would have
to be read to its end at each start.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor import Descriptor

from spark_app.followers.sinks.proto_rows import RowEncoder
from spark_app.followers.sinks.proto_schema import FieldNumbers, comments_of, schema_of
from spark_app.followers.sinks.silver_rows import COORDINATES
from spark_app.followers.sinks.sink import DELETE, OPERATION, Call, Outcome, Result
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, LeaseLost
from spark_app.model.text import near
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import index_within
from spark_app.protobuf.schemas.descriptors import compile_sources
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import ROOT, Registry, Sources
from spark_app.protobuf.schemas.resolution import resolve
from spark_app.protobuf.schemas.resolver import limits_of
from spark_app.settings.models import Settings
from spark_app.sources.kafka.client import ANSWER_S, client_options, silent

MOST_MARKS = 400  # of 10 characters: a metadata has at most 4096
MARK_BYTES = 8
TRANSACTION_S = 60.0  # after which the broker aborts a transaction
FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # by an abort
ABOUT_ROWS = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG_SIZE}


Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class Format:
    """How the rows of a table are written.

    Attributes:
        frame: what is in front of each message: the schema id and the message index.
        keep_alive: owns the descriptors of the encoder.
    """

    frame: bytes
    encoder: RowEncoder
    keep_alive: object


class KafkaSink:
    """The kind `kafka`."""

    can_replace = False

    def __init__(self, name: str, settings: Settings, lake: Lake):
        """`name` is that of the sink."""
        target = settings.sinks[name].kafka
        assert target is not None
        self._setting = f"sinks.{name}.kafka"
        self._target = target
        self._settings = settings
        self._kafka = settings.kafka.model_copy(update={"brokers": target.brokers} if target.brokers else {})
        self._registry = settings.registry.model_copy(
            update={"url": target.registry_url.rstrip("/")} if target.registry_url else {}
        )
        self._id = f"protolake-{lake.known_identity()}-{name}"
        self._tables = Tables(lake, settings.lake, settings.layout)
        self._numbers = FieldNumbers(lake, lake.sink(name))
        self._limits = limits_of(settings.schemas)
        self._formats: dict[tuple[str, pa.Schema], Format] = {}
        self._open: tuple[Producer, Consumer] | None = None
        self._reported: KafkaError | None = None  # why the first record of the transaction was not written
        self._marks: dict[str, dict[bytes, None]] = {}  # topic -> the newest calls that are in it, the oldest first

    def open(self, options: Mapping[str, Any]) -> None:
        """Check secrets and certificates, as far as they are known without a call."""
        client_options(self._kafka)
        Registry(self._registry, self._limits)

    def send(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """
        Raises:
            LeaseLost: another process sends for this sink, or the broker has taken this one for dead.
        """
        return [self._send(call) for call in calls]

    def forget(self, keys: Sequence[str]) -> None:
        """These calls are never repeated."""
        for mark in map(_mark, keys):
            for marks in self._marks.values():
                marks.pop(mark, None)

    def close(self) -> None:
        """What is not committed is aborted by the broker, or by the next process."""
        if self._open is not None:
            producer, consumer = self._open
            self._open = None
            producer.purge()
            consumer.close()
        self._marks.clear()

    def _send(self, call: Call) -> Outcome:
        topic, mark = self._target.topic.format(name=call.name), _mark(call.key)
        try:
            marks = self._marks_of(topic)
        except KafkaException as error:
            return self._failed(call, error)
        if mark in marks:
            return Outcome(call.key, "accepted")
        form = self._format(topic, call)
        values, fits, why = form.encoder.encode(call.rows, form.frame)
        written, keys = values.to_pylist(), self._keys(call)
        if OPERATION in call.rows.column_names:
            gone = np.asarray(pc.equal(call.rows[OPERATION], DELETE))
            fits = fits | gone
            for row in np.flatnonzero(gone).tolist():
                written[row] = None
                if keys[row] is None:
                    return Outcome(call.key, "refused", answer="a row is gone, and has no key: set key_column")
        if not fits.all():
            return Outcome(call.key, "refused", answer=why)
        recent = [*list(marks)[1 - MOST_MARKS :], mark]
        try:
            self._write(topic, call, written, keys, recent)
        except KafkaException as error:
            return self._failed(call, error)
        self._marks[topic] = dict.fromkeys(recent)
        return Outcome(call.key, "accepted")

    def _write(
        self, topic: str, call: Call, values: list[bytes | None], keys: list[Any], marks: Sequence[bytes]
    ) -> None:
        """One transaction."""
        assert self._open is not None
        producer, consumer = self._open
        self._reported = None
        producer.begin_transaction()
        if self._target.headers:
            for value, key, headers in zip(values, keys, _headers(call), strict=True):
                producer.produce(topic, value, key, headers=headers)
        else:
            records: list[Any] = [{"value": value, "key": key} for value, key in zip(values, keys, strict=True)]
            if producer.produce_batch(topic, records) < len(records):
                raise KafkaException(next(one["_error"] for one in records if "_error" in one))
        metadata = base64.b85encode(b"".join(marks)).decode()
        committed = TopicPartition(topic, 0, 0, metadata)
        producer.send_offsets_to_transaction([committed], consumer.consumer_group_metadata(), ANSWER_S)
        producer.commit_transaction(TRANSACTION_S)

    def _failed(self, call: Call, raised: KafkaException) -> Outcome:
        """What an error means for a call. Where it is not known whether the transaction is committed, another producer
        finds that out."""
        errors, is_over = [raised.args[0]], False
        try:
            if self._open is not None and not errors[0].retriable():
                self._open[0].abort_transaction(ANSWER_S)  # what became of its records is reported meanwhile
                is_over = True
        except KafkaException as another:
            errors.append(another.args[0])
        if not is_over or self._reported is not None:  # after that the broker misses sequence numbers
            self.close()
        error, self._reported = self._reported or errors[0], None
        if FENCED & {one.code() for one in errors}:
            raise LeaseLost(f"{self._setting}: {error.str()}: another process sends for this sink now")
        result: Result = "refused" if error.code() in ABOUT_ROWS else "unavailable"
        return Outcome(call.key, result, max(0, error.code()), error.str())

    def _report(self, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() not in PURGED:
            self._reported = self._reported or error

    def _marks_of(self, topic: str) -> dict[bytes, None]:
        """The marks of the calls that are in the topic.

        Raises:
            OSError: there is no such topic.
            KafkaException
        """
        if self._open is None:
            self._open = self._connected()
        if topic not in self._marks:
            producer, consumer = self._open
            found = producer.list_topics(topic, ANSWER_S).topics[topic]
            if found.error is not None:
                raise OSError(f"{self._setting}.topic: {topic}: {found.error.str()}")
            [stored] = consumer.committed([TopicPartition(topic, 0)], ANSWER_S)
            data = base64.b85decode(stored.metadata or "")
            self._marks[topic] = dict.fromkeys(data[at : at + MARK_BYTES] for at in range(0, len(data), MARK_BYTES))
        return self._marks[topic]

    def _connected(self) -> tuple[Producer, Consumer]:
        """A producer to which no transaction is open, also of a process before."""
        common = client_options(self._kafka)
        producer = Producer(
            {
                **common,
                "transactional.id": self._id,
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                "partitioner": self._target.partitioner,
                "linger.ms": 5,
                "delivery.report.only.error": True,
                "on_delivery": self._report,
                "queue.buffering.max.messages": 0,  # a call is in memory anyway
            },
            logger=silent(),
        )
        producer.init_transactions(2 * ANSWER_S)
        reading = {"group.id": self._id, "isolation.level": "read_committed", "enable.auto.commit": False}
        return producer, Consumer({**common, **reading}, logger=silent())

    def _keys(self, call: Call) -> list[Any]:
        name = self._target.key_column
        if not name:
            return [None] * len(call.rows)
        if name not in call.rows.column_names:
            hint = near(name, call.rows.column_names)
            raise ConfigurationError(f"{self._setting}.key_column: {call.table} sends no column {name}; {hint}")
        column = call.rows[name]
        if pa.types.is_nested(column.type):
            raise ConfigurationError(f"{self._setting}.key_column: {name} is {column.type}, which is no text")
        return list((column if pa.types.is_binary(column.type) else column.cast(pa.string())).to_pylist())

    def _format(self, topic: str, call: Call) -> Format:
        known = call.table if self._target.subject[0] == "" else "", call.rows.schema
        if known not in self._formats:
            made = self._generated(topic, call) if known[0] else self._registered()
            self._formats[known] = made
        return self._formats[known]

    def _generated(self, topic: str, call: Call) -> Format:
        """The schema of the table, which is registered."""
        handle = self._tables.look_again(call.table)
        comments = comments_of(handle.schema().to_json()) if handle is not None else {}
        description = handle.metadata().description if handle is not None else None
        columns = call.rows.schema
        text = schema_of(call.table, columns, self._numbers.assign(columns), comments | {(): description or ""})
        pool, messages = load_files(compile_sources(Sources(texts={ROOT: text}), self._limits))
        try:
            schema_id = Registry(self._registry, self._limits).register(f"{topic}-value", text)
        except SchemaInvalid as error:
            raise ConfigurationError(f"{self._setting}: the schema of {call.table}: {error}") from None
        return Format(_frame(schema_id, [0]), RowEncoder(messages[0], [OPERATION]), pool)

    def _registered(self) -> Format:
        """The schema that the settings name."""
        subject, version = self._target.subject
        registry = Registry(self._registry.model_copy(update={"subject": subject}), self._limits)
        schema_id = registry.id_of(subject, version)
        found = resolve(registry, schema_id, self._limits)
        pool, messages = load_files(found.descriptor_set)
        indexes = dict(_indexes(messages, found.form == "descriptor"))
        name = self._target.message or (next(iter(indexes)) if len(messages) == 1 else "")
        if name not in indexes:
            hint = near(name, indexes)
            raise ConfigurationError(f"{self._setting}.message: {subject} has several messages; {hint}")
        message = pool.FindMessageTypeByName(name)
        return Format(_frame(schema_id, indexes[name]), RowEncoder(message, [OPERATION, *COORDINATES.names]), pool)


def _indexes(messages: Sequence[Descriptor], entries: bool) -> list[tuple[str, list[int]]]:
    """(full name, message index) of the messages and all that they declare; `entries` = those of maps are counted."""
    found = [(message.full_name, [number]) for number, message in enumerate(messages)]
    left = list(zip(messages, [index for _, index in found], strict=True))
    while left:
        parent, index = left.pop()
        for number, nested in index_within(parent, entries):
            found.append((nested.full_name, [*index, number]))
            left.append((nested, [*index, number]))
    return found


def _frame(schema_id: int, index: list[int]) -> bytes:
    return bytes(SchemaId("PROTOBUF", schema_id=schema_id, message_indexes=index).id_to_bytes())


def _mark(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:MARK_BYTES]


def _headers(call: Call) -> list[Headers]:
    """Of each row: its call, its table, and its coordinates if it has them."""
    common: Headers = [("protolake.call", call.key.encode()), ("protolake.table", call.table.encode())]
    if OPERATION in call.rows.column_names:
        return [common] * len(call.rows)
    rows = zip(*(call.rows[name].cast(pa.string()).to_pylist() for name in COORDINATES.names), strict=True)
    return [[*common, ("protolake.record", "/".join(one or "" for one in row).encode())] for row in rows]
