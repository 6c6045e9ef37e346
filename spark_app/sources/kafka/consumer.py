"""Reads spans of offsets from Kafka into Arrow batches; each span completely, or the read fails.

librdkafka continues to fetch a partition after the span, because the next unit usually starts there. Each partition has
a queue of its own. A span is read to its end before the next one, so that records stay in order.

The addresses of message structs, as numpy arrays of `uint64`, become Arrow columns. numba compiles the loops, so a
message takes only a few nanoseconds more than librdkafka itself needs. The loops are compiled at import, or loaded from
numba's cache, before workers are forked.

The reasons: docs/decisions/consumer.md, large-values.md.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from numba import carray, njit

from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.model.record_schemas import NUMBER, OMITTED_SCHEMA, SOURCE_SCHEMA, bounded_times
from spark_app.sources.kafka import broker_access, librdkafka
from spark_app.sources.kafka.librdkafka import MESSAGE, address, describe_message, message_destroy, message_timestamp


def measure(messages: np.ndarray, found: np.ndarray) -> int:
    """Fill the rows of `found` with address, bytes (value, key and headers) and offset of the messages before the first
    error. Returns the number of these messages."""
    return int(_measure(messages, found, np.empty(3, np.intp)))


@njit("int64(uint64[::1], int64[:, ::1], int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def _measure(messages: np.ndarray, found: np.ndarray, answer: np.ndarray) -> int:
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        if message.error:
            return number
        found[0, number] = messages[number]
        found[1, number] = message.value_bytes + message.key_bytes + librdkafka.measure(messages[number], answer)
        found[2, number] = message.offset
    return len(messages)


def read_error(message: int) -> tuple[int, int, str]:
    """(code, offset, text) of an error that librdkafka returned instead of a message."""
    found, text = _read(int(message)), describe_message(int(message))
    return int(found["error"]), int(found["offset"]), text.decode(errors="replace")


@njit(  # type: ignore[untyped-decorator]
    "int64(int64[::1], int64, int32[:, ::1], boolean[:, ::1], int64[::1], int32[::1], int32[::1])", cache=True
)
def _describe(
    messages: np.ndarray,
    most_value: int,
    ends: np.ndarray,
    absent: np.ndarray,
    times: np.ndarray,
    kinds: np.ndarray,
    answer: np.ndarray,
) -> int:
    """Fill `ends` with the offsets of values and keys, `absent` with their NULLs, and `times` and `kinds` with the
    timestamps in milliseconds and their types. Returns the number of values larger than `most_value`, which are left
    out."""
    omitted = 0
    ends[:, 0] = 0
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        large = message.value_bytes > most_value
        omitted += large
        ends[0, number + 1] = ends[0, number] + (0 if large else message.value_bytes)
        ends[1, number + 1] = ends[1, number] + message.key_bytes
        absent[0, number] = large or message.value == 0
        absent[1, number] = message.key == 0
        times[number] = message_timestamp(messages[number], answer.ctypes.data)
        kinds[number] = answer[0] - 1
    return omitted


@njit("void(int64[::1], int32[:, ::1], uint8[::1], uint8[::1])", cache=True)  # type: ignore[untyped-decorator]
def _copy(messages: np.ndarray, ends: np.ndarray, values: np.ndarray, keys: np.ndarray) -> None:
    for number in range(len(messages)):
        message = carray(address(messages[number]), 1, MESSAGE)[0]
        value = carray(address(message.value), message.value_bytes, np.uint8)
        first = ends[0, number]
        for position in range(ends[0, number + 1] - first):
            values[first + position] = value[position]
        key = carray(address(message.key), message.key_bytes, np.uint8)
        first = ends[1, number]
        for position in range(message.key_bytes):
            keys[first + position] = key[position]


@njit(["void(int64[::1])", "void(uint64[::1])"], cache=True)  # type: ignore[untyped-decorator]
def release(messages: np.ndarray) -> None:
    """Return the messages to librdkafka, which frees them."""
    for number in range(len(messages)):
        message_destroy(messages[number])


def to_batch(messages: np.ndarray, offsets: np.ndarray, topic: str, partition: int, most_value: int) -> pa.RecordBatch:
    """Messages of one partition, none of which is an error, as a batch of `SOURCE_SCHEMA`.

    Args:
        messages: addresses of messages with less than 2 GiB in total.
        most_value: bytes. A larger value is NULL in the batch, which then also has the columns of `OMITTED_SCHEMA`, as
            with a timestamp that is out of bounds it has `NUMBER`.
    """
    count = len(messages)
    ends, absent = np.empty((2, count + 1), np.int32), np.empty((2, count), np.bool_)
    times, kinds = np.empty(count, np.int64), np.empty(count, np.int32)
    omitted = _describe(messages, most_value, ends, absent, times, kinds, np.empty(1, np.int32))
    values, keys = np.empty(ends[0, -1], np.uint8), np.empty(ends[1, -1], np.uint8)
    _copy(messages, ends, values, keys)
    moments, numbers = bounded_times(pa.array(times), 1000)
    columns = [
        _binary(ends[1], keys, absent[1]),
        _binary(ends[0], values, absent[0]),
        librdkafka.read(messages),
        pa.repeat(pa.scalar(topic), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets),
        moments,
        pa.array(kinds),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SOURCE_SCHEMA)
    batch = batch if numbers.null_count == count else batch.append_column(NUMBER, numbers)
    return _with_omitted(batch, messages, most_value) if omitted else batch


def _with_omitted(batch: pa.RecordBatch, messages: np.ndarray, most_value: int) -> pa.RecordBatch:
    sizes: list[int | None] = []
    digests: list[str | None] = []
    for message in messages.tolist():
        found = _read(message)
        pointer, size = int(found["value"]), int(found["value_bytes"])
        data = (ctypes.c_char * size).from_address(pointer) if size > most_value else None
        sizes.append(None if data is None else size)
        digests.append(None if data is None else hashlib.sha256(data).hexdigest())
    columns = [*batch.columns, pa.array(sizes, pa.int64()), pa.array(digests, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *OMITTED_SCHEMA.names])


def _read(message: int) -> np.ndarray:
    data = (ctypes.c_char * MESSAGE.itemsize).from_address(message)
    found: np.ndarray = np.frombuffer(memoryview(data), MESSAGE)[0]
    return found


def _binary(ends: np.ndarray, data: np.ndarray, absent: np.ndarray) -> pa.Array:
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.Array.from_buffers(pa.binary(), len(absent), [valid, pa.py_buffer(ends), pa.py_buffer(data)])


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
        self._fetched = NONE  # addresses, bytes and offsets of messages
        self.reached = start
        self.ended: float | None = None
        self.used = time.monotonic()
        self.errors: list[tuple[int, str]] = []
        if librdkafka.consume_start(topic, partition, start):
            code = librdkafka.last_error()
            self.errors.append((code, librdkafka.describe(code).decode()))

    def continues_at(self, start: int) -> bool:
        """Whether this offset is the next one, or among those that were fetched and not popped."""
        return self._position <= start <= self.reached

    def skip_to(self, start: int) -> bool:
        """Continue at this offset; False if a new queue must be opened for it."""
        if start < self._position or start > self.reached + NEAR:
            return False
        self._position = start
        self._hold(NONE)
        return True

    def has_full_batch(self, end: int, most_records: int, most_bytes: int) -> bool:
        """Whether `pop` can return a full batch, or all messages before `end`."""
        sizes = self._fetched[1]
        return self.reached >= end or len(sizes) >= most_records or int(sizes.sum()) >= most_bytes

    def pop(self, end: int, most_records: int, most_bytes: int) -> np.ndarray:
        """Addresses and offsets of the next messages before `end`, within both limits; a larger message comes alone.

        Returns:
            An array with two rows: addresses and offsets. The caller releases the messages.
        """
        _, sizes, offsets = self._fetched
        count = min(int(np.searchsorted(offsets, end)), most_records)
        fitting = int(np.searchsorted(np.cumsum(sizes[:count]), most_bytes, "right"))
        count = min(count, max(fitting, 1))
        popped, self._fetched = self._fetched[:, :count], self._fetched[:, count:]
        if count:
            self._position = int(popped[2, -1]) + 1
        return popped[::2]

    def receive(self, into: np.ndarray, most: int, wait_ms: int) -> bool:
        """Take at most `most` messages that librdkafka has fetched; False if there are none within `wait_ms`."""
        count: int = librdkafka.consume_batch(
            self._topic, self._partition, wait_ms, into.ctypes.data, min(most, len(into))
        )
        received = into[: max(count, 0)]
        while len(received):
            found = np.empty((3, len(received)), np.int64)
            good = measure(received, found)
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
        release(self._fetched[0])
        self._fetched = NONE
        librdkafka.consume_stop(self._topic, self._partition)

    def _hold(self, more: np.ndarray) -> None:
        """Add messages to the queue, and release those before the current position."""
        fetched = np.concatenate([self._fetched, more], axis=1) if self._fetched.size else more
        first = int(np.searchsorted(fetched[2], self._position))
        release(fetched[0, :first])
        self._fetched = fetched[:, first:]

    def _note(self, error: np.ndarray) -> None:
        """Record an error that librdkafka returned instead of a message, or the end of the partition."""
        code, offset, text = read_error(error[0])
        release(error)
        if code == KafkaError._PARTITION_EOF:
            self.ended = time.monotonic()
            self.reached = max(self.reached, offset)
        else:
            self.errors.append((code, text))


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
                addresses, offsets = queue.pop(span.end, most_records, most_bytes)
                if not len(addresses):
                    break
                try:
                    batch = to_batch(addresses, offsets, span.topic, span.partition, most_value)
                finally:
                    release(addresses)
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
