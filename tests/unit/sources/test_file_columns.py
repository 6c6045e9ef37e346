"""The columns of files of records, in each form that they may have."""

from __future__ import annotations

import base64
import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from spark_app.model.record_schemas import OMITTED_SCHEMA, SOURCE_SCHEMA
from spark_app.sources.files.columns import SourceColumns, leave_out

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")
FILE_US = 5_000_000
HEADERS = '[{"key":"h","value":"dg=="},{"key":"none","value":null}]'


NOT_UTF8 = pa.array([b"\xff\xfe", b"YQ==", None]).view(pa.string())  # as writers do that check nothing
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def read(**columns: pa.Array) -> list[dict[str, Any]]:
    batch = COLUMNS.from_parquet(pa.record_batch(columns), "plays", 7, FILE_US)
    assert batch.schema == SOURCE_SCHEMA
    return batch.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a", None], pa.binary()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([b"a", None], pa.binary(1)),
        pa.array([b"a", None], pa.binary()).dictionary_encode(),
        pa.array(["YQ==", None]),
        pa.array(["YQ==", None]).dictionary_encode(),
        pa.array(["YQ==", None], pa.large_string()),
    ],
)
def test_values_are_bytes_or_base64(values: pa.Array) -> None:
    assert COLUMNS.problem(pa.schema([("value", values.type)])) is None
    rows = read(value=values, key=values)
    assert [(row["key"], row["value"], row["offset"], row["topic"]) for row in rows] == [
        (b"a", b"a", 7, "plays"),
        (None, None, 8, "plays"),
    ]


def test_a_text_that_is_not_base64_stays_as_it_is() -> None:
    assert [row["value"] for row in read(value=pa.array(["a b", "ä"]))] == [b"a b", "ä".encode()]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_text_that_is_not_utf_8_stays_as_it_is(kind: pa.DataType) -> None:
    texts = NOT_UTF8.dictionary_encode() if pa.types.is_dictionary(kind) else NOT_UTF8.cast(kind)
    rows = read(value=texts, key=texts)
    assert [(row["key"], row["value"]) for row in rows] == [(b"\xff\xfe", b"\xff\xfe"), (b"a", b"a"), (None, None)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1_700_000_000_000], pa.int64()), 1_700_000_000_000_000),
        (pa.array([1_700_000_000_000_000], pa.timestamp("us")), 1_700_000_000_000_000),
        (pa.array([1_700_000_000_000_000_999], pa.timestamp("ns", "Europe/Berlin")), 1_700_000_000_000_000),
        (pa.array([1_700_000_000], pa.timestamp("s", "UTC")), 1_700_000_000_000_000),
        (pa.array([1_700_000_000_000], pa.uint64()), 1_700_000_000_000_000),
    ],
)
def test_timestamps_of_any_unit(times: pa.Array, expected: int) -> None:
    batch = COLUMNS.from_parquet(pa.record_batch({"value": pa.array([b""]), "timestamp": times}), "t", 0, FILE_US)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected]
    assert batch.column("timestamp_type").to_pylist() == [0]


@pytest.mark.parametrize(
    ("times", "year"),
    [
        (pa.array([1_700_000_000_000_000_000, None], pa.int64()), 9999),  # nanoseconds
        (pa.array([2**64 - 1, None], pa.uint64()), 9999),
        (pa.array([2**62, None], pa.timestamp("ms")), 9999),
        (pa.array([-(2**63), None], pa.timestamp("s")), 1),
        (pa.array([-(2**63), None], pa.timestamp("us", "UTC")), 1),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_time_that_readers_fail_on_is_bounded(times: pa.Array, year: int) -> None:
    given = pa.record_batch({"value": pa.array([b""] * 2), "timestamp": times})
    batch = COLUMNS.from_parquet(given, "t", 0, FILE_US)
    first, second = batch.to_pylist()
    assert (first["timestamp"].year, second["timestamp"].year, first["timestamp_type"]) == (year, 1970, 0)
    assert pl.from_arrow(batch)["timestamp"].to_list()[0].year == year


def test_the_last_microsecond_of_a_text_is_exact() -> None:
    [row] = lines('{"value": "YQ==", "timestamp": "9999-12-31T23:59:59.999999Z"}')
    assert row["timestamp"].isoformat() == "9999-12-31T23:59:59.999999+00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1711012412345", 1_711_012_412_345_000),
        ("17110124", 17_110_124_000),
        ("-7", -7000),
        ("9" * 30, 253_402_300_799_999_000),
        ("-62135596800001", -62_135_596_800_000_000),
        ("20240321T000000Z", 1_710_979_200_000_000),
    ],
)
def test_a_text_of_digits_is_milliseconds(text: str, expected: int) -> None:
    batch = COLUMNS.from_lines([(0, f'{{"value": "YQ==", "timestamp": "{text}"}}'.encode())], "t", FILE_US)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected]
    assert batch.column("timestamp_type").to_pylist() == [0]


