"""Rows are checked as Python would check them, out of reach of files and settings."""

import datetime as dt
import functools
import math
import operator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.tables.expectations.checks import check_columns
from spark_app.tables.sql import engine
from spark_app.tables.sql.engine import connection, failures
from tests.support.examples import examples

UTC = pa.timestamp("us", "UTC")


def failed(rows: pa.Table, *texts: str) -> list[list[int]]:
    """For each check the numbers of the rows that fail it."""
    masks = failures(rows, texts)
    assert masks.dtype == np.int64
    return [[row for row, mask in enumerate(masks.tolist()) if mask >> i & 1] for i in range(len(texts))]


def test_null_fails() -> None:
    rows = pa.table({"bet": [1, None, 0]})
    assert failed(rows, "bet > 0", "bet IS NULL OR bet > 0", "NULL::BOOLEAN") == [[1, 2], [2], [0, 1, 2]]


def test_rows_keep_their_order_over_chunks() -> None:
    numbers = np.random.default_rng(7).permutation(100_000)
    rows = pa.table({"n": pa.chunked_array([numbers[:7], numbers[7:60_000], numbers[60_000:]])})
    assert (failures(rows, ["n % 3 = 0"]) == (numbers % 3 != 0)).all()


@pytest.mark.parametrize(
    ("check", "rows"),
    [
        ("10 // n >= 0", [1]),
        ("s::INTEGER > 0", [2]),
        ("CASE WHEN n <> 0 THEN s::INTEGER > 0 ELSE true END", [2]),
        ("n * n > 0", [1, 3]),
        ("n + 9223372036854775805 > 0", [2, 3, 4]),
        ("n::TINYINT >= 0", [3]),
        ("s::DATE IS NULL", [0, 1, 2, 3, 4]),
        ("TRY_CAST(s AS INTEGER) IS NULL OR true", []),
    ],
)
def test_an_error_fails_its_row_alone(check: str, rows: list[int]) -> None:
    table = pa.table({"n": pa.array([1, 0, 3, 2**62, 5]), "s": ["1", "2", "x", "4", "5"]})
    assert failed(table, check, "n >= 0") == [rows, []]


def test_bit_i_is_check_i() -> None:
    rows = pa.table({"n": list(range(62))})
    masks = failures(rows, [f"n <> {i}" for i in range(62)])
    assert masks.tolist() == [1 << i for i in range(62)]


def test_more_checks_than_bits_are_a_bug() -> None:
    with pytest.raises(ValueError, match="63 checks"):
        failures(pa.table({"n": [1]}), ["true"] * 63)


def test_without_rows_or_checks_there_is_nothing_to_judge() -> None:
    assert failures(pa.table({"n": pa.array([], pa.int64())}), ["nosuch"]).tolist() == []
    assert failures(pa.table({"n": [1, 2]}), []).tolist() == [0, 0]


def test_a_check_that_cannot_be_judged_fails_for_all_rows_and_spoils_no_other() -> None:
    rows = pa.table({"n": [1, 2], "s": ["a", "b"]})
    assert failed(rows, "n > 1", "nosuch > 1", "s > 1", "n < 2", ")") == [[0], [0, 1], [0, 1], [1], [0, 1]]


def test_dictionaries_structs_times_and_decimals_are_judged_by_their_values() -> None:
    at = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "level": pa.array(["low", None, "high"]).dictionary_encode(),
            "st": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())])),
            "seen": pa.array([at, at + dt.timedelta(days=1), None], UTC),
            "local": pa.array([at.replace(tzinfo=None), dt.datetime(1970, 1, 1), None], pa.timestamp("us")),
            "price": pa.array([Decimal("0.1000"), Decimal("12345678901234.5678"), Decimal(-1)], pa.decimal128(20, 4)),
        }
    )
    assert failed(rows, "level = 'low'", "level IS NULL") == [[1, 2], [0, 2]]
    assert failed(rows, "st.x IS NULL", "st IS NULL", "st.x = 1") == [[0], [0, 2], [1, 2]]
    assert (
        failed(rows, "seen < TIMESTAMPTZ '2026-11-26 00:00:00+00'", "seen = TIMESTAMP '2026-11-25 12:00:00'")
        == [[1, 2]] * 2
    )
    assert failed(rows, "local = TIMESTAMP '2026-11-25 12:00:00'", "seen - local < INTERVAL 1 DAY") == [[1, 2]] * 2
    assert failed(rows, "price = 0.1", "price > 12345678901234.5677", "price >= 0") == [[1, 2], [0, 2], [2]]


