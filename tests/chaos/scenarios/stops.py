"""SIGTERM in every phase of a run: the app exits with 0 within 20 seconds, and the next start continues."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from tests.chaos.flow import SMALL_BATCHES, Flow
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill, wait_until

WITHIN_S = 20.0 + 1.0  # for the process to end
NOBODY = "127.0.0.1:1"


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """So many stops, each phase in turn, on one lake."""
    stage = lab.stage(**SMALL_BATCHES, SCHEMAS__UNKNOWN_ID_GRACE_S="1")
    stage.produce(size.records, partitions="3", poison="0.02", schema_version="2", num_versions="2")
    stage.drain(BATCH__MAX_RECORDS="1000")
    stage.produce(size.records, seed="8", poison="0.02", schema_version="2", num_versions="2")
    phases: dict[str, Callable[[Stage, Random], Flow]] = {
        "starting": _starting,
        "batch": _batch,
        "replay": _replay,
        "broker": _broker,
        "held": _held,
    }
    took: dict[str, float] = dict.fromkeys(phases, 0.0)
    faults: dict[str, object] = {}
    for number in range(size.times):
        name = list(phases)[number % len(phases)]
        flow = phases[name](stage, dice)
        try:
            code, seconds = flow.stop(WITHIN_S)
        finally:
            kill(flow.app)
        took[name] = max(took[name], seconds)
        if code != 0:
            faults[f"stop {number + 1}, {name}"] = code
    codes = stage.drain(BATCH__MAX_RECORDS="100000")
    faults |= {"drain": codes} if codes[-1] != 0 else {}
    return Outcome(size.times, faults | stage.verify(), {f"{name}_s_at_most": s for name, s in took.items()})


def _starting(stage: Stage, dice: Random) -> Flow:
    flow = Flow(stage)
    time.sleep(dice.uniform(0.1, 12.0))
    return flow


def _batch(stage: Stage, dice: Random) -> Flow:
    flow = Flow(stage)
    flow.await_start()
    time.sleep(dice.uniform(0.0, 3.0))
    return flow


def _replay(stage: Stage, dice: Random) -> Flow:
    flow = Flow(stage)
    flow.await_start()
    command = stage.spawn("replay")
    time.sleep(dice.uniform(0.5, 4.0))
    kill(command)
    return flow


def _broker(stage: Stage, dice: Random) -> Flow:
    flow = Flow(stage, KAFKA__BROKERS=NOBODY)
    wait_until(lambda: stage.status().get("pid") == flow.app.pid, "a status")
    time.sleep(dice.uniform(0.0, 15.0))
    return flow


def _held(stage: Stage, dice: Random) -> Flow:
    flow = Flow(stage, KAFKA__TOPIC="there_is_no_such_topic", RUN__CONNECT_TIMEOUT_S="1", RUN__HOLD="true")
    wait_until(lambda: stage.status().get("state") == "held", "being held")
    time.sleep(dice.uniform(0.0, 2.0))
    return flow
