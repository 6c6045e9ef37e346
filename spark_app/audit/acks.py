"""Records that Kafka acknowledged to a producer: JSON lines of topic, partition, offset and the value's SHA-256."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import numpy as np

from spark_app.model.errors import ConfigurationError
from spark_app.model.offsets import Span

Digests = tuple[np.ndarray, np.ndarray]  # offsets, ascending; 32 bytes each, zeros for a tombstone
NONE: Digests = (np.empty(0, np.int64), np.empty((0, 32), np.uint8))


class Acknowledged:
    """Offsets and digests of acknowledged records, by topic and partition; 40 bytes per record."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Digests] = {}

    def put(self, topic: str, partition: int, offsets: np.ndarray, digests: np.ndarray) -> None:
        """Store the records of a partition: int64 offsets (n) in any order, uint8 digests (n, 32)."""
        order = np.argsort(offsets, kind="stable")
        self._found[topic, partition] = (offsets[order], digests[order])

    def of(self, span: Span) -> Digests:
        """Offsets and digests of the span's acknowledged records."""
        offsets, digests = self._found.get((span.topic, span.partition), NONE)
        low, high = np.searchsorted(offsets, [span.start, span.end])
        return offsets[low:high], digests[low:high]


def read_acks(path: Path) -> Acknowledged:
    """Read the file of a producer. An incomplete last line is ignored.

    Raises:
        ConfigurationError: the file cannot be read, or a line is not an acknowledgement.
    """
    offsets: dict[tuple[str, int], array[int]] = {}
    digests: dict[tuple[str, int], bytearray] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n"):
                    place, offset, digest = _read_line(line, f"line {number} of {path}")
                    offsets.setdefault(place, array("q")).append(offset)
                    digests.setdefault(place, bytearray()).extend(digest)
    except OSError as error:
        raise ConfigurationError(f"--acks: cannot read {path} ({error.strerror})") from None
    found = Acknowledged()
    for (topic, partition), places in offsets.items():
        raw = np.frombuffer(bytes(digests[topic, partition]), np.uint8).reshape(-1, 32)
        found.put(topic, partition, np.array(places, np.int64), raw)
    return found


def _read_line(line: str, where: str) -> tuple[tuple[str, int], int, bytes]:
    try:
        fields = json.loads(line)
        digest = bytes.fromhex(fields["sha256"]) if fields["sha256"] else bytes(32)
        return (fields["topic"], int(fields["partition"])), int(fields["offset"]), digest
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"--acks: {where} is not an acknowledgement ({error})") from None
