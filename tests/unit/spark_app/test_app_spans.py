"""How the offsets of a unit are shared out."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spark_app.kafka.consumer.spans import UNEVEN, spans_between, split_among_tasks
from spark_app.model.offsets import Span

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
    shares = split_among_tasks(spans, tasks)
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
    assert sorted(map(len, split_among_tasks(alike, 2))) == [2, 2]
    assert split_among_tasks([Span("t", 0, 10, 110)], 2) == [(Span("t", 0, 10, 60),), (Span("t", 0, 60, 110),)]
    assert split_among_tasks([], 2) == []
