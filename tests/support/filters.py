"""Random tables of every type that a message can have, and filters that must find in each engine what the engine's own
comparison finds in all rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from hypothesis import strategies as st

ROW = "row"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TIMESTAMP = pa.timestamp("us", "UTC")
BIG = pa.decimal128(20, 0)
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds of the years 1 to 9999

integers = st.sampled_from([0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
bigs = st.sampled_from([0, 5, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
reals = (
    st.sampled_from([0.0, -0.0, 1.0, -5.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]) | st.floats()
)
moments = st.sampled_from([FIRST, LAST, -1, 0, 1_577_836_800_000_001, 1_577_836_800_123_999]) | st.integers(FIRST, LAST)
letters = st.sampled_from(["a", "z", "\u00e9", "\u2028", "\uffff", "\U0001f600", "\U00020000", "\U0010ffff"])
texts = st.builds(lambda letter, times, end: letter * times + end, letters, st.integers(0, 70), st.just("") | letters)
texts |= st.sampled_from(["", " ", "'", "0", "\x7f", "a" * 5000])
blobs = st.binary(max_size=5) | st.sampled_from([b"", b"\x00", b"\xff" * 70, b"\x7f", b"\x80"])
SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), integers),
    (BIG, bigs.map(Decimal)),
    (pa.float64(), reals),
    (TIMESTAMP, moments),
    (pa.string(), texts),
    (pa.binary(), blobs),
    (pa.bool_(), st.booleans()),
]


@dataclass(frozen=True)
class Filter:
    """`path` compared with `value`, which has the type; or, without an operator, whether it is there."""

    path: tuple[str, ...]
    kind: pa.DataType
    operator: str
    value: Any

    def sql(self, dialect: type[Dialect]) -> str:
        column = dialect.path(self.path)
        return (
            f"{column} {self.operator} {dialect.literal(self.kind, self.value)}"
            if self.value is not None
            else (f"{column} {self.operator}")
        )


@st.composite
def kinds(draw: st.DrawFn) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type of `typemap` and its values."""
    kind, values = draw(st.sampled_from(SCALARS))
    shape = draw(st.sampled_from(["plain"] * 6 + ["struct", "deep", "list", "map"]))
    if shape in ("struct", "deep"):
        other, others = draw(st.sampled_from(SCALARS))
        inner = st.fixed_dictionaries({"f": st.none() | values, "g": st.none() | others})
        kind, values = pa.struct([("f", kind), ("g", other)]), inner
        if shape == "deep":
            kind, values = pa.struct([("s", kind)]), st.fixed_dictionaries({"s": st.none() | values})
    elif shape == "list":
        kind, values = pa.list_(kind), st.lists(values, max_size=3)
    elif shape == "map":
        kind, values = pa.map_(pa.string(), kind), st.lists(st.tuples(st.sampled_from("ab"), values), max_size=1)
    return kind, values


@st.composite
def units(draw: st.DrawFn) -> list[pa.Table]:
    """The rows of several units of one table: numbered, of a record each; columns come later, or not at all."""
    columns = {f"c{number}": draw(kinds()) for number in range(draw(st.integers(1, 5)))}
    filler = draw(st.sampled_from([0, 0, 0, 40]))
    made, row = [], 0
    for _ in range(draw(st.integers(2, 5))):
        count = draw(st.integers(1, 4))
        data = {ROW: pa.array(range(row, row + count), pa.int64())}
        data |= {f"w{number}": pa.nulls(count, pa.int64()) for number in range(filler)}
        for name, (kind, values) in columns.items():
            if draw(st.integers(0, 4)):
                data[name] = pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
        landed = pa.array([draw(moments)] * count, pa.int64()).cast(TIMESTAMP)
        made.append(pa.table(data | {"_offset": data[ROW], "_landed_at": landed}))
        row += count
    return made


def filters_of(rows: pa.Table) -> Iterator[Filter]:
    """For values that are there: each is equal to itself, and at most and at least one of its neighbours."""
    for field in rows.schema:
        yield from _filters((field.name,), field.type, rows.column(field.name).combine_chunks())


def _filters(path: tuple[str, ...], kind: pa.DataType, values: pa.Array) -> Iterator[Filter]:
    if len(path) == 1 and path[0].startswith("w"):
        return
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _filters((*path, kind.field(number).name), kind.field(number).type, values.flatten()[number])
    elif not pa.types.is_nested(kind):
        yield Filter(path, kind, "is null", None)
        yield Filter(path, kind, "is not null", None)
        there = values.drop_null()
        there = there.cast(pa.int64()) if kind == TIMESTAMP else there
        for value in dict.fromkeys(map(_key, there.to_pylist()[:3])):
            operators = ("=",) if kind == pa.bool_() else ("=", "<", "<=", ">", ">=")
            yield from (Filter(path, kind, operator, value[0]) for operator in operators)


def _key(value: Any) -> tuple[Any, str]:
    """NaN is not equal to itself, and 0.0 is to -0.0."""
    return value, repr(value)


