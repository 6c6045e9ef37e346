"""One table is paused by a rule while records arrive at a steady rate: the other tables must stay fresh, and after the
rule is mended the waiting rows must come into silver soon, each once."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from scripts.campaign.flow import Flow
from scripts.campaign.lab import Lab
from scripts.campaign.outcome import Outcome
from scripts.campaign.scenarios import Size
from scripts.campaign.scenarios.failpoints import GAMES, RESUMING, RULES
from scripts.campaign.stage import Stage, kill, wait_until

RATE = 500  # records/s
[PAUSED] = RULES["steady"]["tables"]
OTHERS = [game for game in GAMES if game != PAUSED]
PAUSING, MENDED = (json.dumps({"steady": rules["steady"]}) for rules in (RULES, RESUMING))
WARM_S = 20.0  # the first units of a lake create its tables
EVERY_S = 0.25
DRAINED_S = 60.0
LATE_S = 30.0


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Pause a table until all records are produced; then mend the rule."""
    stage = lab.stage(EXPECTATIONS=MENDED)
    flow = Flow(stage, EXPECTATIONS=PAUSING)
    try:
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(stage.produce, size.records, games=",".join(GAMES), rate=str(RATE))
            ages = _watch(stage, sending)
            sending.result()
        waiting = int(stage.status()["paused"].get(PAUSED, {}).get("rows", 0))
        began = time.monotonic()
        flow.stop()
        flow.restart(EXPECTATIONS=MENDED)
        wait_until(lambda: _has_let_all_in(flow), "the end of the pause")
        seconds = time.monotonic() - began
        faults = flow.finish()
    finally:
        kill(flow.app)
    if not waiting or seconds > DRAINED_S or max(ages) > LATE_S:
        faults["paused"] = {"waiting": waiting, "drained_after_s": seconds, "oldest_s": max(ages)}
    ages.sort()
    figures = {
        "records": size.records,
        "paused_s": round(size.records / RATE),
        "rows_that_waited": waiting,
        "age_of_others_s_median": round(median(ages), 2),
        "age_of_others_s_p99": round(ages[len(ages) * 99 // 100], 2),
        "age_of_others_s_at_most": round(ages[-1], 2),
        "drained_after_s": round(seconds, 1),
    }
    return Outcome(1, faults, figures)


def _watch(stage: Stage, sending: Future[None]) -> list[float]:
    """How old the newest row of each other table is, in turn, while records are produced."""
    wait_until(lambda: stage.status().get("paused"), "the pause")
    began = time.monotonic()
    ages: list[float] = []
    tables: dict[str, DeltaTable] = {}
    for game in cycle(OTHERS):
        time.sleep(EVERY_S)
        if sending.done():
            return ages
        table = tables.setdefault(game, DeltaTable(str(stage.lake / f"silver_{game}_events")))
        table.update_incremental()
        if time.monotonic() - began > WARM_S:
            ages.append(_age(table))
    raise AssertionError("a cycle does not end")


def _age(table: DeltaTable) -> float:
    newest = pc.max(pa.table(table.get_add_actions(flatten=True))["max._kafka_timestamp"]).as_py()
    age: timedelta = datetime.now(UTC) - newest.replace(tzinfo=UTC)
    return age.total_seconds()


def _has_let_all_in(flow: Flow) -> bool:
    status = flow.stage.status()
    return status.get("pid") == flow.app.pid and not status["paused"] and status["state"] == "running"
