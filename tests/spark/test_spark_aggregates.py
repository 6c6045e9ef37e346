"""What workers aggregate by themselves is what Spark SQL gives: the same rows, columns, types and nullability."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_app.followers.gold import aggregates, worker_tasks
from spark_app.followers.gold.compute import AggregateComputer
from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake.files.local import LocalStorage
from spark_app.settings.models import Settings

pytestmark = pytest.mark.spark
TIME = pa.timestamp("us", "UTC")
FIRST, LAST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime.max.replace(tzinfo=datetime.UTC)
MOST, LEAST = 2**63 - 1, -(2**63)
TEXTS = ["", "a", "A", "ab", "ä", "é", "e\u0301", "ß", "Ω", "中", "\U0001f600", "\uffff", "\x00", "a\x00", "z" * 300]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [MOST, MOST, LEAST, 0, 1, -1, 7]),
    "n": (pa.int32(), [2**31 - 1, -(2**31), 0, 5]),
    "t": (TIME, [FIRST, LAST, datetime.datetime(1582, 10, 10, tzinfo=datetime.UTC), datetime.datetime(1970, 1, 1)]),
    "d": (pa.date32(), [datetime.date.min, datetime.date.max, datetime.date(1582, 10, 10)]),
    "b": (pa.bool_(), [True, False]),
    "s": (pa.string(), TEXTS),
    "y": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
    "u": (pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(0), Decimal(9), Decimal(10)]),
    "f": (pa.float64(), [float("nan"), -0.0, 0.0, 1.5]),
}
KEYS = ["i", "n", "b", "s", "y"]
ORDERED = ["i", "n", "t", "d", "b", "s", "y", "u"]
MADE = (
    [("every", "count", None)]
    + [(f"count_{name}", "count", name) for name in VALUES]
    + [(f"sum_{name}", "sum", name) for name in ("i", "n")]
    + [(f"{function}_{name}", function, name) for function in ("min", "max") for name in ORDERED]
)


def fields_of(key: str) -> pa.Schema:
    """Of all tables here."""
    return pa.schema([(name, kind) for name, (kind, _) in sorted({**VALUES, "k": VALUES[key]}.items())])


def calculator(spark: SparkSession, folder: Path, key: str) -> AggregateComputer:
    declared = {name: {"function": function, "field": field} for name, function, field in MADE}
    declared = {name: {k: v for k, v in how.items() if v is not None} for name, how in declared.items()}
    settings = Settings(event={"key": key, "time": "t"}, gold={"aggregates": declared})
    return AggregateComputer(spark, LocalStorage(folder), settings.layout, GoldSpec.all_of(settings)[0])


def values(draw: random.Random, key: str, rows: int) -> pa.Table:
    """Few keys, so that they have many rows; NULLs now and then, or everywhere."""
    columns = {}
    for name, (kind, known) in {**VALUES, "k": VALUES[key]}.items():
        share = draw.choice([0.0, 0.3, 1.0])
        some = draw.sample(known, min(len(known), draw.randint(1, 4)))
        columns[name] = pa.array([None if draw.random() < share else draw.choice(some) for _ in range(rows)], kind)
    for name in draw.sample(sorted(columns), draw.choice([0, 0, 2, len(columns) - 1])):
        del columns[name]  # a file of an older schema
    return pa.table(columns)


def files(root: Path, turn: str, draw: random.Random, key: str, tables: int) -> dict[str, list[str]]:
    """Of each table some files, of which some are empty; keys by routing name."""
    found: dict[str, list[str]] = {}
    for number in range(tables):
        table = f"{turn}/silver_g{number}_events"
        (root / table).mkdir(parents=True)
        for file in range(draw.randint(1, 3)):
            pq.write_table(values(draw, key, draw.choice([0, 1, 2, 40])), root / table / f"{file}.parquet")
            found.setdefault(f"g{number}", []).append(f"{table}/{file}.parquet")
    return found


def by_key(rows: pa.Table) -> dict[Any, list[Any]]:
    found = {row[0]: list(row[1:]) for row in zip(*[column.to_pylist() for column in _plain(rows)], strict=True)}
    assert len(found) == rows.num_rows
    return found


def _plain(rows: pa.Table) -> list[pa.ChunkedArray]:
    """Times as numbers: Python has no words for all of them."""
    return [column.cast(pa.int64()) if column.type == TIME else column for column in rows.columns]


def same(first: dict[str, pa.Table], second: dict[str, pa.Table]) -> None:
    assert first.keys() == second.keys()
    for name, rows in first.items():
        assert rows.schema.equals(second[name].schema, check_metadata=True), (rows.schema, second[name].schema)
        assert by_key(rows) == by_key(second[name])


@pytest.fixture
def nothing_by_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Switches to Spark SQL, and back."""
    is_exact_in_arrow = aggregates.Grouping.is_exact_in_arrow
    return lambda off: monkeypatch.setattr(
        aggregates.Grouping, "is_exact_in_arrow", (lambda _: False) if off else is_exact_in_arrow
    )


@pytest.mark.parametrize("key", KEYS)
def test_workers_give_what_spark_sql_gives(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_by_workers: Callable[[bool], None],
    key: str,
) -> None:
    draw = random.Random(key)
    fields = fields_of(key)
    asked = calculator(spark, tmp_path, "k")
    monkeypatch.setattr(worker_tasks, "TASK_BYTES", 256 << 10)  # two tasks, which share a table
    kinds = set()
    for turn in range(3):
        found = files(tmp_path, str(turn), draw, key, 8)
        of = dict.fromkeys(found, fields)
        nothing_by_workers(True)
        expected = asked.of_files(found, of)
        nothing_by_workers(False)
        with monkeypatch.context() as alone:
            alone.setattr(asked, "_collect", None)  # Spark SQL is not asked
            actual = asked.of_files({name: found[name] for name in expected.parts}, of)
        assert (expected.failed, actual.failed) == ({}, {})
        same(actual.parts, expected.parts)
        kinds |= {part.schema.field("sum_i").type for part in expected.parts.values()}
    assert kinds == {pa.int64(), pa.decimal128(38, 0)}


def test_a_dead_worker_leaves_its_tables_to_spark_sql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(*_: object) -> None:  # as the kernel lets a worker where memory is short
        os._exit(9)

    found = files(tmp_path, "0", random.Random(1), "s", 2)
    of = dict.fromkeys(found, fields_of("s"))
    asked = calculator(spark, tmp_path, "k")
    expected = asked.of_files(found, of)
    monkeypatch.setattr(worker_tasks, "_reduce", die)
    actual = asked.of_files(found, of)
    assert (expected.failed, actual.failed) == ({}, {})
    same(actual.parts, expected.parts)
    assert "workers could not aggregate" in capsys.readouterr().err
