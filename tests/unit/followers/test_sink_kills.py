"""`protolake deliver` is killed again and again while the target misbehaves: no row is lost, and keys stay."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_app.audit import audit_sink
from spark_app.followers.runner import FollowerRunner
from spark_app.followers.sinks import state
from spark_app.followers.sinks.tables import SinkTables
from spark_app.lake.files.failpoints import ALLOWED, FILE
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, event
from tests.support.targets import OK, Row, Target

KILLS = int(os.environ.get("PROTOLAKE_TEST_KILLS", "3"))
ROWS, UNIT = int(os.environ.get("PROTOLAKE_TEST_SINK_ROWS", "20000")), 2000
POISON = 17  # one row in so many thousands is refused for good
POINTS = ("sink.plan.before", "sink.plan.after", "cursor.before", "cursor.after", "spool.before", "spool.after")


def misbehave(key: str, rows: list[Row], tried: int) -> int | str:
    """2 % 429, 1 % 500, 1 % reset, 1 % answered late, and a few rows that are never taken."""
    if any(row["_offset"] % 5000 == POISON for row in rows):
        return 422
    drawn = random.random()
    if drawn < 0.05 and tried < 5:
        return 429 if drawn < 0.02 else 500 if drawn < 0.03 else "reset" if drawn < 0.04 else "late"
    return OK


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_kill_loses_a_row_or_changes_a_key(tmp_path: Path) -> None:
    target = Target(misbehave)
    target.late_s = 1.5
    target.up()
    rest = {"url": f"{target.url}/{{name}}", "allow_private": True, "timeout_s": 1.0}
    sink = {"rows_per_call": 20, "in_flight": 16, "begin": "all", "rest": rest}
    lake = SmallLake(tmp_path / "lake", EVENTS, GROWN, sinks={"crm": sink})
    settings = tmp_path / "mine.toml"
    settings.write_text(f"[sinks.crm]\n{toml(sink)}")
    tables = SinkTables(lake.lake, lake.settings, lake.opened.units.committer.synced)
    moving = FollowerRunner(tables, lake.lake, lake.opened.units.manifests)
    sent, kills = 0, 0
    while sent < ROWS or kills < KILLS:
        if sent < ROWS:
            first = lake.ends.get(0, 0)
            rows = [event(game, f"g{n % 97}", EVENTS, latency_ms=1) for n in range(UNIT) for game in (f"t{n % 3}",)]
            lake.take(batch_of(rows, first=first))
            sent += UNIT
        point = random.choice((*POINTS, ""))
        (lake.lake.root / FILE).write_text(json.dumps([point] if point else []))
        process = deliver(lake, settings)
        time.sleep(random.uniform(0.8, 2.5))
        if process.poll() is None:
            process.kill()
        process.wait()
        kills += 1
        if kills % 3 == 0:
            moving.call()
            moving.flush()
    (lake.lake.root / FILE).write_text("[]")
    assert deliver(lake, settings, "--available-now").wait(900) == 0
    target.down()
    moving.call()
    log = tmp_path / "received.jsonl"
    calls = [(key, rows) for key, several in target.accepted.items() for rows in several]
    log.write_text("".join(json.dumps({"key": key, "rows": rows}) + "\n" for key, rows in calls))
    verdict = audit_sink(lake.settings, "crm", log)
    assert verdict.faults() == {}
    poisoned = len([offset for offset in range(sent) if offset % 5000 == POISON])
    assert dict(verdict.notes) == {"rows were rejected, see sink_rejects": poisoned}
    table = DeltaTable(str(lake.lake.path("sink_calls"))).to_pyarrow_table(columns=["key", "result", "rows"])
    done = {row["key"]: row for row in table.to_pylist() if row["result"] == "accepted"}
    assert set(target.accepted) == set(done)  # what was accepted is known, and nothing else
    assert sum(row["rows"] for row in done.values()) == sent - poisoned
    assert state.read(lake.lake, "crm")["waiting"] == 0
    print(f"{sent:,} rows, {kills} kills, {len(calls):,} accepted calls of {len(done):,} keys")


def deliver(lake: SmallLake, settings: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark_app", "deliver", "--settings", str(settings), *options]
    return subprocess.Popen([*command, "--lake", str(lake.lake.root)], env={**os.environ, ALLOWED: "on"})


def toml(values: dict[str, object]) -> str:
    own = {name: value for name, value in values.items() if not isinstance(value, dict)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in own.items()]
    for name, inner in values.items():
        if isinstance(inner, dict):
            lines += [f"[sinks.crm.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in inner.items())]
    return "\n".join(lines)
