"""The fetched messages of one partition, in the order of their offsets."""

from __future__ import annotations

import time

import numpy as np
from confluent_kafka import KafkaError

from spark_app.sources.kafka.consumer import librdkafka, messages

NEAR = 50_000  # offsets: a shorter distance is skipped message by message, because a new fetch costs more
NONE = np.empty((3, 0), np.int64)


class Queue:
    """Messages that librdkafka fetches from `start` on, until `stop`.

    Attributes:
        reached: every message before this offset has arrived.
        ended: time at which the end of the partition was reached, if no message came after it; None = not at the end.
        used: time of the last read. Both times are of `time.monotonic`.
        errors: (code, text) of librdkafka's errors, except for the end of the partition.
    """

    def __init__(self, topic: int, partition: int, start: int):
        self._topic = topic
        self._partition = partition
        self._position = start
        self._held = NONE  # addresses, bytes and offsets of messages
        self.reached = start
        self.ended: float | None = None
        self.used = time.monotonic()
        self.errors: list[tuple[int, str]] = []
        if librdkafka.consume_start(topic, partition, start):
            code = librdkafka.last_error()
            self.errors.append((code, librdkafka.describe(code).decode()))

    def continues_at(self, start: int) -> bool:
        """Whether this offset is the next one, or among those that were fetched and not taken."""
        return self._position <= start <= self.reached

    def skip_to(self, start: int) -> bool:
        """Continue at this offset; False if a new queue must be opened for it."""
        if start < self._position or start > self.reached + NEAR:
            return False
        self._position = start
        self._hold(NONE)
        return True

    def has_full_batch(self, end: int, most_records: int, most_bytes: int) -> bool:
        """Whether `take` can return a full batch, or all messages before `end`."""
        sizes = self._held[1]
        return self.reached >= end or len(sizes) >= most_records or int(sizes.sum()) >= most_bytes

    def take(self, end: int, most_records: int, most_bytes: int) -> np.ndarray:
        """Addresses and offsets of the next messages before `end`, within both limits; a larger message comes alone.

        Returns:
            An array with two rows: addresses and offsets. The caller releases the messages.
        """
        _, sizes, offsets = self._held
        count = min(int(np.searchsorted(offsets, end)), most_records)
        fitting = int(np.searchsorted(np.cumsum(sizes[:count]), most_bytes, "right"))
        count = min(count, max(fitting, 1))
        taken, self._held = self._held[:, :count], self._held[:, count:]
        if count:
            self._position = int(taken[2, -1]) + 1
        return taken[::2]

    def receive(self, into: np.ndarray, most: int, wait_ms: int) -> bool:
        """Take at most `most` messages that librdkafka has fetched; False if there are none within `wait_ms`."""
        count: int = librdkafka.consume_batch(
            self._topic, self._partition, wait_ms, into.ctypes.data, min(most, len(into))
        )
        received = into[: max(count, 0)]
        while len(received):
            found = np.empty((3, len(received)), np.int64)
            good = messages.measure(received, found)
            if good:
                self.ended = None
                self.reached = max(self.reached, int(found[2, good - 1]) + 1)
                self._hold(found[:, :good])
            if good < len(received):
                self._note(received[good : good + 1])
            received = received[good + 1 :]
        return count > 0

    def stop(self) -> None:
        """Stop fetching, and release the messages in the queue."""
        messages.release(self._held[0])
        self._held = NONE
        librdkafka.consume_stop(self._topic, self._partition)

    def _hold(self, more: np.ndarray) -> None:
        """Add messages to the queue, and release those before the current position."""
        held = np.concatenate([self._held, more], axis=1) if self._held.size else more
        first = int(np.searchsorted(held[2], self._position))
        messages.release(held[0, :first])
        self._held = held[:, first:]

    def _note(self, error: np.ndarray) -> None:
        """Record an error that librdkafka returned instead of a message, or the end of the partition."""
        code, offset, text = messages.read_error(error[0])
        messages.release(error)
        if code == KafkaError._PARTITION_EOF:
            self.ended = time.monotonic()
            self.reached = max(self.reached, offset)
        else:
            self.errors.append((code, text))
