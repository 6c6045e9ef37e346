"""Expressions of silver give values of types that tables have, hashes that are those of the standard, and else NULL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.definitions import Projection
from spark_app.tables.projections.row_projections import project
from tests.support.examples import examples
from tests.support.frames import batch_of
from tests.support.projections import GROWN, UNO, event, faults, hashed, lake_of, rows

MOMENT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("latency_ms::TINYINT", pa.int64(), 7),
        ("latency_ms::FLOAT", pa.float64(), 7.0),
        ("large", pa.decimal128(20, 0), Decimal(2**64 - 1)),
        ("large::HUGEINT + 1", pa.decimal128(38, 0), Decimal(2**64)),
        ("latency_ms::DECIMAL(9, 2)", pa.decimal128(9, 2), Decimal("7.00")),
        ("TIMESTAMP '2026-01-02 03:04:05'", MOMENT, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("_kafka_timestamp::DATE", pa.date32(), date(2023, 11, 14)),
        ("TIMESTAMP '290000-01-01'", MOMENT, None),
        ("encode(gamer_id)", pa.binary(), b"a"),
        ("[gamer_id, NULL]", pa.list_(pa.string()), ["a", None]),
        ("map {gamer_id: latency_ms::INTEGER}", pa.map_(pa.string(), pa.int64()), [("a", 7)]),
        ("{'x': 1, 'y': {'z': gamer_id}}", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]),
         {"x": 1, "y": {"z": "a"}}),
        ("array_value(1.5, 2)::DOUBLE[2]", pa.list_(pa.float64()), [1.5, 2.0]),
        ("gamer_id::INTEGER", pa.int64(), None),
        ("to_json({'a': gamer_id})", pa.string(), '{"a":"a"}'),
        ("hmac(latency_ms)", pa.string(), hashed("7")),
        ("hmac(large)", pa.string(), hashed(str(2**64 - 1))),
        ("hmac(lower(gamer_id) || '\\x41é')", pa.string(), hashed("a\\x41é")),
        ("list_transform([gamer_id], lambda x: hmac(x))", pa.list_(pa.string()), [hashed("a")]),
        ("hmac(home.zip)", pa.string(), None),
        ("CASE WHEN hmac(ssn) IS NULL THEN 'none' END", pa.string(), None),
        ("repeat(gamer_id, 5000000000)", pa.string(), None),
    ],
)  # fmt: skip
def test_types_are_those_that_tables_have(tmp_path: Path, text: str, kind: pa.DataType, value: Any) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"made": text}})
    lake.take(batch_of([event("uno", "a", GROWN, latency_ms=7, large=2**64 - 1)]))
    table = DeltaTable(str(lake.lake.path(UNO)))
    assert pa.schema(table.schema().to_arrow()).field("made").type == kind
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.to_pyarrow_table()["made"].to_pylist() == [value]
    assert pl.read_delta(str(lake.lake.path(UNO))).height == 1
    assert faults(lake) == {}


@pytest.mark.parametrize("length", [16, 63, 64, 65, 200])
def test_hmac_is_that_of_the_standard(tmp_path: Path, length: int) -> None:
    key = bytes(range(1, 256))[:length]
    lake = lake_of(tmp_path / "lake", {"columns": {"made": "hmac(gamer_id)", "too": "hmac('' || gamer_id)"}}, key=key)
    texts = ["", "a", "é\0", "x" * 1000]
    lake.take(batch_of([event("uno", text) for text in texts]))
    assert rows(lake, UNO, "made", "too") == [(hashed(text, key),) * 2 for text in texts]
    assert faults(lake) == {}


@given(texts=st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=30), key=st.binary(min_size=16, max_size=99))
@examples(0.2)
def test_hashes_of_any_text(texts: list[str | None], key: bytes) -> None:
    table = pa.table({"x": pa.array(texts, pa.string()), "_topic": pa.array(["t"] * len(texts))})
    projection = Projection((("bare", "hmac(x)"), ("inner", "hmac(x || '')")))
    made = project(table, projection, table.schema, key)
    due = [None if text is None else hashed(text, key) for text in texts]
    assert made["bare"].to_pylist() == made["inner"].to_pylist() == due


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[make_timestamp(latency_ms), NULL, TIMESTAMP '2020-01-01']", [None, None, "2020-01-01"]),
        ("[DATE '20000-01-01', DATE '2020-01-01']", [None, "2020-01-01"]),
        ("{'a': make_timestamp(latency_ms), 'b': [[DATE '20000-01-01']]}", {"a": None, "b": [[None]]}),
        ("map(['x'], [make_timestamp(latency_ms)])", {"x": None}),
        ("map([make_timestamp(latency_ms)], ['x'])", None),
        ("gamer_id::TIMESTAMP_NS", "2020-01-01 00:00:00.123457+00:00"),
        ("[gamer_id::TIMESTAMP_NS]", ["2020-01-01 00:00:00.123457+00:00"]),
    ],
)
def test_moments_that_no_reader_knows_are_null_at_any_depth(tmp_path: Path, expression: str, expected: Any) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"made": expression}})
    lake.take(batch_of([event("uno", "2020-01-01 00:00:00.123456789", latency_ms=2**62)]))
    [(made,)] = rows(lake, UNO, "made")
    assert _texts(made) == _texts(expected)
    assert faults(lake) == {}


def _texts(value: Any) -> Any:
    """The value with times as text, and midnight as its date."""
    if isinstance(value, dict):
        return {name: _texts(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return None if value is None else str(value).removesuffix(" 00:00:00+00:00")
