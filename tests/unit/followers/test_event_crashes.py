"""Crashes while events are written: none is lost, and none is there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.files import failpoints
from tests.support.event_lakes import follow, lake_of
from tests.unit.followers.test_event_log import said
from tests.unit.followers.test_events_table import unit_numbers

OPEN = """
import sys
from pathlib import Path
from spark_app.lake.files import failpoints
from tests.support.event_lakes import follow, lake_of, take
lake = lake_of(Path(sys.argv[1]))
failpoints.arm(sys.argv[1])
"""


def live(root: Path, program: str, point: str) -> list[list[str]]:
    """The words that the program, for which the lake is open, prints in a life that ends at the failpoint, in another
    one, and in a whole one."""
    printed = []
    for life, armed in enumerate(([point], [point], [])):
        root.joinpath("_protolake").mkdir(exist_ok=True)
        root.joinpath(failpoints.FILE).write_text(json.dumps(armed))
        command = [sys.executable, "-c", OPEN + program, str(root), str(life)]
        environment = os.environ | {failpoints.ALLOWED: "on"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == (-9 if armed else 0), done.stderr
        printed.append(done.stdout.split())
    return printed


def points(*steps: str) -> list[Any]:
    """Before and after a commit of events, and before each of the steps; after them in the nightly tests."""
    after = [pytest.param(f"{step}.after", marks=pytest.mark.nightly) for step in steps]
    return ["events.commit.before", "events.commit.after", *(f"{step}.before" for step in steps), *after]


FOLLOWING = """
lake.ends = {0: 2 * lake.opened.units.manifests.last}
events = follow(lake)
take(lake, 2)
events.call()
take(lake)
events.call()
events.flush()
"""


@pytest.mark.parametrize("point", points("file", "synced"))
def test_a_crash_neither_loses_nor_doubles_an_event(tmp_path: Path, point: str) -> None:
    live(tmp_path, FOLLOWING, point)
    lake = lake_of(tmp_path)
    events = follow(lake)
    events.call()
    assert unit_numbers(lake) == list(range(1, lake.opened.units.manifests.last + 1))


TELLING = """
from spark_app.followers.events.spool import EventLog
from spark_app.model.events import Event
told = EventLog(lake.lake)
events = follow(lake)
for number in range(150):
    told.add(Event("note", f"{sys.argv[2]} {number}"))
    print(number, flush=True)
events.call()
events.flush()
told.add(Event("note", f"{sys.argv[2]} last"))
events.call()
events.flush()
"""


@pytest.mark.parametrize("point", points("spool", "spool.forget"))
def test_a_crash_neither_loses_nor_doubles_what_was_emitted(tmp_path: Path, point: str) -> None:
    told: list[str] = []
    maybe = set()
    for life, stored in enumerate(live(tmp_path, TELLING, point)):
        told += [f"{life} {number}" for number in stored]
        maybe |= {f"{life} {len(stored)}", f"{life} last"}  # stored, but the process ended before it could say so
    found = said(tmp_path)
    assert len(found) == len(set(found))
    assert set(told) <= set(found) <= set(told) | maybe
