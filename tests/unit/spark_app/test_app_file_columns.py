"""The columns of files of records, in each form that they may have."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from spark_app.intake.columns_of_source import SourceColumns, leave_out
from spark_app.model.record_schemas import OMITTED_SCHEMA, SOURCE_SCHEMA

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")
FILE_US = 5_000_000
HEADERS = '[{"key":"h","value":"dg=="},{"key":"none","value":null}]'


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


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1_700_000_000_000], pa.int64()), 1_700_000_000_000_000),
        (pa.array([1_700_000_000_000_000], pa.timestamp("us")), 1_700_000_000_000_000),
        (pa.array([1_700_000_000_000_000_999], pa.timestamp("ns", "Europe/Berlin")), 1_700_000_000_000_000),
        (pa.array([1_700_000_000], pa.timestamp("s", "UTC")), 1_700_000_000_000_000),
        (pa.array([2**62], pa.timestamp("ms")), (2**63 // 1000 - 1) * 1000),
        (pa.array([-(2**63)], pa.timestamp("s")), -(2**63 // 10**6 - 1) * 10**6),
    ],
)
def test_timestamps_of_any_unit(times: pa.Array, expected: int) -> None:
    batch = COLUMNS.from_parquet(pa.record_batch({"value": pa.array([b""]), "timestamp": times}), "t", 0, FILE_US)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected]
    assert batch.column("timestamp_type").to_pylist() == [0]


def test_the_last_microsecond_of_a_text_is_exact() -> None:
    [row] = lines('{"value": "YQ==", "timestamp": "9999-12-31T23:59:59.999999Z"}')
    assert row["timestamp"].isoformat() == "9999-12-31T23:59:59.999999+00:00"


def test_a_record_without_a_timestamp_has_that_of_its_file() -> None:
    batch = COLUMNS.from_parquet(pa.record_batch({"value": pa.array([b""])}), "t", 0, FILE_US)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [FILE_US]
    assert batch.column("timestamp_type").to_pylist() == [-1]


def test_headers_of_spark_and_of_bronze_are_the_same() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    listed = pa.array([[{"key": "h", "value": b"v"}, {"key": "none", "value": None}], [], None], kind)
    texts = pa.array([HEADERS, "[]", None])
    for headers in (listed, texts):
        assert [row["headers"] for row in read(value=pa.array([b""] * 3), headers=headers)] == [HEADERS, None, None]


def test_headers_that_are_none_are_kept_as_one() -> None:
    (row,) = read(value=pa.array([b""]), headers=pa.array(["x=1"]))
    assert json.loads(row["headers"]) == [{"key": "headers", "value": base64.b64encode(b"x=1").decode()}]


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
