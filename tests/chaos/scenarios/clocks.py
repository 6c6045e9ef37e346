"""A clock that jumps, by hours, days and a year, while the app runs and between two runs. Needs a C compiler.

If the clock is set back under a running app, Spark's trigger stalls, because it waits for a time of day: then the
watchdog ends the app with 69, and after a restart it continues.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from random import Random

from deltalake import DeltaTable

from tests.chaos.flow import Flow, flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill

HOUR_S, DAY_S = 3600, 86_400
JUMPS = (HOUR_S, -HOUR_S, DAY_S, -DAY_S, -365 * DAY_S, 0)
SOURCE = Path(__file__).parents[1] / "clock.c"
GOES_ON_S = 180.0
STALL_S = 60.0  # a start on a busy machine makes no progress for half of it
UNREACHABLE = 69


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Make so many jumps under a running app, and as many before its next start."""
    compiler, library, clock = shutil.which("cc"), lab.folder / "clock.so", lab.folder / "clock"
    if compiler is None:
        return Outcome(0, {"not run": "there is no C compiler"}, {})
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
    clock.write_text("0")
    faked = {"LD_PRELOAD": str(library), "CAMPAIGN_CLOCK": str(clock)}
    stage = lab.stage(LAKE__COMPACT_FILES="5", RUN__STALL_S=str(STALL_S))
    stage.produce(size.records, partitions="3")
    goes_on = []
    with flowing(stage) as flow:
        for number in range(size.times):
            if number % 2 == 0:
                _restart(flow, faked)
            clock.write_text(str(dice.choice(JUMPS)))
            goes_on.append(_await_units(flow, faked))
            _check(flow, stage, f"jump {number + 1}", goes_on[-1])
            if number % 2:
                code, _ = flow.stop()
                flow.faults |= {f"jump {number + 1}: stop": code} if code != 0 else {}
                _restart(flow, faked)
        faults = flow.finish()
    return Outcome(size.times, faults, {"three_units_after_s_at_most": round(max(goes_on), 1), "starts": flow.starts})


def _await_units(flow: Flow, environment: dict[str, str]) -> float:
    """Seconds until the app continues; it is restarted if the watchdog has ended it."""
    began = time.monotonic()
    if flow.await_units(3, timeout=GOES_ON_S) >= GOES_ON_S and flow.app.poll() == UNREACHABLE:
        _restart(flow, environment)
        flow.await_units(3, timeout=GOES_ON_S)
    return time.monotonic() - began


def _restart(flow: Flow, environment: dict[str, str]) -> None:
    kill(flow.app)
    flow.restart_with_environment(environment)
    flow.await_start()


def _check(flow: Flow, stage: Stage, what: str, seconds: float) -> None:
    if seconds >= 2 * GOES_ON_S or flow.app.poll() is not None:
        flow.faults[what] = {"exit code": flow.app.poll(), "units after_s": seconds}
    for path in stage.lake.glob("*_events/_delta_log"):
        table = DeltaTable(str(path.parent))
        gone = [uri for uri in table.file_uris() if not Path(uri).exists()]
        table.update_incremental()
        still = set(table.file_uris())
        if any(uri in still for uri in gone):
            flow.faults[f"{what}: live files removed"] = gone[:3]
