"""Estimates the record size, to limit micro-batches by bytes: Spark can only limit the number of offsets."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.client import client_options, silent

SAMPLED = 1_000  # records
SAMPLE_S = 2.0
PARTITIONS = 16  # a sample reads about so many partitions
FETCH_BYTES = 512 << 10
GROUP = "protolake-sample"  # librdkafka requires a group; no offset is ever committed to it


class RecordSizes:
    """The mean size of about the last `batch.max_records` record values, and the record limit of a batch.

    Args:
        records, most_bytes: the limits of a batch.
    """

    def __init__(self, records: int, most_bytes: int):
        self._most_records = records
        self._most_bytes = most_bytes
        self._records = self._bytes = 0.0

    def add(self, records: int, value_bytes: int) -> None:
        self._records += records
        self._bytes += value_bytes
        if self._records > 2 * self._most_records:
            self._bytes *= self._most_records / self._records
            self._records = self._most_records

    def add_unit(self, counts: Mapping[str, int]) -> None:
        """`add` with the counts of a manifest."""
        self.add(counts.get("bronze", 0), counts.get("value_bytes", 0))

    def limit(self) -> int:
        """The largest number of records of a batch; at least one."""
        mean = self._bytes / self._records if self._records else 0
        return max(1, min(self._most_records, int(self._most_bytes / mean) if mean else self._most_records))

    def needs_new_limit(self, limit: int) -> bool:
        """Whether a query with this limit must be restarted: its batches may have more than twice the allowed bytes, or
        the limit is less than a quarter of the allowed records."""
        return self.limit() * 2 < limit or self.limit() > 4 * limit


def sample(kafka: KafkaSettings, partitions: Mapping[str, list[int]]) -> tuple[int, int]:
    """(records, bytes of their values) of a sample of the oldest records; zeros if no broker responds in time.

    Args:
        partitions: topic -> its partitions that have records.
    """
    chosen = [TopicPartition(name, p, OFFSET_BEGINNING) for name, numbers in partitions.items() for p in numbers]
    if not chosen:
        return 0, 0
    options = client_options(kafka) | {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "fetch.message.max.bytes": FETCH_BYTES,
        "queued.max.messages.kbytes": FETCH_BYTES >> 10,
    }
    consumer = Consumer(options, logger=silent())
    try:
        consumer.assign(chosen[:: max(1, len(chosen) // PARTITIONS)])
        found = [message for message in consumer.consume(SAMPLED, SAMPLE_S) if message.error() is None]
    except KafkaException:
        return 0, 0
    finally:
        consumer.close()
    return len(found), sum(len(message) for message in found)
