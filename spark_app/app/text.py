"""Output of the commands `status`, `expect check` and `audit`. The live table of `./scripts/run` shares the status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_app.model.text import one_line

if TYPE_CHECKING:
    from spark_app.audit.verdict import Verdict
    from spark_app.recovery.backtest.outcomes import Outcomes


MOST_SHOWN = 10
BY_ACTION = {"warn": "warned", "drop": "dropped", "quarantine": "quarantined"}  # action of an expectation -> heading


def status_lines(value: Mapping[str, Any] | None, page: str | None = None) -> list[str]:
    """The status as lines, without the reason of an unhealthy state. "-" stands for a value that is not known yet.

    Args:
        value: None = there is no status yet.
        page: the address of the lake's page, if one runs.
    """
    address = [f"page        {page}"] if page else []
    if value is None:
        return address
    batch, lost = value["batch"] or {}, value.get("lost") or {}
    rate = value.get("rate") if value["state"] == "running" else None  # that of the last minute before it stopped
    lines = [
        f"state       {value['state']}",
        *address,
        f"rate        {_or_dash(rate)} rows/s in the last minute",
        f"lag         {_or_dash(value['lag'])} records",
        "last batch  " + ("{records:,} records in {seconds} s at {at}".format(**batch) if batch else "-"),
        f"age         {_or_dash(value['age_s'])} s from produced to visible",
        f"starts      {value['starts']:,}, {value['bumps']:,} of them caused by a schema bump",
        f"bronze      {value['bronze']:,} rows, {value['deferred']:,} deferred",
        f"quarantine  {sum(value['quarantine'].values()):,} open{_by_cause(value['quarantine'])}",
        *([f"dropped     {value['dropped']:,} by expectations"] if value.get("dropped") else []),
        *notes(value),
        f"lost        {lost.get('offsets', 0):,} offsets in {lost.get('ranges', 0):,} ranges, accepted",
        "",
    ]
    for name, *counts, seen in table_rows(value):
        lines.append(f"{name:<24}" + "".join(f"{count:>13}" for count in counts) + f"  {seen}")
    return lines


def notes(value: Mapping[str, Any]) -> list[str]:
    """Lines besides the counts of every lake: expectations, paused tables, schemas that are kept out, and what is
    behind."""
    executors = value.get("executors")
    return [
        *(
            f"expectation {name}: {bad:,} of {good + bad:,} rows fail"
            for name, (good, bad) in _items(value, "expectations")
        ),
        *(f"blocked     {n:,} offsets of {p}, by an open transaction" for p, n in _items(value, "held_back")),
        *(_paused(name, pause) for name, pause in _items(value, "paused")),
        *(_reference(name, one) for name, one in _items(value, "references")),
        *(f"schemas     records wait for {key}: {why}" for key, why in _items(value, "awaited")),
        *_schema_warnings(value.get("schema_warnings") or {}),
        *_behind(value),
        *_source(value.get("source")),
        *(["executors   {now:,} of {wanted:,} that the load needs".format(**executors)] if executors else []),
        *(f"settings    {setting}: {fault}" for setting, fault in _items(value, "faults")[:MOST_SHOWN]),
        *(f"sql         {table}: {one['waits']}" for table, one in _items(value, "sql") if one.get("waits")),
        *(f"gold        {table} failed, and is recomputed later: {why}" for table, why in _items(value, "gold_failed")),
    ]


def table_rows(value: Mapping[str, Any]) -> list[list[str]]:
    """The headings, then a line of cells for each table. There are columns for expectations once rows have failed
    one, and for waiting rows while tables are paused."""
    tables, paused = value.get("tables") or {}, value.get("paused") or {}
    actions = BY_ACTION if any(table.get("failed") for table in tables.values()) else {}
    waiting = ["waiting"] if paused else []
    found = [["table", "silver rows", "gold rows", *actions.values(), *waiting, "schema versions"]]
    for name in sorted({*tables, *paused}):
        table = tables.get(name) or {}
        failed = table.get("failed") or {}
        counts = [table.get("silver") or 0, table.get("gold") or 0, *(failed.get(action, 0) for action in actions)]
        waits = [f"{paused[name]['rows']:,}" if name in paused else "" for _ in waiting]
        seen = "  ".join(f"{version} {rows:,}" for version, rows in rows_by_version(value, name).items())
        found.append([name, *(f"{count:,}" for count in counts), *waits, seen])
    return found


def rows_by_version(value: Mapping[str, Any], table: str) -> dict[str, int]:
    """Version of the schema, or `id 7` if it is not known -> rows of a table."""
    versions = value.get("versions") or {}
    rows = ((value.get("tables") or {}).get(table) or {}).get("schema_ids") or {}
    return {
        f"v{versions[key]}" if key in versions else f"id {key}": rows[key]
        for key in sorted(rows, key=lambda key: (len(key), key))
    }


def _items(value: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    return sorted((value.get(key) or {}).items())


def _paused(name: str, pause: Mapping[str, Any]) -> str:
    how = "are let in" if pause["let_in"] else f"wait: {pause['record']} fails {pause['rule']}"
    return f"paused      {name}: {pause['rows']:,} rows {how}"


def _schema_warnings(warnings: Mapping[str, Any]) -> list[str]:
    """The schemas about which a person decides, the number of warnings about versions, and the newest ones."""
    stopped = [
        f"schemas     {key} is kept out: {why}; decide: protolake accept-schema {key} --as ..."
        for key, why in warnings.get("stopped", {}).items()
    ]
    if not warnings.get("count"):
        return stopped
    newest = [f"            {warning}" for warning in warnings["newest"]]
    count = f"schemas     {warnings['count']:,} warnings about new versions, see `protolake schemas`"
    return [*stopped, count, *newest]


def _reference(name: str, reference: Mapping[str, Any]) -> str:
    newer = f"; a newer version is refused: {reference['refused']}" if reference["refused"] else ""
    return f"reference   {name}: {reference['rows']:,} rows, version {reference['version'] or '-'}{newer}"


def _behind(value: Mapping[str, Any]) -> list[str]:
    """The followers that lack units. Tables by SQL lack some until their interval is over."""
    return [
        f"follower    {name} is {one['lag']:,} units behind{_why_behind(one)}"
        for name, one in _items(value, "followers")
        if one["lag"] and (not name.startswith("sql.") or _why_behind(one))
    ]


def _why_behind(follower: Mapping[str, Any]) -> str:
    if follower["paused"]:
        return f"; paused: {follower['paused']}"
    failed = follower.get("failed")  # an app of an earlier release does not store it
    return f"; it failed last: {one_line(failed)}" if failed else ""


def _source(source: Mapping[str, Any] | None) -> list[str]:
    """A source of files, and those of its files that cannot be ingested."""
    if not source:
        return []
    counts = f"{source['taken']:,} ingested, {source['waiting']:,} waiting, {source['broken']:,} cannot be ingested"
    named = [f"            {one_line(key)}: {one_line(why)}" for key, why in source["named"].items()]
    return [f"files       {counts}; {source['path']}", *named]


def _or_dash(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


def _by_cause(quarantine: Mapping[str, int]) -> str:
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(quarantine.items()) if count)
    return f" ({causes})" if causes else ""


NAMED = "first failing rows"


def outcome_lines(outcomes: Outcomes) -> list[str]:
    """A line per table and expectation, then where the rows came from, and what could not be checked."""
    tables = outcomes.tables
    since = f"only rows that landed at {outcomes.since.isoformat()} or later" if outcomes.since else "all rows"
    wide = max([len(table) for table in tables] + [5]) + 2
    names = [name for outcome in tables.values() for name in outcome.expectations]
    widest = max([len(name) for name in names] + [11]) + 2
    lines = [f"{'table':<{wide}}{'expectation':<{widest}}{'checked':>14}{'failed':>14}{'share':>11}  {NAMED}"]
    for table, outcome in tables.items():
        for name, found in outcome.expectations.items():
            counts = f"{found.checked:>14,}{found.failed:>14,}{_share(found.failed, found.checked):>11}"
            rows = " ".join(f"{topic}/{partition}@{offset}" for topic, partition, offset in found.rows)
            lines.append(f"{table:<{wide}}{name:<{widest}}{counts}  {rows}".rstrip())
    lines += ["", f"{'table':<{wide}}{'rows of silver':>18}{'kept out of silver':>22}"]
    lines += [f"{table:<{wide}}{outcome.silver:>18,}{outcome.bronze:>22,}" for table, outcome in tables.items()]
    lines += ["", f"checked: {since}; those kept out of silver by expectations were decoded from bronze"]
    for table, outcome in tables.items():
        if outcome.changed:
            lines.append(
                f"checked: {table} as it was sent, decoded from bronze: silver changes {', '.join(outcome.changed)}"
            )
    for reason, count in sorted(outcomes.undecodable.items()):
        lines.append(f"not checked: {count:,} records that cannot be decoded now: {reason}")
    for table, outcome in tables.items():
        if outcome.unclear:
            rows = f"{outcome.unclear:,} rows of {table}, of unclear messages"
            lines.append(f"not checked by rules in the .proto: {rows}")
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


def verdict_lines(verdict: Verdict) -> list[str]:
    """A line per table, the notes, the first discrepancies of each kind, then the totals."""
    from spark_app.audit.verdict import KINDS, SQL  # a health check prints a status and no verdict

    kinds = [kind for kind in KINDS if kind != SQL or any(of == SQL for of, _ in verdict.counts)]
    lines = [f"{'table':<36}{'rows':>14}" + "".join(f"{kind:>11}" for kind in kinds)]
    for table in sorted({*verdict.rows, *(table for _, table in verdict.counts)}):
        counts = "".join(f"{verdict.counts[kind, table]:>11,}" for kind in kinds)
        lines.append(f"{table:<36}{verdict.rows.get(table, 0):>14,}{counts}")
    lines += ["", *(f"not proven: {count:,} {words}" for words, count in sorted(verdict.notes.items()))]
    for kind, wrongs in verdict.named.items():
        lines += [f"{kind}, the first ones:"]
        lines += [f"  {w.table}  {w.what}{': ' + w.why if w.why else ''}" for w in wrongs[:MOST_SHOWN]]
    lines += [f"{verdict.left:,} offsets were not ingested yet"] if verdict.left else []
    speed = f"{verdict.records / max(verdict.seconds, 0.001):,.0f} records/s"
    lines.append(f"{verdict.records:,} records up to unit {verdict.upto} audited in {verdict.seconds:.1f} s ({speed})")
    return [*lines, "clean" if verdict.clean else "NOT CLEAN"]
