"""The rows that gold aggregates: by a condition, and once for each window."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_app.audit import gold_rows
from spark_app.followers.gold.input_rows import CONDITION, RECORD_TIMES, SECOND, InputRows
from spark_app.settings.gold import Window

TIME = pa.timestamp("us", "UTC")
MOMENTS = st.integers(-62_135_596_800 * SECOND, 253_402_300_799 * SECOND)
DURATIONS = st.integers(1, 400)


def rows_of(times: list[int | None], kafka: list[int | None], landed: list[int]) -> pa.Table:
    columns = {"t": times, **dict(zip(RECORD_TIMES, (kafka, landed), strict=True))}
    table = {name: pa.array(values, pa.int64()).cast(TIME) for name, values in columns.items()}
    return pa.table(table | {"row": pa.array(range(len(times)), pa.int64())})


@given(
    st.lists(st.tuples(st.none() | MOMENTS, st.none() | MOMENTS, MOMENTS), max_size=8),
    DURATIONS,
    st.integers(1, 7),
    st.sampled_from(["s", "minutes", "h", "days"]),
    st.integers(0, 10**9 - 1),  # what a duration may have
)
def test_windows_are_those_of_the_audit(
    rows: list[tuple[int | None, int | None, int]], slide: int, times: int, unit: str, late: int
) -> None:
    """Which derives them otherwise; and a row is in each window that contains its time."""
    window = Window(size=f"{slide * times} {unit}", slide=f"{slide} {unit}", late=f"{late} s")
    size_us, slide_us, _, late_us = (seconds * SECOND for seconds in window.durations)
    table = rows_of(*(list(column) for column in zip(*rows, strict=True))) if rows else rows_of([], [], [])
    found = InputRows("", "t", size_us, slide_us, 0, late_us).of(table)
    named = table.rename_columns([gold_rows.TIME, gold_rows.KAFKA, gold_rows.LANDED, "row"])
    due = gold_rows._with_credible(gold_rows.in_windows(named, window), window)
    columns = ["row", "window_start", "window_end"]
    assert tuples(found, [*columns, "_watermark"]) == tuples(due, [*columns, gold_rows.CREDIBLE])
    for number, (time, _, _) in enumerate(rows):
        starts = [start for row, start, _, _ in tuples(found, [*columns, "_watermark"]) if row == number]
        assert len(starts) == (times if time is not None else 1)
        assert all(time is None or start <= time < start + size_us for start in starts if start is not None)


def tuples(rows: pa.Table, columns: list[str]) -> list[tuple[int, ...]]:
    plain = (rows[name].cast(pa.int64()).to_pylist() for name in columns)
    return sorted(zip(*plain, strict=True), key=repr)


def test_a_condition_leaves_the_rows_for_which_it_is_true() -> None:
    rows = pa.table({"k": ["a", "b", "c", "d"], CONDITION + "Bet": [1, 5, None, 9]})
    found = InputRows("bet > 1 AND BET < 9").of(rows)
    assert found.to_pylist() == [{"k": "b"}]


def test_a_condition_of_no_column() -> None:
    rows = pa.table({"k": ["a"], CONDITION + "_offset": [1]})
    assert InputRows("1 > 2").of(rows).num_rows == 0
    assert InputRows("2 > 1").of(rows).num_rows == 1
