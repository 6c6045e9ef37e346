"""The offset ranges of a unit, and their division among tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_app.model.offsets import Offsets, Span

UNEVEN = 1.25  # a partition is split only if it is larger than an even part times this


def spans_between(start: Offsets, end: Offsets) -> list[Span]:
    """The spans from `start` to `end`, in order. A partition that is not in `start` begins at 0."""
    found = [
        Span(topic, int(partition), start.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]
    return sorted((span for span in found if span.offsets > 0), key=_place)


def split_among_tasks(spans: Iterable[Span], tasks: int) -> list[tuple[Span, ...]]:
    """About the same number of offsets for each task; a task without offsets is left out.

    A partition is split only if it is larger than a task's part, because the consumer of a partition has already
    prefetched its next records.
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
