"""The status as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
    lines = [
        f"state       {value['state']}",
        *address,
        f"lag         {_or_dash(value['lag'])} records",
        "last batch  " + ("{records:,} records in {seconds} s at {at}".format(**batch) if batch else "-"),
        f"age         {_or_dash(value['age_s'])} s from produced to visible",
        f"starts      {value['starts']:,}, {value['bumps']:,} of them caused by a schema bump",
        f"bronze      {value['bronze']:,} rows, {value['deferred']:,} deferred",
        *(f"blocked     {n:,} offsets of {p}, by an open transaction" for p, n in value["held_back"].items()),
        f"quarantine  {sum(value['quarantine'].values()):,} open{_by_cause(value['quarantine'])}",
        *([f"dropped     {value['dropped']:,} by expectations"] if value.get("dropped") else []),
        *(f"expectation {rule}: {failed:,} of {passed + failed:,} rows fail" for rule, passed, failed in _rules(value)),
        *(_paused(name, pause) for name, pause in sorted(value.get("paused", {}).items())),
        *(_reference(name, one) for name, one in sorted(value.get("references", {}).items())),
        f"lost        {lost.get('offsets', 0):,} offsets in {lost.get('ranges', 0):,} ranges, accepted",
        *_schema_warnings(value.get("schema_warnings") or {}),
        *_behind(value.get("followers", {})),
        *(f"gold        {table} failed, and is recomputed later: {why}" for table, why in _gold_failed(value)),
        "",
        f"{'table':<24}{'silver':>12}{'gold':>12}  schema versions",
    ]
    for name, table in sorted(value["tables"].items()):
        seen = ", ".join(_version(key, value["versions"]) for key in sorted(table["schema_ids"], key=_by_number))
        lines.append(f"{name:<24}{table['silver']:>12,}{table['gold']:>12,}  {seen}")
    return lines


def _rules(value: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(rule, rows that pass, rows that fail) since the start of the app."""
    return [(rule, *counts) for rule, counts in sorted(value.get("expectations", {}).items())]


def _paused(name: str, pause: Mapping[str, Any]) -> str:
    how = "are let in" if pause["let_in"] else f"wait: {pause['record']} fails {pause['rule']}"
    return f"paused      {name}: {pause['rows']:,} rows {how}"


def _schema_warnings(warnings: Mapping[str, Any]) -> list[str]:
    """The schemas about which a person decides, the number of warnings about versions, and the newest ones."""
    stopped = [
        f"schemas     {key} is kept out: {said}; decide: protolake accept-schema {key} --as ..."
        for key, said in warnings.get("stopped", {}).items()
    ]
    if not warnings.get("count"):
        return stopped
    newest = [f"            {said}" for said in warnings["newest"]]
    count = f"schemas     {warnings['count']:,} warnings about new versions, see `protolake schemas`"
    return [*stopped, count, *newest]


def _reference(name: str, reference: Mapping[str, Any]) -> str:
    newer = f"; a newer version is refused: {reference['refused']}" if reference["refused"] else ""
    return f"reference   {name}: {reference['rows']:,} rows, version {reference['version'] or '-'}{newer}"


def _behind(followers: Mapping[str, Any]) -> list[str]:
    """The followers that lack units."""
    return [
        f"follower    {name} is {one['lag']:,} units behind" + (f"; paused: {one['paused']}" if one["paused"] else "")
        for name, one in sorted(followers.items())
        if one["lag"]
    ]


def _gold_failed(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted(value.get("gold_failed", {}).items())


def _or_dash(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


def _by_cause(quarantine: Mapping[str, int]) -> str:
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(quarantine.items()) if count)
    return f" ({causes})" if causes else ""


def _version(key: str, versions: Mapping[str, int]) -> str:
    return f"v{versions[key]}" if key in versions else f"id {key}"


def _by_number(key: str) -> tuple[int, str]:
    return len(key), key
