"""Checks rows of silver by the rules of their tables, before they are written.

A row that fails a rule with the action pause pauses its table, and then no row of the table lands. A row that fails a
rule with the action quarantine is quarantined; one that fails only rules with the action drop is dropped; all other
rows land. Rows of all tables with one definition are checked together.
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
BY_RANK: tuple[Action, ...] = (*KEEP_OUT, "warn")  # of the actions of the rules that a row fails, the first wins


@dataclass(frozen=True)
class KeptOut:
    """Rows that do not land because they fail the same rules.

    Attributes:
        rows: their positions.
        action: quarantine or drop.
        rules: the failed rules that keep them out, in the order of the definition.
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
        counts: routing name -> rule -> [passed, failed], in rows.
        by_action: routing name -> action -> rows that fail rules and that this action is applied to.
        failing: routing name -> (the position of the first row that pauses the table, the rule).
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
        places = np.flatnonzero(np.isin(codes, own))
        needed = select_needed(pick(rows, places), definition.expectations, types)
        masks = failures(needed, [rule.check for rule in definition.expectations])
        if checked.numbers is None:
            checked.numbers = np.zeros(len(codes), np.int64)
        checked.numbers[places] = definition.number
        _count(checked.counts, routed, codes[places], masks, definition.expectations)
        _count_by_action(checked.by_action, routed, codes[places], masks, definition.expectations)
        checked.kept_out += _kept_out(places, masks, definition)
        checked.failing |= _failing(routed, codes, places, masks, definition.expectations)
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
    rules: tuple[Expectation, ...],
) -> None:
    """Count by table and rule how many rows pass and fail."""
    every = np.bincount(codes, minlength=len(routed.results))
    some = np.flatnonzero(masks)
    codes, masks = codes[some], masks[some]
    failing = [np.bincount(codes[masks >> bit & 1 == 1], minlength=len(every)) for bit in range(len(rules))]
    for code in np.flatnonzero(every).tolist():
        table = counts.setdefault(str(routed.results[code].name), {})
        for rule, failed in zip(rules, failing, strict=True):
            entry = table.setdefault(rule.name, [0, 0])
            entry[0] += int(every[code] - failed[code])
            entry[1] += int(failed[code])


def _count_by_action(
    counts: dict[str, dict[str, int]],
    routed: Routed,
    codes: np.ndarray,
    masks: np.ndarray,
    rules: tuple[Expectation, ...],
) -> None:
    """Count by table and action the rows that fail rules, each once."""
    for action in BY_RANK if masks.any() else ():
        failed = masks & _bits(rules, action) != 0
        found, rows = np.unique(codes[failed], return_counts=True)
        for code, count in zip(found.tolist(), rows.tolist(), strict=True):
            add_counts(counts.setdefault(str(routed.results[code].name), {}), {action: count})
        codes, masks = codes[~failed], masks[~failed]


def _bits(rules: tuple[Expectation, ...], action: Action) -> int:
    """The bits of the rules with this action."""
    return sum(1 << bit for bit, rule in enumerate(rules) if rule.action == action)


def _failing(
    routed: Routed, codes: np.ndarray, places: np.ndarray, masks: np.ndarray, rules: tuple[Expectation, ...]
) -> Iterator[tuple[str, tuple[int, Expectation]]]:
    """For each table with a row that fails a rule with the action pause: the first such row, and the rule."""
    bits = [bit for bit, rule in enumerate(rules) if rule.action == "pause"]
    failed = np.flatnonzero(masks & sum(1 << bit for bit in bits))
    for code, first in zip(*np.unique(codes[places[failed]], return_index=True), strict=True):
        row = failed[first]
        rule = next(rules[bit] for bit in bits if masks[row] >> bit & 1)
        yield str(routed.results[code].name), (int(places[row]), rule)


def _kept_out(places: np.ndarray, masks: np.ndarray, definition: Definition) -> Iterator[KeptOut]:
    """The rows that fail rules which keep them out, by these rules."""
    bits: Mapping[Action, int] = {action: _bits(definition.expectations, action) for action in KEEP_OUT}
    failed = masks & sum(bits.values())
    for mask in np.unique(failed[failed != 0]).tolist():
        action: Action = "quarantine" if mask & bits["quarantine"] else "drop"
        names = tuple(rule.name for bit, rule in enumerate(definition.expectations) if mask >> bit & 1)
        yield KeptOut(places[failed == mask], action, names, definition.number)