def test_a_comment_at_the_end_hides_nothing() -> None:
    rows = pa.table({"n": [1, 2]})
    assert failed(rows, "n > 1 -- large", "n > 2 /* larger */", "n > 0 --") == [[0], [0, 1], []]


def test_a_database_that_is_broken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise duckdb.FatalException("the database has been invalidated")

    healthy, made = connection, []

    def first_broken() -> object:
        made.append(1)
        return Broken() if len(made) == 1 else healthy()

    monkeypatch.setattr(engine, "connection", functools.cache(first_broken))
    assert failed(pa.table({"n": [1, 2]}), "n > 1", "n > 0") == [[0], []]
    assert len(made) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '/tmp/protolake_expectations'",
        "ATTACH '/tmp/protolake_expectations.db' AS other",
        "INSTALL httpfs",
        "LOAD '/tmp/protolake_expectations.duckdb_extension'",
        "SET enable_external_access = true",
        "SET threads = 2",
        "SET TimeZone = 'Asia/Tokyo'",
        "SET memory_limit = '8GB'",
        "SET lock_configuration = false",
        "SET temp_directory = '/tmp'",
        "RESET memory_limit",
        "SELECT * FROM a_python_variable",
    ],
)
def test_files_settings_and_variables_are_out_of_reach(statement: str) -> None:
    a_python_variable = pa.table({"n": [1]})
    with pytest.raises(duckdb.Error):
        connection().execute(statement).fetchall()
    assert a_python_variable.num_rows == 1


def test_times_are_read_in_utc_and_nothing_goes_to_the_disk() -> None:
    [row] = (
        connection()
        .sql("SELECT current_setting('TimeZone'), current_setting('threads'), current_setting('temp_directory')")
        .fetchall()
    )
    assert row == ("UTC", 1, "")


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
            "m": st.none() | st.integers(-3, 3),
            "s": st.none() | st.text("ab1% _'", max_size=4),
            "l": st.none() | st.lists(st.none() | st.integers(-2, 2), max_size=3),
        }
    ),
    max_size=30,
)
RULES = {
    "n > 0": lambda r: r["n"] is not None and r["n"] > 0,
    "n IS NULL": lambda r: r["n"] is None,
    "n IN (1, 2, -3)": lambda r: r["n"] in (1, 2, -3),
    "n BETWEEN m AND 2": lambda r: None not in (r["n"], r["m"]) and r["m"] <= r["n"] <= 2,
    "n IS DISTINCT FROM m": lambda r: r["n"] != r["m"],
    "coalesce(m, 0) >= 0": lambda r: (r["m"] or 0) >= 0,
    "6 // m > 2": lambda r: bool(r["m"]) and int(6 / r["m"]) > 2,
    "n * n >= 0": lambda r: r["n"] is not None and r["n"] ** 2 < 2**63,
    "s <> ''": lambda r: bool(r["s"]),
    "s LIKE 'a%'": lambda r: r["s"] is not None and r["s"].startswith("a"),
    "length(s) > 2": lambda r: r["s"] is not None and len(r["s"]) > 2,
    "regexp_full_match(s, '[ab]+')": lambda r: bool(r["s"]) and set(r["s"]) <= set("ab"),
    "CASE WHEN s IS NULL THEN m = 1 ELSE s = 'a' END": lambda r: r["m"] == 1 if r["s"] is None else r["s"] == "a",
    "len(l) > 1": lambda r: r["l"] is not None and len(r["l"]) > 1,
    "list_contains(l, m)": lambda r: None not in (r["l"], r["m"]) and r["m"] in r["l"],
    "len(list_filter(l, lambda x: x < 0)) = 0": lambda r: r["l"] is not None and all((x or 0) >= 0 for x in r["l"]),
}
TYPES = pa.schema([("n", pa.int64()), ("m", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])


@given(ROWS, st.lists(st.sampled_from(sorted(RULES)), max_size=8))
@examples(0.5)
def test_rows_fail_as_python_says(rows: list[dict[str, object]], rules: list[str]) -> None:
    for rule in rules:
        check_columns("rule", rule, [TYPES])
    masks = failures(pa.Table.from_pylist(rows, TYPES), rules)
    assert masks.tolist() == [sum(1 << i for i, rule in enumerate(rules) if not RULES[rule](row)) for row in rows]


def _and(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _compare(sign: str, one: Any, other: Any) -> bool | None:
    """In SQL NaN equals NaN and is larger than all other numbers."""
    if one is None or other is None:
        return None
    keys = [(math.isnan(value), 0 if math.isnan(value) else value) for value in (one, other)]
    return bool(SIGNS[sign](*keys))


SIGNS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, "<>": operator.ne, ">=": operator.ge, ">": operator.gt}
FLAGS = st.none() | st.booleans()
INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
REALS = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])


