"""Numbers the offsets of a chunk consecutively (slots), so that records are compared as integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from spark_app.model.offsets import Span


class OffsetIndex:
    """Slots of the offsets of some spans.

    Attributes:
        spans: spans of one topic, at most one per partition.
        topic_id: Kafka's id of the topic; None if the lake has none.
        count: the number of slots.
    """

    def __init__(self, spans: Sequence[Span], topic_id: str | None):
        self.spans = spans
        self.topic_id = topic_id
        sizes = [span.end - span.start for span in spans]
        self._first = list(accumulate(sizes, initial=0))
        self.count = self._first[-1]
        self._shift = {s.partition: first - s.start for s, first in zip(spans, self._first, strict=False)}

    def of(self, partitions: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The slots of records; all must be in the spans."""
        distinct, codes = np.unique(partitions, return_inverse=True)
        shifts = np.array([self._shift[int(partition)] for partition in distinct], np.int64)
        found: np.ndarray = offsets + shifts[codes]
        return found

    def within(self, spans: Iterable[Span]) -> np.ndarray:
        """slot -> whether it is in one of the given spans, which are of the same topic."""
        inside = np.zeros(self.count, bool)
        for own, first in zip(self.spans, self._first, strict=False):
            for span in spans:
                if span.partition == own.partition:
                    low, high = max(span.start, own.start), min(span.end, own.end)
                    inside[first + low - own.start : max(first + high - own.start, 0)] = True
        return inside

    def invert(self, slots: np.ndarray) -> np.ndarray:
        """slot -> its last position in `slots`; -1 = it is not in `slots`."""
        places = np.full(self.count, -1, np.int64)
        places[slots] = np.arange(len(slots))
        return places

    def names(self, slots: np.ndarray) -> list[str]:
        """Each slot as "topic/partition@offset"."""
        places = np.searchsorted(self._first, slots, side="right") - 1
        return [
            f"{self.spans[place].topic}/{self.spans[place].partition}@{self.spans[place].start + slot - first}"
            for place, slot, first in zip(places, slots, np.array(self._first)[places], strict=True)
        ]
