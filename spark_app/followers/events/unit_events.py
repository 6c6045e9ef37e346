"""The events of consecutive units: a pure function of their manifests.

Each unit has a row of its own. What concerns single tables, rules and causes is summed over the units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_app.lake.delta.manifest import Manifest
from spark_app.model.events import Event, EventRow, Level
from spark_app.model.offsets import Offsets
from spark_app.model.reports import add_counts, add_outcomes
from spark_app.model.table_names import TableNames

MOST_TABLES = 200  # rows of one kind; the others are summed in one more
MOST_PARTITIONS = 20  # that the range of a unit names


def unit_events(layout: TableNames, units: Sequence[Manifest]) -> Iterator[EventRow]:
    """The events of some consecutive units; of a manifest `tables` is not looked at."""
    if not units:
        return
    for unit in units:
        yield _of_unit(unit)
        for number, event in enumerate(unit.counts.get("events", [])):
            yield _row(Event(**event), f"unit/{unit.sequence}/{number}", unit)
    first, last = units[0].sequence, units[-1]
    summed = [*_table_rows(layout, units), *_rules(layout, units), *_quarantine(units)]
    for event in summed:
        what = "/".join(str(event.details[key]) for key in ("rule", "cause") if key in event.details)
        yield _row(event, "/".join(filter(None, (event.kind, f"{first}-{last.sequence}", event.table, what))), last)


def _row(event: Event, id: str, unit: Manifest) -> EventRow:
    counts = unit.counts
    return EventRow.of(event, id, counts.get("at", counts["newest"]), counts.get("run"), unit.sequence)


def _of_unit(unit: Manifest) -> EventRow:
    counts = unit.counts
    silver, quarantine = sum(counts["silver"].values()), sum(counts["quarantine"].values())
    details = {
        "kind": unit.kind,
        "records": counts["bronze"],
        "silver": silver,
        "quarantine": quarantine,
        "deferred": counts["deferred"],
        "dropped": counts.get("dropped", 0),
        "tombstones": counts["tombstones"],
        "tables": len(counts["silver"]),
        "bytes": counts["value_bytes"],
        "seconds": counts.get("seconds"),
        "newest": counts["newest"],
    }
    details |= _range(unit.source.get("start", {}), unit.source.get("end", {}))
    details |= {"steps": counts["steps"]} if "steps" in counts else {}
    details |= {"request": unit.source["request"]} if "request" in unit.source else {}
    level: Level = "WARN" if unit.kind == "loss" else "INFO"
    return _row(Event("unit", _sentence(unit), level, details=details), f"unit/{unit.sequence}", unit)


def _sentence(unit: Manifest) -> str:
    seconds = unit.counts.get("seconds")
    took = f" in {seconds} s" if seconds else ""
    return f"Unit {unit.sequence} ({unit.kind}) has {unit.counts['bronze']:,} records{took}"


def _range(start: Offsets, end: Offsets) -> dict[str, Any]:
    """The offsets of the partitions that have moved: partition -> [first, end]."""
    moved = {
        f"{topic}/{partition}": [start.get(topic, {}).get(partition, 0), offset]
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
        if start.get(topic, {}).get(partition, 0) != offset
    }
    named = dict(list(moved.items())[:MOST_PARTITIONS])
    more = len(moved) - len(named)
    return ({"range": named} if named else {}) | ({"more_partitions": more} if more else {})


def _span(units: Sequence[Manifest]) -> str:
    first, last = units[0].sequence, units[-1].sequence
    return f"unit {first}" if first == last else f"units {first} to {last}"


def _table_rows(layout: TableNames, units: Sequence[Manifest]) -> Iterator[Event]:
    rows: dict[str, int] = {}
    for unit in units:
        add_counts(rows, unit.counts["silver"])
    ordered = sorted(rows.items(), key=lambda item: (-item[1], item[0]))
    for name, count in ordered[:MOST_TABLES]:
        text = f"{count:,} rows in {_span(units)}"
        yield Event("table_rows", text, table=layout.silver_of(name), details={"rows": count})
    rest = ordered[MOST_TABLES:]
    if rest:
        total = sum(count for _, count in rest)
        text = f"{total:,} rows in {_span(units)} in {len(rest):,} more tables"
        yield Event("table_rows", text, details={"rows": total, "tables": len(rest)})


def _rules(layout: TableNames, units: Sequence[Manifest]) -> Iterator[Event]:
    """Those that most rows fail come first; those beyond `MOST_TABLES` are summed by rule."""
    found: dict[str, dict[str, list[int]]] = {}
    for unit in units:
        for name, outcomes in unit.counts.get("expectations", {}).items():
            add_outcomes(found.setdefault(name, {}), outcomes)
    every = [(name, rule, passed, failed) for name, rules in found.items() for rule, (passed, failed) in rules.items()]
    ordered = sorted(every, key=lambda one: (-one[3], one[0], one[1]))
    for name, rule, passed, failed in ordered[:MOST_TABLES]:
        yield _rule(units, rule, passed, failed, layout.silver_of(name))
    rest: dict[str, list[int]] = {}
    for _, rule, passed, failed in ordered[MOST_TABLES:]:
        add_outcomes(rest, {rule: [passed, failed]})
    for rule, (passed, failed) in sorted(rest.items()):
        yield _rule(units, rule, passed, failed, None)


def _rule(units: Sequence[Manifest], rule: str, passed: int, failed: int, table: str | None) -> Event:
    text = f"{failed:,} of {passed + failed:,} rows fail {rule} in {_span(units)}"
    details = {"rule": rule, "passed": passed, "failed": failed}
    return Event("rule", text, "WARN" if failed else "INFO", table, details)


def _quarantine(units: Sequence[Manifest]) -> Iterator[Event]:
    counts: dict[str, int] = {}
    samples: dict[str, str] = {}
    for unit in units:
        add_counts(counts, unit.counts["quarantine"])
        for cause, row in unit.counts.get("samples", {}).items():
            samples.setdefault(cause, _coordinates(*row))
    for cause, count in sorted(counts.items()):
        details: Mapping[str, Any] = {"cause": cause, "count": count, "sample": samples.get(cause)}
        text = f"{count:,} records go to quarantine for {cause} in {_span(units)}"
        yield Event("quarantine", text, "WARN", details=details)


def _coordinates(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}@{offset}"
