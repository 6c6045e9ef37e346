"""Finds payloads that fit another message better than the one that their index names by the lake's rule."""

from __future__ import annotations

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from spark_app.protobuf.decode.reference import ReferenceParser

SLICE = 512  # payloads checked by one call


class IndexConflict:
    """Checks the payloads of a message whose index names another message for writers with the other numbering."""

    def __init__(self, parser: ReferenceParser, other: Descriptor):
        self._parser = parser
        self._other = ReferenceParser(other)

    def rows(self, payloads: pa.Array) -> list[int]:
        """Row numbers of the payloads that only the other message parses without unknown fields.

        Args:
            payloads: binary without NULLs.
        """
        slices = range(0, len(payloads), SLICE)
        doubtful = [first for first in slices if not self._parser.all_read_fully(payloads.slice(first, SLICE))]
        rows = (row for first in doubtful for row in range(first, min(first + SLICE, len(payloads))))
        return [row for row in rows if self.is_in(payloads[row].as_py())]

    def is_in(self, payload: bytes) -> bool:
        """Whether only the other message parses the payload without unknown fields."""
        return not self._parser.reads_fully(payload) and self._other.reads_fully(payload)
