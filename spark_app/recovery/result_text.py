"""The results of requests and the problems of `doctor` as text."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from spark_app.lake.delta.problems import Problem
from spark_app.lake.lake import Lake
from spark_app.recovery.requests import Request, key_of

COLUMNS = ("expected", "present", "added", "differing", "doubled", "phantom")


def request_lines(lake: Lake, requested: Iterable[Request]) -> list[str]:
    """A line per pending request."""
    return [
        f"requested   {one.kind}{' (dry run)' if one.dry_run else ''} {one.id} at {_moment(one.asked_at)}; "
        f"remove {lake.storage.uri(key_of(one))} to cancel it"
        for one in requested
    ]


def _moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds")


def replay_lines(result: dict[str, Any], filtered: bool) -> list[str]:
    """The result of a replay: candidates by cause, then replayed records by table."""
    candidates, refused = result["candidates"], result.get("refused", {})
    if not candidates:
        return ["no open record in quarantine matches" if filtered else "quarantine has no open records"]
    lines = [f"{'cause':<20}{'candidates':>12}{'refused again':>15}"]
    for cause in sorted({*candidates, *refused}):
        again = f"{refused.get(cause, 0):,}" if "refused" in result else "not tried"
        lines.append(f"{cause:<20}{candidates.get(cause, 0):>12,}{again:>15}")
    if "resolved" in result:
        lines += ["", f"{'table':<36}{'resolved':>10}"]
        lines += [f"{table:<36}{count:>10,}" for table, count in sorted(result["resolved"].items())]
        lines += [] if result["resolved"] else ["none"]
    if result.get("waiting"):
        lines += ["", f"{result['waiting']:,} stay in quarantine: their schema cannot be fetched or compiled now"]
    return lines


def rebuild_lines(result: dict[str, Any], dry_run: bool) -> list[str]:
    """The result of a rebuild: a line per table, then the rows that a person has to check."""
    titles = ["missing" if name == "added" and dry_run else name for name in COLUMNS]
    lines = [f"{'table':<36}" + "".join(f"{title:>12}" for title in titles)]
    for table, found in result["tables"].items():
        lines.append(f"{table:<36}" + "".join(f"{found[name]:>12,}" for name in COLUMNS))
    lines += ["", f"{'table':<36}{'rows':>12}{'differing' if dry_run else 'replaced':>12}"]
    for table, found in result["gold"].items():
        lines.append(f"{table:<36}{found['rows']:>12,}{found['differing']:>12,}")
    for table, names in (*result["named"].items(), *((t, g["named"]) for t, g in result["gold"].items())):
        lines += ["", f"{table}: the first affected rows", *(f"  {name}" for name in names)] if names else []
    if result["replayable"]:
        lines += ["", f"{result['replayable']:,} records in quarantine can be decoded now: protolake replay"]
    if result["skipped"]:
        lines += ["", f"records that make the pass fail: {', '.join(result['skipped'][:20])}"]
    return lines


def renew_lines(result: dict[str, Any], dry_run: bool) -> list[str]:
    """The result of a renewal: a line per table."""
    if dry_run:
        lines = [f"{table}: would make {rows:,} rows anew from bronze" for table, rows in result["rows"].items()]
        again = "streams that read these tables have to begin again"
        return [*lines, "", f"one Delta commit per table replaces its rows and columns, so {again}; --yes does it"]
    lines = [f"{table}: made {rows:,} rows anew" for table, rows in result["rows"].items()]
    lines += [f"{table}: {found['rows']:,} rows" for table, found in result["gold"].items()]
    return [*lines, "", "streams that read these tables have to begin again"]


def resume_line(result: dict[str, Any]) -> str:
    """The result of a resume."""
    end = "go to quarantine" if result["failing"] == "quarantine" else "land, too"
    return (
        f"{result['table']}: {result['rows']:,} waiting rows are let in while the app runs; those that fail "
        f"{result['rule']} {end}. `status` shows how many still wait"
    )


def drop_line(result: dict[str, Any]) -> str:
    """The result of a drop."""
    if result["dropped"]:
        return f"{result['table']} is dropped, with {result['rows']:,} rows"
    return f"{result['table']} has {result['rows']:,} rows, and nothing else makes it again; --yes drops it"


def accept_line(result: dict[str, Any]) -> str:
    """The result of a decision about a schema."""
    states = {
        "decodable": "its waiting records are decoded while the app runs; `replay` inserts those in quarantine",
        "waiting": "its records are decoded as soon as the registry answers",
        "refused": "its records go to quarantine",
    }
    return f"schema {result['schema']}, {result['change']}: {result['policy']}; {states[result['state']]}"


def doctor_lines(problems: Iterable[Problem]) -> list[str]:
    """Each problem with its remedy, fatal ones first."""
    lines = []
    for problem in sorted(problems, key=lambda one: not one.fatal):
        lines += [f"{'wrong' if problem.fatal else 'note':<12}{problem.what}", f"{'':<12}{problem.remedy}"]
    return lines or ["nothing is wrong"]


def doctor_json(problems: Iterable[Problem]) -> list[str]:
    found = [
        {"what": f.what, "remedy": f.remedy, "fatal": f.fatal, "repairable": f.repair is not None} for f in problems
    ]
    return [json.dumps(found, indent=1)]