class Dialect:
    """How an engine writes values in SQL."""

    @staticmethod
    def path(path: tuple[str, ...]) -> str:
        return ".".join(path)

    @staticmethod
    def text(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    @staticmethod
    def blob(value: bytes) -> str:
        return f"X'{value.hex()}'"

    @staticmethod
    def moment(micros: int) -> str:
        return f"timestamp_micros({micros})"

    @classmethod
    def literal(cls, kind: pa.DataType, value: Any) -> str:
        if kind == pa.string():
            return cls.text(value)
        if kind == pa.binary():
            return cls.blob(value)
        if kind == TIMESTAMP:
            return cls.moment(value)
        names = {
            pa.int64(): "bigint",
            pa.int32(): "int",
            BIG: "decimal(20, 0)",
            pa.float64(): "double",
            pa.bool_(): "boolean",
        }
        return f"cast('{str(value).replace('inf', 'Infinity')}' as {names[kind]})"


class Spark(Dialect):
    @staticmethod
    def text(value: str) -> str:
        return f"cast(X'{value.encode().hex()}' as string)"


class Duck(Dialect):
    @staticmethod
    def blob(value: bytes) -> str:
        return f"from_hex('{value.hex()}')"

    @staticmethod
    def moment(micros: int) -> str:
        return f"make_timestamptz({micros})"


class Fusion(Dialect):
    @staticmethod
    def path(path: tuple[str, ...]) -> str:
        return path[0] + "".join(f"['{name}']" for name in path[1:])

    @staticmethod
    def moment(micros: int) -> str:
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


Answer = dict[Filter, tuple[set[int], set[int]]]  # -> rows that the comparison finds, rows that the filter finds


def by_sql(ask: Any, dialect: type[Dialect], source: str, asked: list[Filter]) -> Answer:
    """`ask` runs a query. What is computed as a column is computed of each row."""
    wheres = [wanted.sql(dialect) for wanted in asked]
    columns = ", ".join(f"({where}) as f{number}" for number, where in enumerate(wheres))
    whole = ask(f"select {ROW}, {columns} from {source}")
    found = ask(
        " union all ".join(f"select {n} as f, {ROW} from {source} where {where}" for n, where in enumerate(wheres))
    )
    by_filter: dict[int, set[int]] = {}
    for number, row in zip(found["f"].to_pylist(), found[ROW].to_pylist(), strict=True):
        by_filter.setdefault(number, set()).add(row)
    ids = whole[ROW].to_pylist()
    return {
        wanted: (
            {row for row, good in zip(ids, whole[f"f{number}"].to_pylist(), strict=True) if good},
            by_filter.get(number, set()),
        )
        for number, wanted in enumerate(asked)
    }


def ask_duckdb(files: list[str], asked: list[Filter]) -> Answer:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'; set threads = 1")
        source = f"read_parquet({files}, union_by_name = true)"
        return by_sql(lambda query: connection.sql(query).to_arrow_table(), Duck, source, asked)


def ask_delta_rs(table: DeltaTable, asked: list[Filter]) -> Answer:
    builder = QueryBuilder().register("t", table)
    return by_sql(lambda query: pa.table(builder.execute(query).read_all()), Fusion, "t", asked)


def ask_polars(folder: Path, asked: list[Filter]) -> Answer:
    rows = pl.read_delta(str(folder))
    scan = pl.scan_delta(str(folder))
    found = pl.collect_all([scan.filter(_polars(wanted)).select(ROW) for wanted in asked])
    return {
        wanted: (set(rows.filter(_polars(wanted))[ROW]), set(frame[ROW]))
        for wanted, frame in zip(asked, found, strict=True)
    }


def _polars(wanted: Filter) -> pl.Expr:
    column = pl.col(wanted.path[0])
    for name in wanted.path[1:]:
        column = column.struct.field(name)
    kinds = {BIG: pl.Decimal(20, 0), TIMESTAMP: pl.Datetime("us", "UTC")}
    value = pl.lit(wanted.value)
    if wanted.kind == TIMESTAMP:
        value = value.cast(pl.Int64)
    value = value.cast(kinds[wanted.kind]) if wanted.kind in kinds else value
    return _compared(wanted, column, value, column.is_null(), column.is_not_null())


def ask_arrow(files: list[str], schema: pa.Schema, asked: list[Filter]) -> Answer:
    dataset = ds.dataset(files, schema=schema)
    rows = dataset.to_table()
    return {
        wanted: (set(rows.filter(_arrow(wanted))[ROW].to_pylist()), set(_read(dataset, wanted)[ROW].to_pylist()))
        for wanted in asked
    }


def _read(dataset: ds.Dataset, wanted: Filter) -> pa.Table:
    return dataset.to_table(columns=[ROW], filter=_arrow(wanted), use_threads=False)


def _arrow(wanted: Filter) -> pc.Expression:
    column = pc.field(*wanted.path) if len(wanted.path) > 1 else pc.field(wanted.path[0])
    value = pa.scalar(wanted.value, wanted.kind)
    return _compared(wanted, column, value, column.is_null(), column.is_valid())


def _compared(wanted: Filter, column: Any, value: Any, missing: Any, there: Any) -> Any:
    return {
        "is null": lambda: missing,
        "is not null": lambda: there,
        "=": lambda: column == value,
        "<": lambda: column < value,
        "<=": lambda: column <= value,
        ">": lambda: column > value,
        ">=": lambda: column >= value,
    }[wanted.operator]()
