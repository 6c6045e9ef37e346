"""How the offsets of a unit are shared out."""

from itertools import pairwise
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_app.model.offsets import Offsets, Span
from spark_app.settings.models import Settings
from spark_app.sources.kafka.spans import UNEVEN, SpanSplitter, spans_between
from spark_app.units.driver.feeds import SINGLE
from spark_app.units.driver.reader import read_kafka

PARTITIONS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 30)),
    st.tuples(st.integers(0, 2**40), st.integers(1, 300_000)),
    max_size=20,
)


def test_a_partition_that_came_begins_at_0_and_an_empty_one_is_left_out() -> None:
    start = {"b": {"1": 5, "0": 7}}
    end = {"b": {"10": 2, "1": 9, "0": 7}, "a": {"0": 1}}
    assert spans_between(start, end) == [Span("a", 0, 0, 1), Span("b", 1, 5, 9), Span("b", 10, 0, 2)]


@given(PARTITIONS, st.integers(1, 8))
def test_each_offset_is_in_one_share(partitions: dict[tuple[str, int], tuple[int, int]], tasks: int) -> None:
    spans = [Span(*place, first, first + count) for place, (first, count) in partitions.items()]
    shares = SpanSplitter().split(spans, tasks)
    assert len(shares) <= tasks
    assert all(shares)
    pieces: dict[tuple[str, int], list[Span]] = {}
    for piece in (piece for share in shares for piece in share):
        pieces.setdefault((piece.topic, piece.partition), []).append(piece)
    for span in spans:
        found = sorted(pieces.pop((span.topic, span.partition)), key=lambda piece: piece.start)
        assert (found[0].start, found[-1].end) == (span.start, span.end)
        assert all(one.end == other.start for one, other in pairwise(found))
    assert not pieces
    even = -(-sum(span.offsets for span in spans) // tasks)
    assert all(sum(piece.offsets for piece in share) <= 2 * UNEVEN * even + 1 for share in shares)


def test_only_a_large_partition_is_split() -> None:
    alike = [Span("t", number, 0, 100) for number in range(4)]
    assert sorted(map(len, SpanSplitter().split(alike, 2))) == [2, 2]
    assert SpanSplitter().split([Span("t", 0, 10, 110)], 2) == [(Span("t", 0, 10, 60),), (Span("t", 0, 60, 110),)]
    assert SpanSplitter().split([], 2) == []


def partitions_of(shares: list[tuple[Span, ...]]) -> list[set[int]]:
    return [{span.partition for span in share} for share in shares]


@given(st.lists(st.lists(st.integers(95, 105), min_size=6, max_size=6), min_size=2, max_size=8), st.integers(1, 8))
def test_partitions_stay_together_while_their_sizes_are_alike(units: list[list[int]], tasks: int) -> None:
    splitter, at = SpanSplitter(), [0] * 6
    found = []
    for sizes in units:
        spans = [Span("t", number, at[number], at[number] + size) for number, size in enumerate(sizes)]
        at = [span.end for span in spans]
        found.append(partitions_of(splitter.split(spans, tasks)))
    if tasks <= 6:  # otherwise partitions are split, into as many pieces as their sizes ask for
        assert all(one == found[0] for one in found)


def test_partitions_are_divided_anew_if_that_is_better() -> None:
    splitter = SpanSplitter()

    def split(*sizes: int, tasks: int = 2) -> list[set[int]]:
        return partitions_of(splitter.split([Span("t", n, 0, size) for n, size in enumerate(sizes) if size], tasks))

    assert split(100, 100, 100, 100) == [{0, 2}, {1, 3}]
    assert split(99, 100, 100, 101) == [{0, 2}, {1, 3}]
    assert split(100, 0, 0, 101) == [{0}, {3}]
    assert split(100, 100, 100, 100) == [{0, 2}, {1, 3}]  # partitions without records keep their places
    assert split(100, 0, 100, 10) == [{0, 3}, {2}]  # before: 200 and 10
    assert split(100, 100, 100, 100, tasks=4) == [{0}, {1}, {2}, {3}]


def test_divisions_with_one_task_in_a_row_are_counted() -> None:
    splitter, found = SpanSplitter(), []
    for start, tasks in ((0, 1), (100, 1), (200, 2), (300, 1), (400, 1)):
        splitter.split([Span("t", number, start, start + 100) for number in (0, 1)], tasks)
        found.append(splitter.single)
    assert found == [1, 2, 0, 1, 2]


def test_a_backlog_of_a_few_units_of_one_task_starts_no_second_daemon() -> None:
    splitter, session = SpanSplitter(), Mock(spec=SparkSession)

    def own_workers(unit: int, tasks: int = 1) -> bool:
        start: Offsets = {"t": {"0": 100 * unit, "1": 100 * unit}}
        end: Offsets = {"t": {"0": 100 * unit + 100, "1": 100 * unit + 100}}
        return read_kafka(session, Settings(), splitter, SINGLE, start, end, tasks).own_workers

    assert SINGLE >= 50
    assert not any(own_workers(unit) for unit in range(SINGLE))
    assert own_workers(SINGLE)
    assert not own_workers(SINGLE + 1, tasks=2)
    assert not own_workers(SINGLE + 2)