@given(st.lists(st.tuples(FLAGS, FLAGS, FLAGS), min_size=1, max_size=30))
@examples(0.5)
def test_conditions_are_joined_by_the_three_values_of_sql(rows: list[tuple[bool | None, ...]]) -> None:
    table = pa.table(
        {name: pa.array(values, pa.bool_()) for name, values in zip("abc", zip(*rows, strict=True), strict=True)}
    )
    found = failures(table, ["a AND b AND c", "a OR b OR c", "NOT a", "a AND NOT (b OR c)", "(a = b) IS NOT TRUE"])
    for mask, (a, b, c) in zip(found.tolist(), rows, strict=True):
        either = _not(_and(_not(a), _not(b), _not(c)))
        due = [_and(a, b, c), either, _not(a), _and(a, _and(_not(b), _not(c)))]
        due.append(None in (a, b) or a != b)
        assert mask == sum(1 << bit for bit, value in enumerate(due) if value is not True)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), INTEGERS),
        (pa.float64(), REALS),
        (pa.decimal128(20, 0), st.none() | st.integers(0, 2**64 - 1).map(Decimal)),
    ],
)
@given(data=st.data())
@examples(0.3)
def test_numbers_are_compared_as_in_python(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(values, values) | values.map(lambda one: (one, one)), min_size=1, max_size=30))
    table = pa.table({name: pa.array(own, kind) for name, own in zip("ab", zip(*pairs, strict=True), strict=True)})
    found = failures(table, [f"a {sign} b" for sign in SIGNS])
    for mask, pair in zip(found.tolist(), pairs, strict=True):
        assert mask == sum(1 << bit for bit, sign in enumerate(SIGNS) if _compare(sign, *pair) is not True)


MOMENTS = st.none() | st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))


@given(st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=30))
@examples(0.3)
def test_moments_are_compared_as_in_python(pairs: list[tuple[dt.datetime | None, dt.datetime | None]]) -> None:
    table = pa.table({name: pa.array(own, UTC) for name, own in zip("ab", zip(*pairs, strict=True), strict=True)})
    found = failures(table, ["a < b", "a BETWEEN b - INTERVAL 1 HOUR AND b + INTERVAL 1 DAY", "year(a) > 1999"])
    for mask, (a, b) in zip(found.tolist(), pairs, strict=True):
        known = a is not None and b is not None
        due = [
            known and a < b,  # type: ignore[operator]
            known and b - dt.timedelta(hours=1) <= a <= b + dt.timedelta(days=1),  # type: ignore[operator]
            a is not None and a.year > 1999,
        ]
        assert mask == sum(1 << bit for bit, value in enumerate(due) if not value)
