"""Compares what rules did to the rows of a lake with what the producer planted, record by record and rule by rule.

The ledger is the file of acknowledgements: it names the kind of failure of each planted record. The lake has to have
all of its manifests, because the counts of rules are in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from spark_app.lake.delta.manifest import Manifest, Manifests
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.model.reports import add_outcomes
from tests.chaos import read_back

RECORD = ["topic", "partition", "offset"]
LABELS: dict[str, type[pl.DataType]] = {"game": pl.String, "planted": pl.String}
TYPES: dict[str, type[pl.DataType]] = {"topic": pl.String, "partition": pl.Int64, "offset": pl.Int64}
EXAMPLES = 3


@dataclass(frozen=True)
class Expected:
    """What becomes of planted records.

    Attributes:
        rules: kind of failure -> the rule that it breaks.
        quarantined, dropped: the kinds whose records the rule keeps out of silver. All other records land.
        pausing: the kind that pauses a table; waiting rows that have it land or are quarantined, as a person decides.
        paused: the games whose tables have the rule that pauses.
    """

    rules: Mapping[str, str]
    quarantined: str
    dropped: str
    pausing: str
    paused: tuple[str, ...]

    def rules_of(self, game: str) -> dict[str, str]:
        """Kind of failure -> rule, of one table."""
        return {kind: rule for kind, rule in self.rules.items() if kind != self.pausing or game in self.paused}


def differences(lake: Path, acks: Path, expected: Expected) -> dict[str, object]:
    """Where tables and counts of a lake differ from the producer's ledger; empty = nowhere. Call it when no
    record waits any more."""
    sent = read_ledger(acks)
    manifests = Manifests(Lake(lake))
    units = [manifests.read(number) for number in manifests.numbers()]
    found = _misplaced(lake, sent, expected) | _counted_otherwise(units, sent, expected)
    waited, let_in = _waited(units)
    return found | ({"let in otherwise than held": (let_in, waited)} if waited != let_in else {})


def read_ledger(acks: Path) -> pl.DataFrame:
    """The valid records: `RECORD`, the game, and the kind of failure or NULL."""
    lines = pl.scan_ndjson(acks, schema=TYPES | LABELS)
    return lines.filter(pl.col("game").is_not_null()).select(*RECORD, *LABELS).collect()


def count_pauses(lake: Path) -> dict[str, int]:
    """Routing name -> how often its table was paused."""
    manifests = Manifests(Lake(lake))
    begun = {(name, p.since) for n in manifests.numbers() for name, p in manifests.read(n).pauses.items()}
    return {name: sum(one == name for one, _ in begun) for name in {name for name, _ in begun}}


def quarantined_by_resume(lake: Path, expected: Expected) -> pl.DataFrame:
    """The records that a person's decision about a paused table sent to quarantine."""
    return _kept_out(lake, "quarantine_events").filter(pl.col("rules") == [expected.rules[expected.pausing]])


def _misplaced(lake: Path, sent: pl.DataFrame, expected: Expected) -> dict[str, object]:
    """Records that are in another table than planned, or twice in theirs."""
    by_decision = quarantined_by_resume(lake, expected)
    could_wait = sent.filter(pl.col("planted") == expected.pausing, pl.col("game").is_in(expected.paused))
    found: dict[str, object] = {"quarantined by a decision": _missing(by_decision, could_wait)}
    quarantined = sent.filter(pl.col("planted") == expected.quarantined)
    dropped = sent.filter(pl.col("planted") == expected.dropped)
    kept_out = {
        "quarantine_events": pl.concat([_with_rule(quarantined, expected), by_decision]),
        "dropped_events": _with_rule(dropped, expected),
    }
    for name, due in kept_out.items():
        found |= _compared(name, due, _kept_out(lake, name), [*RECORD, "rules"])
    landing = sent.join(pl.concat([one.select(RECORD) for one in kept_out.values()]), RECORD, "anti")
    for game in sent["game"].unique().sort():
        due, actual = landing.filter(pl.col("game") == game), _silver(lake, f"silver_{game}_events")
        found |= _compared(f"silver_{game}_events", due, actual, RECORD)
    return {what: examples for what, examples in found.items() if examples}


def _compared(name: str, due: pl.DataFrame, actual: pl.DataFrame, columns: list[str]) -> dict[str, object]:
    doubled = actual.filter(actual.select(RECORD).is_duplicated())
    found: dict[str, object] = {f"twice in {name}": _examples(doubled)}
    wrongs = {"missing in": _missing(due, actual, columns), "not planned in": _missing(actual, due, columns)}
    return found | {f"{what} {name}": rows for what, rows in wrongs.items()}


def _missing(rows: pl.DataFrame, others: pl.DataFrame, columns: list[str] = RECORD) -> list[object]:
    return _examples(rows.join(others, columns, "anti"))


def _examples(rows: pl.DataFrame) -> list[object]:
    return [*rows.head(EXAMPLES).select(RECORD).rows()]


def _with_rule(sent: pl.DataFrame, expected: Expected) -> pl.DataFrame:
    """With the list of rules that each record fails."""
    rule = pl.col("planted").replace_strict(expected.rules, return_dtype=pl.String)
    return sent.select(*RECORD, pl.concat_list(rule).alias("rules"))


def _kept_out(lake: Path, name: str) -> pl.DataFrame:
    """The records that rules keep out of silver in this table, with the rules."""
    if not (lake / name / "_delta_log").is_dir():
        return pl.DataFrame(schema=TYPES | {"rules": pl.List(pl.String)})
    rows = pl.DataFrame(read_back.read(lake, name))
    if "cause" in rows.columns:
        rows = rows.filter(pl.col("cause") == Cause.EXPECT_FAILED)
    return rows.select(*(pl.col(column).cast(kind) for column, kind in TYPES.items()), "rules")


def _silver(lake: Path, name: str) -> pl.DataFrame:
    rows = pl.DataFrame(read_back.read(lake, name, [f"_{column}" for column in RECORD]))
    return rows.select(pl.col(f"_{column}").cast(kind).alias(column) for column, kind in TYPES.items())


def _counted_otherwise(units: list[Manifest], sent: pl.DataFrame, expected: Expected) -> dict[str, object]:
    """Table and rule whose [passed, failed] differ: (counted, due)."""
    counted: dict[str, dict[str, list[int]]] = {}
    for unit in units:
        for name, rules in unit.counts.get("expectations", {}).items():
            add_outcomes(counted.setdefault(name, {}), rules)
    due: dict[str, dict[str, list[int]]] = {}
    for game in sent["game"].unique():
        rows = sent.filter(pl.col("game") == game)
        planted = dict(rows["planted"].value_counts().iter_rows())
        failed = {rule: planted.get(kind, 0) for kind, rule in expected.rules_of(game).items()}
        due[game] = {rule: [len(rows) - count, count] for rule, count in failed.items()}
    pairs = {(name, rule) for one in (counted, due) for name, rules in one.items() for rule in rules}
    found = {pair: tuple(one.get(pair[0], {}).get(pair[1]) for one in (counted, due)) for pair in sorted(pairs)}
    return {f"count of {rule} in {name}": both for (name, rule), both in found.items() if both[0] != both[1]}


def _waited(units: list[Manifest]) -> tuple[int, int]:
    """(records that units deferred, records that later units decoded): each is let in once."""
    deferred = sum(unit.counts["deferred"] for unit in units)
    return deferred, sum(unit.source["records"] for unit in units if unit.kind == "deferred")
