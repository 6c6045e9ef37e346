"""The messages of one partition, in the order of their offsets."""

from __future__ import annotations

import time

import numpy as np
from confluent_kafka import KafkaError

from spark_app.kafka.consumer import librdkafka, messages

NEAR = 50_000  # offsets: less than that is skipped message by message, for to fetch anew costs more
NONE = np.empty((3, 0), np.int64)


class Queue:
    """Fetched by librdkafka from `start` on, until it is stopped.

    Attributes:
        reached: nothing before this offset is still to come.
        ended: since when the partition has ended and nothing came after that, by `time.monotonic`; None = it goes on.
        used: when it was last read.
        errors: codes and words, but for the end of the partition.
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

    def skip_to(self, start: int) -> bool:
        """Go on with that offset; False where it has to be fetched anew."""
        if start < self._position or start > self.reached + NEAR:
            return False
        self._position = start
        self._hold(NONE)
        return True

    def has_full_batch(self, end: int, most_records: int, most_bytes: int) -> bool:
        """Whether `take` gives as much as it may, or all there is before `end`."""
        sizes = self._held[1]
        return self.reached >= end or len(sizes) >= most_records or int(sizes.sum()) >= most_bytes

    def take(self, end: int, most_records: int, most_bytes: int) -> np.ndarray:
        """Addresses and offsets of the next messages before `end`: of so many bytes, or one."""
        _, sizes, offsets = self._held
        count = min(int(np.searchsorted(offsets, end)), most_records)
        fitting = int(np.searchsorted(np.cumsum(sizes[:count]), most_bytes, "right"))
        count = min(count, max(fitting, 1))
        taken, self._held = self._held[:, :count], self._held[:, count:]
        if count:
            self._position = int(taken[2, -1]) + 1
        return taken[::2]

    def receive(self, into: np.ndarray, most: int, wait_ms: int) -> bool:
        """Take over what librdkafka has fetched, at most so many messages; False when nothing came."""
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
        """Fetch no more, and give back what is held."""
        messages.release(self._held[0])
        self._held = NONE
        librdkafka.consume_stop(self._topic, self._partition)

    def _hold(self, more: np.ndarray) -> None:
        """Keep the messages as well, without those that nobody asks for."""
        held = np.concatenate([self._held, more], axis=1) if self._held.size else more
        first = int(np.searchsorted(held[2], self._position))
        messages.release(held[0, :first])
        self._held = held[:, first:]

    def _note(self, error: np.ndarray) -> None:
        """What came in the place of a message."""
        code, offset, text = messages.read_error(error[0])
        messages.release(error)
        if code == KafkaError._PARTITION_EOF:
            self.ended = time.monotonic()
            self.reached = max(self.reached, offset)
        else:
            self.errors.append((code, text))
