"""The Kafka input of one task, read by the consumer that its worker process keeps open.

The settings that a task gets contain only the names of secret files; each new consumer reads the secrets from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_app.model.errors import ConfigurationError
from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.client import client_options

if TYPE_CHECKING:
    from spark_app.sources.kafka.consumer import Consumer

FETCH_BYTES = 1 << 20  # even at 64 KiB/s a response of this size arrives within the client's timeout
PREFETCH_BYTES = 16 << 20  # for all partitions together; small records take five times their size in memory
LEAST_BYTES = 64 << 10  # for each partition
LARGEST = 2**31 - 1  # largest response in bytes: a single record may be so large
OPTIONS = {
    "auto.offset.reset": "error",  # missing records must be reported, not skipped
    "check.crcs": True,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "fetch.max.bytes": FETCH_BYTES,
    "fetch.queue.backoff.ms": 10,
    "receive.message.max.bytes": LARGEST,
    "socket.timeout.ms": 60_000,
}


@dataclass(frozen=True)
class Share:
    """The part of a unit's input that one task reads.

    Attributes:
        spans: the offsets of this task.
        partitions: the number of partitions that all tasks of the unit read; they share the prefetch memory.
        batch_records, batch_bytes: limits of an Arrow batch; a batch of one record may have more bytes.
        record_bytes: a larger value is left out, see `messages.to_batch`.
        limit: the task ends after this number of records; None = it reads all.
    """

    kafka: KafkaSettings
    spans: tuple[Span, ...]
    partitions: int
    batch_records: int
    batch_bytes: int
    record_bytes: int
    limit: int | None = None

    def limited(self, most: int) -> Share:
        return replace(self, limit=most)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records as batches of `SOURCE_SCHEMA`.

        Raises:
            ReadFailed
        """
        consumer, whole, left = _open(self.kafka, self.partitions), False, self.limit
        try:
            for batch in consumer.read(self.spans, self.batch_records, self.batch_bytes, self.record_bytes):
                yield batch if left is None else batch.slice(0, left)
                left = None if left is None else left - batch.num_rows
                if left is not None and left <= 0:
                    return
            whole = True
        finally:
            if not whole:
                close()


_kept: dict[tuple[KafkaSettings, int], Consumer] = {}  # at most one; the next task uses the messages it has prefetched


def _open(kafka: KafkaSettings, partitions: int) -> Consumer:
    from spark_app.sources.kafka.consumer import Consumer

    key = kafka, partitions
    if key not in _kept:
        close()
        try:
            _kept[key] = Consumer(options_for(kafka, partitions))
        except (ValueError, ConfigurationError) as error:  # the driver could connect, so a file is changing right now
            raise ReadFailed(ReadFailure.SILENT, f"no consumer can be created: {error}", []) from None
    return _kept[key]


def try_consumer(kafka: KafkaSettings) -> None:
    """
    Raises:
        ValueError, ConfigurationError: no consumer can be created in this process, such as for want of a file.
    """
    from spark_app.sources.kafka.consumer import Consumer

    Consumer(options_for(kafka, 1)).close()


def continued(spans: Iterable[Span]) -> int:
    """The offsets of those spans that this process fetches already, because they follow what it has read."""
    return sum(consumer.continued(spans) for consumer in _kept.values())


def close() -> None:
    """Close the consumer of this process, if there is one."""
    while _kept:
        _kept.popitem()[1].close()


def options_for(kafka: KafkaSettings, partitions: int) -> Mapping[str, Any]:
    """librdkafka's options, including the secrets."""
    kept = max(LEAST_BYTES, PREFETCH_BYTES // max(1, partitions))
    bounds = {"queued.max.messages.kbytes": kept >> 10, "fetch.message.max.bytes": min(kept, FETCH_BYTES)}
    return client_options(kafka) | OPTIONS | bounds
