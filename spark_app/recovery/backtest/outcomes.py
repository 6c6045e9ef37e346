"""How many rows pass and fail each expectation, by table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spark_app.model.definitions import Expectation

COORDINATES = ("_topic", "_partition", "_offset")
MOST_NAMED = 5  # failing rows of each table and expectation


@dataclass
class ExpectationOutcome:
    """
    Attributes:
        checked, failed: rows.
        rows: the coordinates of the first failing rows: topic, partition, offset.
    """

    checked: int = 0
    failed: int = 0
    rows: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass
class TableOutcome:
    """
    Attributes:
        silver: rows of silver that were checked.
        changed: columns of the expectations that projections have changed in silver: its rows were decoded from bronze.
        bronze: records that expectations keep out of silver; they were decoded from bronze and checked.
        expectations: name -> outcome, for each expectation that applies to the table.
        unclear: rows of schemas with several messages whose rules in the .proto differ; only others were checked.
    """

    silver: int = 0
    bronze: int = 0
    expectations: dict[str, ExpectationOutcome] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    unclear: int = 0

    @staticmethod
    def of(names: Iterable[str]) -> TableOutcome:
        return TableOutcome(expectations={name: ExpectationOutcome() for name in names})

    def count(self, expectations: Sequence[Expectation], masks: np.ndarray, rows: pa.RecordBatch) -> None:
        """Count failing rows.

        Args:
            masks: for each row a bitmask of the expectations that it fails, see `engine.failures`.
            rows: have the columns `COORDINATES`.
        """
        for bit, expectation in enumerate(expectations):
            outcome = self.expectations[expectation.name]
            failing = np.flatnonzero(masks >> bit & 1)
            outcome.checked += len(masks)
            outcome.failed += len(failing)
            first = failing[: MOST_NAMED - len(outcome.rows)]
            named = rows.select(COORDINATES).take(pa.array(first)).to_pylist() if len(first) else []
            outcome.rows += [tuple(row.values()) for row in named]


@dataclass(frozen=True)
class Outcomes:
    """
    Attributes:
        since: only rows that landed then or later were checked; None = all rows.
        tables: table -> outcome, for each silver table that an expectation applies to.
        undecodable: reason -> records that expectations keep out of silver, and that cannot be decoded now.
        idle: the expectations that apply to no table that exists.
    """

    since: datetime.datetime | None
    tables: Mapping[str, TableOutcome]
    undecodable: Mapping[str, int]
    idle: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """The keys are documented in docs/expectations.md."""
        return {
            "since": self.since and self.since.isoformat(),
            "tables": {table: _to_json(outcome) for table, outcome in self.tables.items()},
            "undecodable": dict(self.undecodable),
            "idle": list(self.idle),
        }


def _to_json(outcome: TableOutcome) -> dict[str, Any]:
    names = [column.removeprefix("_") for column in COORDINATES]
    expectations = {
        name: {
            "passed": expectation.checked - expectation.failed,
            "failed": expectation.failed,
            "rows": [dict(zip(names, row, strict=True)) for row in expectation.rows],
        }
        for name, expectation in outcome.expectations.items()
    }
    found = {"silver": outcome.silver, "bronze": outcome.bronze, "rules": expectations}
    more = {"changed": outcome.changed, "unclear": outcome.unclear}
    return found | {name: one for name, one in more.items() if one}
