"""Checks rows of silver by the expectations of their tables, before they are written.

A row that fails an expectation with the action pause pauses its table, and then no row of the table lands. A row that
fails a expectation with the action quarantine is quarantined; one that fails only expectations with the action drop is
dropped; all other rows land. Rows of all tables with one definition are checked together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_app.model.definitions import Action, Definition, Definitions, Expectation, Origin
from spark_app.model.reports import add_counts
from spark_app.tables.expectations.checks import select_needed
from spark_app.tables.route import Routed, pick
from spark_app.tables.sql.engine import failures

KEEP_OUT: tuple[Action, ...] = ("quarantine", "drop")
BY_RANK: tuple[Action, ...] = (*KEEP_OUT, "warn")  # of the actions of the expectations that a row fails, the first wins


@dataclass(frozen=True)
class KeptOut:
    """Rows that do not land because they fail the same expectations.

    Attributes:
        rows: their positions.
        action: quarantine or drop.
        rules: the names of the failed expectations that keep them out, in the order of the definition.
    """

    rows: np.ndarray
    action: Action
    rules: tuple[str, ...]
    definition: int


@dataclass
class Checked:
    """
    Attributes:
        numbers: for each row the number of its definition, 0 = none; None if no row has one.
        kept_out: the rows that do not land.
        counts: routing name -> expectation -> [passed, failed], in rows.
        by_action: routing name -> action -> rows that fail expectations and that this action is applied to.
        failing: routing name -> (the position of the first row that pauses the table, the expectation).
    """

    numbers: np.ndarray | None = None
    kept_out: list[KeptOut] = field(default_factory=list)
    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    by_action: dict[str, dict[str, int]] = field(default_factory=dict)
    failing: dict[str, tuple[int, Expectation]] = field(default_factory=dict)

    def landing(self, count: int) -> np.ndarray | None:
        """The positions of the rows that land, of `count`; None = all."""
        if not self.kept_out:
            return None
        lands = np.ones(count, bool)
        for part in self.kept_out:
            lands[part.rows] = False
        return np.flatnonzero(lands)


def check(
    routed: Routed, codes: np.ndarray, rows: pa.Table, definitions: Definitions, types: pa.Schema, origin: Origin
) -> Checked:
    """Check rows of one origin, of tables with the same columns.

    Args:
        codes: for each row its code in `routed`; each has a table.
        rows: the rows as silver will have them.
        types: the types of columns that the rows lack: such a column is NULL.
    """
    checked = Checked()
    for definition, own in _by_definition(routed, codes, definitions, origin):
        positions = np.flatnonzero(np.isin(codes, own))
        needed = select_needed(pick(rows, positions), definition.expectations, types)
        masks = failures(needed, [expectation.check for expectation in definition.expectations])
        if checked.numbers is None:
            checked.numbers = np.zeros(len(codes), np.int64)
        checked.numbers[positions] = definition.number
        _count(checked.counts, routed, codes[positions], masks, definition.expectations)
        _count_by_action(checked.by_action, routed, codes[positions], masks, definition.expectations)
        checked.kept_out += _kept_out(positions, masks, definition)
        checked.failing |= _failing(routed, codes, positions, masks, definition.expectations)
    return checked


def _by_definition(
    routed: Routed, codes: np.ndarray, definitions: Definitions, origin: Origin
) -> Iterator[tuple[Definition, list[int]]]:
    """The codes of the rows by the definition of their tables, without those that have none."""
    found: dict[int, tuple[Definition, list[int]]] = {}
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        name = routed.results[code].name
        definition = None if name is None else definitions.of(name, origin)
        if definition is not None:
            found.setdefault(definition.number, (definition, []))[1].append(code)
    yield from found.values()


def _count(
    counts: dict[str, dict[str, list[int]]],
    routed: Routed,
    codes: np.ndarray,
    masks: np.ndarray,
    expectations: tuple[Expectation, ...],
) -> None:
    """Count by table and expectation how many rows pass and fail."""
    every = np.bincount(codes, minlength=len(routed.results))
    some = np.flatnonzero(masks)
    codes, masks = codes[some], masks[some]
    failing = [np.bincount(codes[masks >> bit & 1 == 1], minlength=len(every)) for bit in range(len(expectations))]
    for code in np.flatnonzero(every).tolist():
        table = counts.setdefault(str(routed.results[code].name), {})
        for expectation, failed in zip(expectations, failing, strict=True):
            entry = table.setdefault(expectation.name, [0, 0])
            entry[0] += int(every[code] - failed[code])
            entry[1] += int(failed[code])


def _count_by_action(
    counts: dict[str, dict[str, int]],
    routed: Routed,
    codes: np.ndarray,
    masks: np.ndarray,
    expectations: tuple[Expectation, ...],
) -> None:
    """Count by table and action the rows that fail expectations, each once."""
    for action in BY_RANK if masks.any() else ():
        failed = masks & _bits(expectations, action) != 0
        found, rows = np.unique(codes[failed], return_counts=True)
        for code, count in zip(found.tolist(), rows.tolist(), strict=True):
            add_counts(counts.setdefault(str(routed.results[code].name), {}), {action: count})
        codes, masks = codes[~failed], masks[~failed]


def _bits(expectations: tuple[Expectation, ...], action: Action) -> int:
    """The bits of the expectations with this action."""
    return sum(1 << bit for bit, expectation in enumerate(expectations) if expectation.action == action)


def _failing(
    routed: Routed, codes: np.ndarray, positions: np.ndarray, masks: np.ndarray, expectations: tuple[Expectation, ...]
) -> Iterator[tuple[str, tuple[int, Expectation]]]:
    """For each table with a row that fails an expectation with the action pause: the first such row, and the
    expectation."""
    bits = [bit for bit, expectation in enumerate(expectations) if expectation.action == "pause"]
    failed = np.flatnonzero(masks & sum(1 << bit for bit in bits))
    for code, first in zip(*np.unique(codes[positions[failed]], return_index=True), strict=True):
        row = failed[first]
        expectation = next(expectations[bit] for bit in bits if masks[row] >> bit & 1)
        yield str(routed.results[code].name), (int(positions[row]), expectation)


def _kept_out(positions: np.ndarray, masks: np.ndarray, definition: Definition) -> Iterator[KeptOut]:
    """The rows that fail expectations which keep them out, by these expectations."""
    bits: Mapping[Action, int] = {action: _bits(definition.expectations, action) for action in KEEP_OUT}
    failed = masks & sum(bits.values())
    for mask in np.unique(failed[failed != 0]).tolist():
        action: Action = "quarantine" if mask & bits["quarantine"] else "drop"
        names = tuple(expectation.name for bit, expectation in enumerate(definition.expectations) if mask >> bit & 1)
        yield KeptOut(positions[failed == mask], action, names, definition.number)
