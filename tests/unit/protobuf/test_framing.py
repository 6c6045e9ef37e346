"""Frames of arbitrary bytes: what we read is what the official client reads; what we refuse is no frame."""

import io
import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.catalog import SchemaKey
from spark_app.protobuf import framing
from tests.support.cost import least_cpu
from tests.support.examples import examples
from tests.support.frames import frame, headers_of

BYTES = st.binary(max_size=40)
NEAR_FRAMES = st.builds(
    lambda magic, number, index, rest: magic + number + index + rest,
    st.sampled_from([b"\0", b"\0", b"\0", b"\1"]),
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.binary(max_size=12)
    | st.sampled_from([b"", b"\0", b"\2\0", b"\2\2", b"\4\2\6", b"\1", b"\x80", b"\x82\0\x84\0"]),
    st.binary(max_size=8),
)
INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=framing.DEEPEST_INDEX)
KEYS = st.integers(0, 2**32 - 1) | st.uuids().map(str)
FRAMES = st.builds(frame, KEYS, st.binary(max_size=8), INDEXES)


Read = tuple[SchemaKey, tuple[int, ...], bytes]


def read_officially(value: bytes) -> Read | None:
    """(schema id or GUID, message index, payload) as Confluent's client reads them; None where it finds no frame."""
    found = SchemaId("PROTOBUF")
    try:
        rest = found.from_bytes(io.BytesIO(value))
    except (SerializationError, EOFError, struct.error, ValueError, IndexError, OverflowError, MemoryError):
        return None
    if not found.message_indexes:
        return None
    return (str(found.guid) if found.guid else found.id), tuple(found.message_indexes), rest.read()


def read(values: pa.Array, headers: pa.Array = None, bare: framing.UnframedSchema | None = None) -> list[Read | None]:
    frames = framing.split(values, headers, bare=bare)
    return [
        (frames.key_of(row), frames.indexes[frames.index[row]], value[frames.body[row] :])
        if frames.status[row] == framing.OK
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


@pytest.mark.parametrize("header", [b"\0\0\0\0\7", b"\1" + bytes(16)])
def test_a_frame_that_ends_before_its_message_index_is_short(header: bytes) -> None:
    """The bytes behind it are those of the next value."""
    frames = framing.split(pa.array([header, b"\0" * 24, header + b"\0"], pa.binary()))
    assert frames.status[0] == framing.SHORT
    assert frames.status[2] == framing.OK


@given(st.lists(FRAMES, max_size=12))
@examples()
def test_every_official_frame_is_read(values: list[bytes]) -> None:
    assert read(pa.array(values, pa.binary())) == [read_officially(value) for value in values]


@given(st.lists(st.none() | BYTES | NEAR_FRAMES | FRAMES, max_size=12))
@examples()
def test_what_is_refused_is_no_frame_of_any_schema(values: list[bytes | None]) -> None:
    """The official client also reads indexes that no file can have: negative, or deeper than protoc nests."""
    frames = framing.split(pa.array(values, pa.binary()))
    for value, status, schema_id in zip(values, frames.status, frames.schema, strict=True):
        assert (status == framing.TOMBSTONE) == (value is None)
        if status == framing.OK or value is None:
            continue
        assert (schema_id == framing.NO_SCHEMA) == (status != framing.WRONG_INDEX)
        official = read_officially(value)
        assert official is None or _names_no_message(official[1]) or _has_long_varint(value)


def _names_no_message(index: tuple[int, ...]) -> bool:
    return len(index) > framing.DEEPEST_INDEX or min(index) < 0


def _has_long_varint(value: bytes) -> bool:
    """Whether a number of the index takes more bytes than 32 bits need."""
    run = 0
    for byte in value[(framing.GUID_HEADER if value[:1] == b"\1" else framing.ID_HEADER) :]:
        run = run + 1 if byte >= 0x80 else 0
        if run >= 5:
            return True
    return False


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b"", framing.SHORT),
        (b"\0\0\0\0\1", framing.SHORT),
        (b"\2\0\0\0\1\0", framing.WRONG_MAGIC),
        (b"\1" + bytes(16), framing.SHORT),
        (b"\1" + bytes(17), framing.OK),
        (b"\0\0\0\0\1\x80", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\1", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\2\1", framing.WRONG_INDEX),
        (b"\0\0\0\0\1\0", framing.OK),
    ],
    ids=[
        "empty",
        "no index",
        "magic 2",
        "GUID without index",
        "GUID",
        "cut varint",
        "negative count",
        "negative position",
        "empty payload",
    ],
)
def test_statuses(value: bytes, status: int) -> None:
    assert framing.split(pa.array([value], pa.binary())).status.tolist() == [status]


