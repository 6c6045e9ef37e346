"""The offset ranges of a unit, and their division among tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_app.model.offsets import Offsets, Span

UNEVEN = 1.25  # a partition is split only if it is larger than an even part times this
MOVED = 1.1  # pieces change their shares only if the largest share would else be so many times the one possible

Key = tuple[str, int, int]  # topic, partition and number of a piece of it


def spans_between(start: Offsets, end: Offsets) -> list[Span]:
    """The spans from `start` to `end`, in order. A partition that is not in `start` begins at 0."""
    found = [
        Span(topic, int(partition), start.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]
    return sorted((span for span in found if span.offsets > 0), key=_place)


class SpanSplitter:
    """Divides units among tasks. Partitions stay together from unit to unit, because the consumer of a partition has
    already fetched its next records.

    Attributes:
        single: how many divisions in a row, up to the last one, had one task; those of repeated attempts count, too.
    """

    def __init__(self) -> None:
        self.single = 0
        self._tasks = 0
        self._shares: dict[Key, int] = {}  # piece -> the share that it had last

    def split(self, spans: Iterable[Span], tasks: int) -> list[tuple[Span, ...]]:
        """About the same number of offsets for each task; a task without offsets is left out.

        A partition is split only if it is larger than a task's part.
        """
        tasks = max(1, tasks)
        pieces = _cut(list(spans), tasks)
        known = self._shares if tasks == self._tasks else {}
        chosen, anew = _divide(pieces, tasks, known), _divide(pieces, tasks, {})
        if _largest(pieces, chosen) > _largest(pieces, anew) * MOVED:
            chosen = anew
        self._tasks, self._shares = tasks, known | chosen
        shares: list[list[Span]] = [[] for _ in range(tasks)]
        for key, share in chosen.items():
            shares[share].append(pieces[key])
        found = [tuple(sorted(share, key=_place)) for share in shares if share]
        self.single = self.single + 1 if len(found) == 1 else 0
        return found


def _cut(spans: list[Span], tasks: int) -> dict[Key, Span]:
    even = -(-sum(span.offsets for span in spans) // tasks)
    return {
        (span.topic, span.partition, number): piece for span in spans for number, piece in enumerate(_split(span, even))
    }


def _divide(pieces: Mapping[Key, Span], tasks: int, known: Mapping[Key, int]) -> dict[Key, int]:
    """Piece -> its share: known ones as before; of the others the largest piece first, each to the smallest share."""
    chosen = {key: known[key] for key in pieces if key in known}
    sizes = [0] * tasks
    for key, share in chosen.items():
        sizes[share] += pieces[key].offsets
    others = (item for item in pieces.items() if item[0] not in chosen)
    for key, piece in sorted(others, key=lambda item: -item[1].offsets):
        share = sizes.index(min(sizes))
        sizes[share] += piece.offsets
        chosen[key] = share
    return chosen


def _largest(pieces: Mapping[Key, Span], chosen: Mapping[Key, int]) -> int:
    sizes: Counter[int] = Counter()
    for key, share in chosen.items():
        sizes[share] += pieces[key].offsets
    return max(sizes.values(), default=0)


def _split(span: Span, even: int) -> list[Span]:
    if span.offsets <= even * UNEVEN:
        return [span]
    size = -(-span.offsets // -(-span.offsets // even))
    return [replace(span, start=at, end=min(at + size, span.end)) for at in range(span.start, span.end, size)]


def _place(span: Span) -> tuple[str, int, int]:
    return span.topic, span.partition, span.start
