"""Start and end of a streaming query's batches, read from its checkpoint.

Spark writes `offsets/N` when batch N is planned and `commits/N` when it is done. These two marks are the same for every
query, whatever it does in a batch.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Progress:
    """Batches of one query on a Kafka topic; times are seconds since 1970. Call `look` often, because Spark removes old
    marks.

    Attributes:
        before: the checkpoint of a query whose output this query reads, if there is one: then time counts from the
            first plan of that query, and no batch counts as warm before this query's first batch has ended.
    """

    checkpoint: Path
    before: Path | None = None
    planned: dict[int, float] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    first_records: int = 0
    _began: float | None = None

    def look(self) -> None:
        """Store the new marks."""
        for marks, name in ((self.planned, "offsets"), (self.done, "commits")):
            for path in (self.checkpoint / name).glob("[0-9]*"):
                if path.name.isdecimal() and int(path.name) not in marks:
                    marks[int(path.name)] = path.stat().st_mtime
        first = (self.before or self.checkpoint) / "offsets" / "0"
        if self._began is None and first.exists():
            self._began = first.stat().st_mtime
        if not self.first_records and 0 in self.planned and not self.before:
            self.first_records = _records(first)

    @property
    def seconds(self) -> float:
        """From the start of the first batch to the end of the last."""
        return self.ended - self.began

    @property
    def began(self) -> float:
        assert self._began is not None
        return self._began

    @property
    def ended(self) -> float:
        return max(self.done.values())

    @property
    def first_seconds(self) -> float:
        """Seconds of the first batch, which compiles code, starts workers and creates tables."""
        return self.done[0] - self.began


def _records(path: Path) -> int:
    """The number of records up to the offsets in the file, of a topic whose partitions begin at 0."""
    topics = json.loads(path.read_text().splitlines()[-1])
    return sum(offset for partitions in topics.values() for offset in partitions.values())
