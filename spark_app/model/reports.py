"""The reports of a unit's tasks: the files that they wrote, and counts of records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class FileEntry:
    """One Parquet file of a unit. `path` is relative to the table's folder, `size` is in bytes, `stats` is JSON."""

    path: str
    rows: int
    size: int
    stats: str
    schema: str  # the file's columns as Delta's schema JSON

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> FileEntry:
        return FileEntry(**value)


@dataclass
class Report:
    """The result of one task; `merge` adds the results of several, or of several jobs of one unit.

    Counts are records. One that does not balance is refused by `Manifests.commit`, which looks at the files, too.
    """

    files: dict[str, list[FileEntry]] = field(default_factory=dict)  # table folder -> files
    bronze: int = 0
    silver: dict[str, int] = field(default_factory=dict)  # routing name -> rows
    quarantine: dict[str, int] = field(default_factory=dict)  # cause -> rows
    samples: dict[str, list[Any]] = field(default_factory=dict)  # cause -> topic, partition, offset of the first record
    deferred: int = 0
    dropped: int = 0
    tombstones: int = 0
    schema_ids: dict[str, dict[str, int]] = field(default_factory=dict)  # routing name -> schema key -> rows
    spans: dict[str, list[int]] = field(default_factory=dict)  # "topic/partition" -> [first, last, records]
    new_ids: dict[str, int] = field(default_factory=dict)  # schema key -> records
    new_values: dict[str, dict[str, int]] = field(default_factory=dict)  # routing value -> message type -> records
    new_columns: dict[str, int] = field(default_factory=dict)  # path without a field id -> times that a task met it
    newest: int | None = None  # Kafka timestamp of the newest record, microseconds since 1970
    value_bytes: int = 0
    expectations: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # name -> rule -> [passed, failed]
    by_action: dict[str, dict[str, int]] = field(default_factory=dict)  # name -> action of the rules -> failing rows
    waiting: dict[str, int] = field(default_factory=dict)  # routing name of a paused table -> rows, among `deferred`
    failing: dict[str, list[Any]] = field(default_factory=dict)  # routing name -> `FailedRow` that pauses the table
    read: dict[str, list[list[int]]] = field(default_factory=dict)  # "topic/partition" -> [start, end] of each span
    misfits: dict[str, str] = field(default_factory=dict)  # schema key -> what is said of its records, see `Decoded`
    seconds: float = 0.0  # that the unit's jobs took; of a task: 0
    # step -> seconds, summed over tasks and jobs; no part of what a report says of the records
    steps: dict[str, float] = field(default_factory=dict, compare=False)

    def merge(self, other: Report) -> None:
        for table, files in other.files.items():
            self.files.setdefault(table, []).extend(files)
        for name in ("bronze", "deferred", "dropped", "tombstones", "value_bytes", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("silver", "quarantine", "new_ids", "new_columns", "waiting", "steps"):
            add_counts(getattr(self, name), getattr(other, name))
        for name in ("schema_ids", "new_values", "by_action"):
            for key, counts in getattr(other, name).items():
                add_counts(getattr(self, name).setdefault(key, {}), counts)
        for key, (first, last, count) in other.spans.items():
            old = self.spans.get(key, [first, last, 0])
            self.spans[key] = [min(old[0], first), max(old[1], last), old[2] + count]
        for name, rules in other.expectations.items():
            add_outcomes(self.expectations.setdefault(name, {}), rules)
        for mine, others in ((self.failing, other.failing), (self.samples, other.samples)):
            for name, row in others.items():
                mine[name] = min(mine.get(name, row), row)
        self.misfits = other.misfits | self.misfits
        for key, spans in other.read.items():
            self.read.setdefault(key, []).extend(spans)
        if other.newest is not None:
            self.newest = max(self.newest or 0, other.newest)

    @property
    def met_new(self) -> bool:
        """Whether the driver has to resolve schema ids or routing values, to give columns their field ids, or to pause
        tables, before all records can be routed."""
        return bool(self.new_ids or self.new_values or self.new_columns or self.failing)

    def add_files(self, written: Iterable[tuple[str, FileEntry]]) -> None:
        """Name more files, each with the folder of its table."""
        for table, entry in written:
            self.files.setdefault(table, []).append(entry)

    def balance(self) -> tuple[int, int]:
        """(ingested records, routed records). If they differ, the unit must not be committed."""
        routed = sum(self.silver.values()) + sum(self.quarantine.values()) + self.deferred + self.tombstones
        return self.bronze, routed + self.dropped

    def to_json(self) -> str:
        return json.dumps(self, default=vars)

    @staticmethod
    def from_json(text: str) -> Report:
        value = json.loads(text)
        files = {table: [FileEntry.from_json(f) for f in files] for table, files in value.pop("files").items()}
        return Report(files=files, **value)


def add_counts(into: dict[str, Number], more: Mapping[str, Number]) -> None:
    for key, count in more.items():
        into[key] = into[key] + count if key in into else count


def to_milliseconds(steps: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each step, rounded to milliseconds."""
    return {step: round(seconds, 3) for step, seconds in steps.items()}


def add_outcomes(into: dict[str, list[int]], more: Mapping[str, list[int]]) -> None:
    """Add [passed, failed] by rule."""
    for rule, (passed, failed) in more.items():
        had = into.get(rule, [0, 0])
        into[rule] = [had[0] + passed, had[1] + failed]
