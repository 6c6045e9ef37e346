"""The result of a backtest as text."""

from __future__ import annotations

from spark_app.recovery.backtest.outcomes import Outcomes, RuleOutcome

NAMED = "first failing rows"


def outcome_lines(outcomes: Outcomes) -> list[str]:
    """A line per table and rule, then where the rows came from, and what could not be checked."""
    tables = outcomes.tables
    since = f"only rows that landed at {outcomes.since.isoformat()} or later" if outcomes.since else "all rows"
    wide = max([len(table) for table in tables] + [5]) + 2
    names = [name for outcome in tables.values() for name in outcome.rules]
    widest = max([len(name) for name in names] + [4]) + 2
    lines = [f"{'table':<{wide}}{'rule':<{widest}}{'checked':>14}{'failed':>14}{'share':>11}  {NAMED}"]
    for table, outcome in tables.items():
        for name, rule in outcome.rules.items():
            counts = f"{rule.checked:>14,}{rule.failed:>14,}{_share(rule.failed, rule.checked):>11}"
            lines.append(f"{table:<{wide}}{name:<{widest}}{counts}  {_places(rule)}".rstrip())
    lines += ["", f"{'table':<{wide}}{'rows of silver':>18}{'kept out of silver':>22}"]
    lines += [f"{table:<{wide}}{outcome.silver:>18,}{outcome.bronze:>22,}" for table, outcome in tables.items()]
    lines += ["", f"checked: {since}; those kept out of silver by rules were decoded from bronze"]
    for table, outcome in tables.items():
        if outcome.changed:
            lines.append(
                f"checked: {table} as it was sent, decoded from bronze: silver changes {', '.join(outcome.changed)}"
            )
    for reason, count in sorted(outcomes.undecodable.items()):
        lines.append(f"not checked: {count:,} records that cannot be decoded now: {reason}")
    for table, outcome in tables.items():
        if outcome.unclear:
            said = f"{outcome.unclear:,} rows of {table}, of unclear messages"
            lines.append(f"not checked by rules in the .proto: {said}")
    lines += [f"not checked: {name} applies to no table that exists" for name in outcomes.idle]
    return lines


def _share(failed: int, checked: int) -> str:
    """A share that is not zero never looks like zero, and one that is not everything never like everything."""
    if not failed:
        return "0%"
    if failed == checked:
        return "100%"
    share = 100 * failed / checked
    return "< 0.01%" if share < 0.01 else "> 99.99%" if share > 99.99 else f"{share:.2f}%"


def _places(rule: RuleOutcome) -> str:
    return " ".join(f"{topic}/{partition}@{offset}" for topic, partition, offset in rule.rows)
