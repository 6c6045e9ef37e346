"""Reads spans of offsets from Kafka; each span completely, or the read fails.

librdkafka continues to fetch a partition after the span, because the next unit usually starts there. Each partition has
a queue of its own. A span is read to its end before the next one, so that records stay in order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.sources.kafka import broker_access
from spark_app.sources.kafka.consumer import librdkafka, messages
from spark_app.sources.kafka.consumer.queue import Queue

POLL_MS = 100
PATIENCE_S = 60.0  # timeout without a response for the partition
BEHIND_S = 5.0  # how long a partition may end before the span: the broker's end offset may be out of date
UNUSED_S = 10.0  # after this time an unused partition is no longer fetched: another worker reads it now
AT_ONCE = 50_000  # messages per call
LARGEST_BATCH = 1 << 30  # bytes: base64 makes headers a third larger, and an Arrow column must have less than 2 GiB
LOSSES = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)
REFUSALS = (*broker_access.LOGINS, KafkaError._SSL)


class Consumer:
    """The consumer of one process. After an incomplete read it must be closed, because its queues are not usable.

    Args:
        options: librdkafka's options.

    Raises:
        ValueError: librdkafka does not accept the options.
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
        """The records of the spans, in batches.

        Args:
            most_records: the most records of a batch.
            most_bytes: the most bytes of keys, values and headers of a batch, at most `LARGEST_BATCH`; a larger record
                is a batch of its own.
            most_value: bytes; a larger value is replaced by its size and digest, see `messages.to_batch`.

        Raises:
            ReadFailed
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
                addresses, offsets = queue.take(span.end, most_records, most_bytes)
                if not len(addresses):
                    break
                try:
                    batch = messages.to_batch(addresses, offsets, span.topic, span.partition, most_value)
                finally:
                    messages.release(addresses)
                yield batch

    def continued(self, spans: Iterable[Span]) -> int:
        """The offsets of those spans that begin where this consumer has read to."""
        queues = ((span, self._queues.get((span.topic, span.partition))) for span in spans)
        return sum(span.offsets for span, queue in queues if queue is not None and queue.continues_at(span.start))

    def close(self) -> None:
        """Release all messages, topics and the client."""
        for queue in self._queues.values():
            queue.stop()
        for topic in self._topics.values():
            librdkafka.topic_destroy(topic)
        librdkafka.destroy(self._client, librdkafka.NO_CLOSE)

    def _open(self, span: Span) -> Queue:
        """The partition's queue, positioned at the start of the span."""
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
                text = librdkafka.describe(librdkafka.last_error()).decode()
                raise ReadFailed(ReadFailure.SILENT, f"topic {name} cannot be opened: {text}", [])
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
        """Wait until the queue has advanced.

        Raises:
            ReadFailed
        """
        began, reached = time.monotonic(), queue.reached
        while not queue.receive(self._buffer, span.end - reached, wait_ms=0):
            if queue.receive(self._buffer, 1, POLL_MS) and queue.reached > reached:
                break
            librdkafka.poll(self._client, 0)  # delivers errors to `_hear`
            self._check_progress(queue, span, time.monotonic() - began)
        if queue.errors:
            self._check_progress(queue, span, time.monotonic() - began)

    def _check_progress(self, queue: Queue, span: Span, waited_s: float) -> None:
        """Check whether waiting longer is useless.

        Raises:
            ReadFailed: the queue has an error, access is denied, or a timeout is over.
        """
        errors = [(code, broker_access.words(KafkaError(code, text))) for code, text in (*queue.errors, *self._said)]
        where = f"{span.partition_name} at {queue.reached} of {span.start} to {span.end}"
        if any(code in LOSSES for code, _ in queue.errors):
            raise ReadFailed(ReadFailure.LOST, f"{where} is not in Kafka", errors)
        if queue.errors or any(code in REFUSALS for code, _ in errors):
            raise ReadFailed(ReadFailure.SILENT, f"{where} cannot be read", errors)
        if queue.ended is not None and min(waited_s, time.monotonic() - queue.ended) > BEHIND_S:
            raise ReadFailed(ReadFailure.BEHIND, f"{where}: the partition ends there", errors)
        if waited_s > PATIENCE_S:
            raise ReadFailed(ReadFailure.SILENT, f"{where}: no answer for {waited_s:.0f} s", errors)

    def _hear(self, client: int, code: int, reason: bytes, opaque: int) -> None:
        self._said.append((code, reason.decode(errors="replace")))
