"""One table is paused by a rule while records arrive at a steady rate: the other tables must stay fresh, and after the
rule is mended the waiting rows must come into silver soon, each once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.chaos.ages import summary, watch
from tests.chaos.flow import Flow
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.scenarios.failpoints import GAMES, RESUMING, RULES
from tests.chaos.stage import kill, wait_until

RATE = 500  # records/s
[PAUSED] = RULES["steady"]["tables"]
OTHERS = [game for game in GAMES if game != PAUSED]
PAUSING, MENDED = (json.dumps({"steady": rules["steady"]}) for rules in (RULES, RESUMING))
WARM_S = 20.0  # the first units of a lake create its tables
DRAINED_S = 60.0
LATE_S = 30.0


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Pause a table until all records are produced; then mend the rule."""
    stage = lab.stage(EXPECTATIONS=MENDED)
    flow = Flow(stage, EXPECTATIONS=PAUSING)
    try:
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(stage.produce, size.records, games=",".join(GAMES), rate=str(RATE))
            wait_until(lambda: stage.status().get("paused"), "the pause")
            ages = watch(stage.lake, OTHERS, sending.done, WARM_S)
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
    if not waiting or seconds > DRAINED_S or ages[-1] > LATE_S:
        faults["paused"] = {"waiting": waiting, "drained_after_s": seconds, "oldest_s": ages[-1]}
    figures = {
        "records": size.records,
        "paused_s": round(size.records / RATE),
        "rows_that_waited": waiting,
        **{f"age_of_others_s_{name}": age for name, age in summary(ages).items()},
        "drained_after_s": round(seconds, 1),
    }
    return Outcome(1, faults, figures)


def _has_let_all_in(flow: Flow) -> bool:
    status = flow.stage.status()
    return status.get("pid") == flow.app.pid and not status["paused"] and status["state"] == "running"
