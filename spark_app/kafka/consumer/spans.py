"""Which offsets a unit takes, and how its tasks share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_app.model.offsets import Offsets, Span

UNEVEN = 1.25  # of an even part: what a task may have before a partition is split for it


def spans_between(start: Offsets, end: Offsets) -> list[Span]:
    """What lies between two positions, in order. A partition that `start` does not have begins at 0."""
    found = [
        Span(topic, int(partition), start.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]
    return sorted((span for span in found if span.offsets > 0), key=_place)


def split_among_tasks(spans: Iterable[Span], tasks: int) -> list[tuple[Span, ...]]:
    """About as many offsets for each task; one that would have none is left out.

    Only a partition that is larger than a task's part is split: whoever reads one has what comes next at hand.
    """
    spans = list(spans)
    even = -(-sum(span.offsets for span in spans) // max(1, tasks))
    pieces = [piece for span in spans for piece in _split(span, even)]
    shares: list[list[Span]] = [[] for _ in range(max(1, tasks))]
    for piece in sorted(pieces, key=lambda piece: -piece.offsets):
        min(shares, key=lambda share: sum(taken.offsets for taken in share)).append(piece)
    return [tuple(sorted(share, key=_place)) for share in shares if share]


def _split(span: Span, even: int) -> list[Span]:
    if span.offsets <= even * UNEVEN:
        return [span]
    size = -(-span.offsets // -(-span.offsets // even))
    return [replace(span, start=at, end=min(at + size, span.end)) for at in range(span.start, span.end, size)]


def _place(span: Span) -> tuple[str, int, int]:
    return span.topic, span.partition, span.start
