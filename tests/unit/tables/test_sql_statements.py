"""Statements are prepared once for rows with the same columns, and days become hours where they are the same."""

import datetime as dt
from itertools import permutations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_app.tables.expectations.checks import check_columns
from spark_app.tables.sql import engine, statements
from spark_app.tables.sql.engine import connection, failures
from spark_app.tables.sql.statements import MOMENT, write_in_hours
from tests.support.examples import examples

EDGE = 2**63 - 1


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Without the statements of other tests, of which the oldest would make room."""
    engine._statements.cache_clear()
    connection.cache_clear()


def _views() -> set[str]:
    found = connection().sql("SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'the rows%'").fetchall()
    return {name for (name,) in found}


def _prepared() -> int:
    [(count,)] = connection().sql("SELECT count(*) FROM duckdb_prepared_statements()").fetchall()
    return int(count)


def test_a_statement_reads_the_rows_of_its_run() -> None:
    check = ["n > 10 AND t = 'a'"]
    first = pa.table({"n": [1, 11, 12], "t": pa.array(["a", "a", "b"]).dictionary_encode()})
    assert failures(first, check).tolist() == [1, 0, 1]
    known = _views(), _prepared()
    other = pa.table({"n": [13, 2], "t": pa.array(["c", "a"]).dictionary_encode()})
    assert failures(other, check).tolist() == [1, 1]
    assert failures(pa.concat_tables([other, first], promote_options="none"), check).tolist() == [1, 1, 1, 0, 1]
    assert failures(first.slice(1, 1), check).tolist() == [0]
    assert (_views(), _prepared()) == known


def test_rows_with_other_types_have_a_statement_of_their_own() -> None:
    tables = [pa.table({"n": pa.array(values)}) for values in ([1, 20], ["1", "20"], [1.5, 2.5])]
    # A text is compared with a number as a text.
    for some in permutations(tables):
        masks = [failures(rows, ["n > 3", "n::VARCHAR = '1'"]).tolist() for rows in some]
        right = {pa.int64(): [1, 2], pa.string(): [1, 3], pa.float64(): [3, 3]}
        assert masks == [right[rows.schema.field("n").type] for rows in some]


def test_a_statement_outlives_other_views_and_errors() -> None:
    rows, check = pa.table({"n": [1, 2]}), "n > 1"
    assert failures(rows, [check]).tolist() == [1, 0]
    check_columns("rule", "n > 2", [rows.schema])
    with pytest.raises(duckdb.Error):
        connection().execute("SELECT nothing")
    assert failures(pa.table({"n": [2, 1]}), [check]).tolist() == [0, 1]


def test_checks_that_do_not_bind_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST", 10_000)  # else those of other tests may make room
    rows = pa.table({"n": [1, 2]})
    failures(rows, ["n > 1"])
    known = _views(), _prepared()
    assert failures(rows, ["n > 1", "n.nothing > 1"]).tolist() == [3, 2]
    assert (_views(), _prepared()) == known


def test_the_oldest_statement_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST", 3)
    con = duckdb.connect()
    made = statements.Statements(con)
    for number in [*range(7), 0, 1, 2, 3, 6]:
        assert made.run(pa.table({"n": [number, 0]}), (f"n = {number}",)).tolist() == [0, int(number > 0)]
        assert con.sql("SELECT count(*) FROM duckdb_prepared_statements()").fetchall()[0][0] <= 3
        assert con.sql("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall()[0][0] <= 3


def test_no_rows_are_kept_after_their_check() -> None:
    def check_rows() -> None:
        failures(pa.table({"n": np.arange(1_000_000)}), ["n >= 0"])

    check_rows()
    before = pa.total_allocated_bytes()
    rows = pa.table({"n": pa.array(range(100_000))})
    assert pa.total_allocated_bytes() > before
    assert not failures(rows, ["n >= 0"]).any()
    del rows
    assert pa.total_allocated_bytes() == before


COLUMNS = pa.schema(
    [
        ("seen", MOMENT),
        ("Ä", MOMENT),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("st", pa.struct([("seen", MOMENT)])),
    ]
)


@pytest.mark.parametrize(
    ("check", "written"),
    [
        ("seen > local - interval 7 day + INTERVAL 0 DAY", None),
        ("SEEN - interval 7 day < seen", "SEEN - INTERVAL 168 HOUR < seen"),
        ("interval '2'  Days + seen > seen", "INTERVAL 48 HOUR + seen > seen"),
        ("seen + INTERVAL '3 weeks' > seen", "seen + INTERVAL 504 HOUR > seen"),
        ("seen+(INTERVAL 1 DAY) > seen", "seen+(INTERVAL 24 HOUR) > seen"),
        ("'ää€' <> '' AND \"Ä\" - INTERVAL 1 DAY < seen", "'ää€' <> '' AND \"Ä\" - INTERVAL 24 HOUR < seen"),
        ("seen - INTERVAL 1 DAY - INTERVAL 2 DAY < seen", "seen - INTERVAL 24 HOUR - INTERVAL 2 DAY < seen"),
        ("'seen - INTERVAL 1 DAY' <> '' -- seen - INTERVAL 1 DAY", None),
        ("seen - INTERVAL 1 MONTH < seen AND seen - INTERVAL '1 day 2 hours' < seen", None),
        ("seen - INTERVAL 1000000 DAY < seen AND seen - INTERVAL (-1) DAY > seen", None),
        ("st.seen - INTERVAL 1 DAY < seen AND day - INTERVAL 1 DAY < day", None),
        ("len(list_filter([day], lambda seen: seen - INTERVAL 1 DAY > day)) = 0", None),
        ("seen - local - INTERVAL 1 DAY < INTERVAL 2 DAY", None),
        ("abs(-1) = +1", None),
    ],
)
def test_days_become_hours_only_beside_a_moment(check: str, written: str | None) -> None:
    check_columns("rule", check, [COLUMNS])
    assert write_in_hours(connection(), check, COLUMNS) == (written or check)


MOMENTS = st.integers(-EDGE - 1, EDGE) | st.datetimes(timezones=st.just(dt.UTC)).map(
    lambda seen: (seen - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
)


@given(st.lists(MOMENTS, min_size=1, max_size=20), st.integers(0, 999_999), st.sampled_from(["+", "-"]), MOMENTS)
@example([EDGE, -EDGE, -EDGE - 1, EDGE - 1, 1 - EDGE], 0, "+", EDGE)
@examples(0.2)
def test_hours_are_as_right_as_days(moments: list[int], days: int, sign: str, other: int) -> None:
    seen = pa.array(moments, pa.int64()).cast(MOMENT)
    rows = pa.table({"seen": seen, "other": pa.array([other] * len(seen), pa.int64()).cast(MOMENT)})
    checks = [f"seen {sign} INTERVAL {days} DAY {compared} other" for compared in ("<=", ">=", "=")]
    assert all("HOUR" in write_in_hours(connection(), check, rows.schema) for check in checks)
    with duckdb.connect() as con:
        con.sql("PRAGMA disable_optimizer; SET TimeZone = 'UTC'")
        con.register("rows", rows)
        by_days = con.sql(f"SELECT {', '.join(f'coalesce(TRY({check}), false)' for check in checks)} FROM rows")
        right = [sum(1 << i for i, passed in enumerate(row) if not passed) for row in by_days.fetchall()]
    assert failures(rows, checks).tolist() == right