def test_a_record_without_a_timestamp_has_that_of_its_file() -> None:
    batch = COLUMNS.from_parquet(pa.record_batch({"value": pa.array([b""])}), "t", 0, FILE_US)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [FILE_US]
    assert batch.column("timestamp_type").to_pylist() == [-1]


def test_headers_of_spark_and_of_bronze_are_the_same() -> None:
    listed = pa.array([[{"key": "h", "value": b"v"}, {"key": "none", "value": None}], [], None], pa.list_(HEADER))
    texts = pa.array([HEADERS, "[]", None])
    for headers in (listed, texts):
        assert [row["headers"] for row in read(value=pa.array([b""] * 3), headers=headers)] == [HEADERS, None, None]


def test_headers_that_are_none_are_kept_as_one() -> None:
    for text in (b"x=1", b"\xff\xfe", b'[{"key":"\xff","value":null}]'):
        (row,) = read(value=pa.array([b""]), headers=pa.array([text]).view(pa.string()))
        assert json.loads(row["headers"]) == [{"key": "headers", "value": base64.b64encode(text).decode()}]


@pytest.mark.parametrize("kind", [pa.list_(HEADER), pa.large_list(HEADER), pa.list_(HEADER, 1)])
def test_headers_may_be_in_a_list_of_any_kind(kind: pa.DataType) -> None:
    assert COLUMNS.problem(pa.schema([("value", pa.binary()), ("headers", kind)])) is None
    headers = pa.array([[{"key": "h", "value": b"v"}], None], kind)
    rows = read(value=pa.array([b""] * 2), headers=headers)
    assert [row["headers"] for row in rows] == ['[{"key":"h","value":"dg=="}]', None]


def test_text_in_a_list_of_headers_need_not_be_utf_8() -> None:
    keys = pa.array([b"\xff", b"k", b"z"]).view(pa.string())
    for values in (NOT_UTF8, NOT_UTF8.dictionary_encode()):
        structs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
        rows = read(
            value=pa.array([b""] * 2), headers=pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), structs)
        )
        assert [json.loads(row["headers"]) for row in rows] == [
            [{"key": "b'\\xff'", "value": "//4="}],
            [{"key": "k", "value": "WVE9PQ=="}, {"key": "z", "value": None}],
        ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"key": pa.binary()}, "it has no column value (source.value)"),
        ({"value": pa.int64()}, "its column value is neither binary nor text but int64"),
        ({"value": pa.binary(), "key": pa.float64()}, "its column key is neither binary nor text but double"),
        (
            {"value": pa.binary(), "timestamp": pa.string()},
            "its column timestamp is neither a timestamp nor an integer",
        ),
        ({"value": pa.binary(), "headers": pa.int8()}, "its column headers is neither text nor a list but int8"),
    ],
)
def test_other_columns_are_named(schema: dict[str, pa.DataType], why: str) -> None:
    assert (COLUMNS.problem(pa.schema(list(schema.items()))) or "").startswith(why)


def lines(*given: str) -> list[dict[str, Any]]:
    batch = COLUMNS.from_lines([(n, line.encode()) for n, line in enumerate(given)], "plays", FILE_US)
    assert batch.schema == SOURCE_SCHEMA
    return batch.to_pylist()  # type: ignore[no-any-return]


def test_a_line_is_a_record() -> None:
    (row,) = lines(
        f'{{"value": "YQ==", "key": "aw==", "headers": {HEADERS}, "timestamp": "2026-01-01T01:00:00+01:00"}}'
    )
    assert (row["key"], row["value"], row["headers"]) == (b"k", b"a", HEADERS)
    assert (row["timestamp"].isoformat(), row["timestamp_type"]) == ("2026-01-01T00:00:00+00:00", 0)
    (row,) = lines('{"value": null, "timestamp": 1000}')
    assert (row["value"], row["timestamp"].timestamp()) == (None, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "{}",
        '{"value": 7}',
        '{"value": "a b"}',
        '{"value": "YQ==", "key": {}}',
        '{"value": "YQ==", "headers": {"a": 1}}',
        '{"value": "YQ==", "headers": [{"key": "h", "value": "?"}]}',
        '{"value": "YQ==", "timestamp": true}',
        '{"value": "YQ==", "timestamp": "noon"}',
        '{"value": "YQ==", "headers": [{"key": "\\ud800", "value": null}]}',
        "[" * 100_000,
        "\ud7ff",
    ],
)
def test_a_line_that_is_no_record_is_kept_as_a_value(line: str) -> None:
    (row,) = lines(line)
    assert (row["value"], row["key"], row["headers"], row["timestamp_type"]) == (line.encode(), None, None, -1)


def test_a_large_value_is_left_out() -> None:
    batch = COLUMNS.from_parquet(pa.record_batch({"value": pa.array([b"abc", b"abcd", None])}), "t", 0, FILE_US)
    assert leave_out(batch, 4) is batch
    found = leave_out(batch, 3)
    assert found.schema.names == [*SOURCE_SCHEMA.names, *OMITTED_SCHEMA.names]
    assert found.column("value").to_pylist() == [b"abc", None, None]
    assert found.column("omitted_bytes").to_pylist() == [None, 4, None]
