"""Frames of arbitrary bytes: what we read is what the official client reads; what we refuse is no frame."""

import io
import struct
import time

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from hypothesis import given
from hypothesis import strategies as st

from spark_app.worker import framing
from tests.support.examples import examples
from tests.support.frames import frame

BYTES = st.binary(max_size=40)
NEAR_FRAMES = st.builds(
    lambda magic, number, index, rest: magic + number + index + rest,
    st.sampled_from([b"\0", b"\0", b"\0", b"\1"]),
    st.binary(min_size=4, max_size=4),
    st.binary(max_size=12)
    | st.sampled_from([b"", b"\0", b"\2\0", b"\2\2", b"\4\2\6", b"\1", b"\x80", b"\x82\0\x84\0"]),
    st.binary(max_size=8),
)
FRAMES = st.builds(
    frame,
    st.integers(0, 2**32 - 1),
    st.binary(max_size=8),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=framing.DEEPEST_INDEX),
)


def read_officially(value: bytes) -> tuple[int, tuple[int, ...], bytes] | None:
    """(schema id, message index, payload) as Confluent's client reads them; None where it finds no such frame."""
    found = SchemaId("PROTOBUF")
    try:
        rest = found.from_bytes(io.BytesIO(value))
    except (SerializationError, EOFError, struct.error, ValueError, IndexError, OverflowError, MemoryError):
        return None
    if found.id is None or not found.message_indexes:
        return None
    return found.id, tuple(found.message_indexes), rest.read()


def read(values: pa.Array) -> list[tuple[int, tuple[int, ...], bytes] | None]:
    frames = framing.split(values)
    return [
        (int(frames.schema_id[row]), frames.indexes[frames.index[row]], value[frames.body[row] :])
        if frames.verdict[row] == framing.OK
        else None
        for row, value in enumerate(values.to_pylist())
    ]


@given(st.lists(st.none() | BYTES | NEAR_FRAMES | FRAMES, max_size=12), st.integers(0, 12))
@examples()
def test_what_is_read_is_what_the_official_client_reads(values: list[bytes | None], cut: int) -> None:
    for value, found in zip(values[cut:], read(pa.array(values, pa.binary()).slice(cut)), strict=True):
        if found is not None:
            assert value is not None
            assert found == read_officially(value)


@given(st.lists(FRAMES, max_size=12))
@examples()
def test_every_official_frame_is_read(values: list[bytes]) -> None:
    assert read(pa.array(values, pa.binary())) == [read_officially(value) for value in values]


@given(st.lists(st.none() | BYTES | NEAR_FRAMES | FRAMES, max_size=12))
@examples()
def test_what_is_refused_is_no_frame_of_any_schema(values: list[bytes | None]) -> None:
    """The official client also reads indexes that no file can have: negative, or deeper than protoc nests."""
    frames = framing.split(pa.array(values, pa.binary()))
    for value, verdict, schema_id in zip(values, frames.verdict, frames.schema_id, strict=True):
        assert (verdict == framing.TOMBSTONE) == (value is None)
        if verdict == framing.OK or value is None:
            continue
        assert schema_id == -1
        official = read_officially(value)
        assert official is None or _names_no_message(official[1]) or _has_long_varint(value)


def _names_no_message(index: tuple[int, ...]) -> bool:
    return len(index) > framing.DEEPEST_INDEX or min(index) < 0


def _has_long_varint(value: bytes) -> bool:
    """Whether a number of the index takes more bytes than 32 bits need."""
    run = 0
    for byte in value[framing.HEADER :]:
        run = run + 1 if byte >= 0x80 else 0
        if run >= 5:
            return True
    return False


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b"", framing.SHORT),
        (b"\0\0\0\0\1", framing.SHORT),
        (b"\1\0\0\0\1\0", framing.WRONG_MAGIC),
        (b"\0\0\0\0\1\x80", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\1", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\2\1", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\0", framing.OK),
    ],
    ids=["empty", "no index", "magic 1", "cut varint", "negative count", "negative position", "empty payload"],
)
def test_verdicts(value: bytes, verdict: int) -> None:
    assert framing.split(pa.array([value], pa.binary())).verdict.tolist() == [verdict]


def test_thousands_of_message_indexes_cost_little() -> None:
    values = pa.array([frame(1, b"", (number, number)) for number in range(10_000)], pa.binary())
    began = time.process_time()
    assert len(framing.split(values).indexes) == 10_001  # and [0]
    assert time.process_time() - began < 1


def test_no_records() -> None:
    assert read(pa.array([], pa.binary())) == []
    assert read(pa.array([None], pa.binary())) == [None]