def test_thousands_of_message_indexes_cost_little() -> None:
    values = pa.array([frame(1, b"", (number, number)) for number in range(10_000)], pa.binary())
    assert len(framing.split(values).indexes) == 10_001  # and [0]
    assert least_cpu(lambda: framing.split(values)) < 1


def test_no_records() -> None:
    assert read(pa.array([], pa.binary())) == []
    assert read(pa.array([None], pa.binary())) == [None]


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["__value_schema_id", "trace", '"key":"__value_schema_id","value":"AA"']), st.binary(max_size=6)
    ),
    max_size=3,
)


@given(st.lists(st.tuples(HEADERS, st.none() | st.tuples(KEYS, INDEXES), st.none() | BYTES | FRAMES), max_size=8))
@examples()
def test_a_header_that_names_the_schema_comes_before_the_frame(records: list[Any]) -> None:
    headers, values, due = [], [], []
    for others, named, value in records:
        if named is None:
            others = [item for item in others if item[0] != framing.VALUE_HEADER]
        else:
            others = [*others, (framing.VALUE_HEADER, frame(named[0], b"", named[1]))]
        headers.append(others)
        values.append(value)
        due.append(
            None
            if value is None
            else (named[0], tuple(named[1]), value)
            if named
            else read(pa.array([value], pa.binary()))[0]
        )
    assert read(pa.array(values, pa.binary()), headers_of(headers)) == due


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\2\0\0\0\1\0", b"\1" + bytes(15)])
def test_a_header_that_names_no_schema_is_refused(data: bytes) -> None:
    frames = framing.split(pa.array([frame(1, b"x")], pa.binary()), headers_of([[(framing.VALUE_HEADER, data)]]))
    assert (frames.status.tolist(), frames.schema.tolist()) == ([framing.WRONG_HEADER], [framing.NO_SCHEMA])


GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


@pytest.mark.parametrize(("head", "key"), [(b"\0\0\0\0\7", 7), (b"\1" + GUID.bytes, str(GUID))])
@pytest.mark.parametrize("rest", [b'{"a": 1}', b"\x80", b"\1"], ids=["JSON", "cut off", "negative"])
def test_a_frame_whose_index_cannot_be_read_still_names_its_schema(head: bytes, key: SchemaKey, rest: bytes) -> None:
    frames = framing.split(pa.array([frame(1, b"x"), head + rest, frame(key, b"y")], pa.binary()))
    assert frames.status.tolist() == [framing.OK, framing.WRONG_INDEX, framing.OK]
    assert [frames.key_of(row) for row in range(3)] == [1, key, key]
    assert sorted(group.tolist() for group in frames.groups()) == [[0], [1], [2]]


@pytest.mark.parametrize(("head", "key"), [(b"\0\0\0\0\7", 7), (b"\1" + GUID.bytes, str(GUID))])
@pytest.mark.parametrize("rest", [b"", b"\x80"], ids=["none, as of JSON and Avro", "cut off"])
def test_a_header_without_a_message_index_still_names_the_schema(head: bytes, key: SchemaKey, rest: bytes) -> None:
    headers = headers_of([[(framing.VALUE_HEADER, head + rest)]])
    frames = framing.split(pa.array([b'{"a": 1}'], pa.binary()), headers)
    assert (frames.status.tolist(), frames.key_of(0)) == ([framing.WRONG_HEADER], key)


@given(st.lists(st.none() | BYTES | FRAMES, max_size=8))
@examples()
def test_with_a_schema_for_bare_records_only_broken_frames_are_refused(values: list[bytes | None]) -> None:
    """No Protobuf payload begins with byte 0 or 1, so whatever does is a frame."""
    framed = read(pa.array(values, pa.binary()))
    found = read(pa.array(values, pa.binary()), bare=(7, (0, 1)))
    for value, before, now in zip(values, framed, found, strict=True):
        bare = value is not None and value[:1] not in (b"\0", b"\1")
        assert now == ((7, (0, 1), value) if bare else before)
