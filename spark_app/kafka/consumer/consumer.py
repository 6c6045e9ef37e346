"""Reads spans of offsets from Kafka, each whole or not at all.

A partition is fetched on behind the span that was read: mostly that is what the next unit reads, and it is at hand
then. Each has a queue of its own, and is read to its end before the next one, so that records come in their order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from spark_app.kafka import broker_access
from spark_app.kafka.consumer import librdkafka, messages
from spark_app.kafka.consumer.queue import Queue
from spark_app.kafka.consumer.read_failed import ReadFailed, ReadFailure
from spark_app.model.offsets import Span

POLL_MS = 100
PATIENCE_S = 60.0  # without a word about the partition
BEHIND_S = 5.0  # of waiting that a partition may end before the span does: what it says may be from before
UNUSED_S = 10.0  # after which a partition is no longer fetched: another worker reads it now
AT_ONCE = 50_000  # messages
LARGEST_BATCH = 1 << 30  # bytes: of headers base64 makes a third more, and a column of Arrow's has less than 2 GiB
LOSSES = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)
REFUSALS = (*broker_access.LOGINS, KafkaError._SSL)


class Consumer:
    """Of one process. After anything but a whole read it has to be closed: what it holds is then of no use.

    Args:
        options: librdkafka's.

    Raises:
        ValueError: librdkafka does not take the options.
    """

    def __init__(self, options: Mapping[str, Any]):
        self._said: deque[tuple[int, str]] = deque(maxlen=20)
        self._callback = librdkafka.ErrorCallback(self._hear)
        self._client = librdkafka.open_client(options, self._callback)
        self._topics: dict[str, int] = {}
        self._queues: dict[tuple[str, int], Queue] = {}
        self._buffer = np.empty(AT_ONCE, np.uintp)

    def read(
        self, spans: Sequence[Span], most_records: int, most_bytes: int, most_value: int
    ) -> Iterator[pa.RecordBatch]:
        """The records, a batch at a time.

        Args:
            most_bytes: of keys, values and headers of a batch, and no more than `LARGEST_BATCH`; a record with more is
                a batch of its own.
            most_value: bytes; of a larger value there is only its size and digest, see `messages.to_batch`.

        Raises:
            Unread
        """
        most_bytes = min(most_bytes, LARGEST_BATCH)
        self._said.clear()
        self._stop_unused({(span.topic, span.partition) for span in spans})
        for span in spans:
            self._open(span)
        for span in spans:
            queue = self._open(span)
            while True:
                while not queue.has_full_batch(span.end, most_records, most_bytes):
                    self._receive(queue, span)
                taken, offsets = queue.take(span.end, most_records, most_bytes)
                if not len(taken):
                    break
                try:
                    batch = messages.to_batch(taken, offsets, span.topic, span.partition, most_value)
                finally:
                    messages.release(taken)
                yield batch

    def close(self) -> None:
        """Give everything back."""
        for queue in self._queues.values():
            queue.stop()
        for topic in self._topics.values():
            librdkafka.topic_destroy(topic)
        librdkafka.destroy(self._client, librdkafka.NO_CLOSE)

    def _open(self, span: Span) -> Queue:
        """The partition's queue, at the beginning of the span."""
        key = span.topic, span.partition
        queue = self._queues.get(key)
        if queue is not None and not queue.skip_to(span.start):
            self._queues.pop(key).stop()
            queue = None
        if queue is None:
            queue = self._queues[key] = Queue(self._topic(span.topic), span.partition, span.start)
        return queue

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            topic = librdkafka.topic_new(self._client, name.encode(), None)
            if not topic:
                said = librdkafka.describe(librdkafka.last_error()).decode()
                raise ReadFailed(ReadFailure.SILENT, f"topic {name} cannot be opened: {said}", [])
            self._topics[name] = topic
        return self._topics[name]

    def _stop_unused(self, wanted: set[tuple[str, int]]) -> None:
        now = time.monotonic()
        for key, queue in list(self._queues.items()):
            if key in wanted:
                queue.used = now
            elif now - queue.used > UNUSED_S:
                self._queues.pop(key).stop()

    def _receive(self, queue: Queue, span: Span) -> None:
        """Wait until the queue has got further.

        Raises:
            Unread
        """
        began, reached = time.monotonic(), queue.reached
        while not queue.receive(self._buffer, span.end - reached, wait_ms=0):
            if queue.receive(self._buffer, 1, POLL_MS) and queue.reached > reached:
                break
            librdkafka.poll(self._client, 0)  # calls back with what was said
            self._judge(queue, span, time.monotonic() - began)
        if queue.errors:
            self._judge(queue, span, time.monotonic() - began)

    def _judge(self, queue: Queue, span: Span, waited_s: float) -> None:
        """
        Raises:
            Unread: waiting longer would be in vain.
        """
        said = [(code, broker_access.words(KafkaError(code, text))) for code, text in (*queue.errors, *self._said)]
        where = f"{span.partition_name} at {queue.reached} of {span.start} to {span.end}"
        if any(code in LOSSES for code, _ in queue.errors):
            raise ReadFailed(ReadFailure.LOST, f"{where} is not in Kafka", said)
        if queue.errors or any(code in REFUSALS for code, _ in said):
            raise ReadFailed(ReadFailure.SILENT, f"{where} cannot be read", said)
        if queue.ended is not None and min(waited_s, time.monotonic() - queue.ended) > BEHIND_S:
            raise ReadFailed(ReadFailure.BEHIND, f"{where}: the partition ends there", said)
        if waited_s > PATIENCE_S:
            raise ReadFailed(ReadFailure.SILENT, f"{where}: no answer for {waited_s:.0f} s", said)

    def _hear(self, client: int, code: int, reason: bytes, opaque: int) -> None:
        self._said.append((code, reason.decode(errors="replace")))
