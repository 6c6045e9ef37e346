"""Out of memory: workers that are killed (the task is retried), a JVM that ends or is killed (the app exits and
restarts), a worker that gets no more memory."""

from __future__ import annotations

import contextlib
import resource
import time
from random import Random

import psutil  # type: ignore[import-untyped]

from tests.chaos import read_back
from tests.chaos.flow import LONGEST_START_S, Flow, flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill

BETWEEN_S = (0.2, 4.0)
ENDS_S = 30.0
GOES_ON_S = 60.0
KINDS = ("jvm_metaspace", "jvm_killed", "worker_limited")


def kill_workers(lab: Lab, size: Size, dice: Random) -> Outcome:
    """kill -9 of workers at random times, sometimes of the daemon that forks them: no restart is needed."""
    stage = lab.stage()
    stage.produce(size.records, partitions="3")
    with flowing(stage) as flow:
        done = 0
        while done < size.times and flow.app.poll() is None:
            time.sleep(dice.uniform(*BETWEEN_S))
            workers = flow.workers()
            if workers:
                _kill(dice.choice(workers))
                done += 1
        moved = flow.await_units(timeout=GOES_ON_S)
        if flow.app.poll() is not None or moved >= GOES_ON_S:
            flow.faults["went_on"] = (flow.app.poll(), moved)
        faults = flow.finish()
    return Outcome(done, faults | _crashes(stage), {"restarts": flow.starts - 1, **_tries(stage)})


def exhaust(lab: Lab, size: Size, dice: Random) -> Outcome:
    """A JVM without memory ends with its app, which restarts; a worker without memory costs an attempt."""
    stage = lab.stage()
    stage.produce(size.records, partitions="3")
    ended: list[float] = []
    counts = dict.fromkeys(KINDS, 0)
    with flowing(stage) as flow:
        for _ in range(size.times):
            kind = dice.choice(KINDS)
            counts[kind] += 1
            if kind == "worker_limited":
                _limit_workers(flow)
                if flow.await_units(timeout=GOES_ON_S) >= GOES_ON_S:
                    flow.faults[kind] = "no unit was committed afterwards"
                continue
            ended.append(_end_jvm(flow, kind, dice))
            if not flow.app.returncode or ended[-1] >= ENDS_S:
                flow.faults[kind] = {"exit code": flow.app.returncode, "after_s": ended[-1]}
            kill(flow.app)
            flow.restart()
            flow.await_start()
        faults = flow.finish()
    figures = {**counts, "ended_after_s_at_most": max(ended, default=0.0), **_tries(stage)}
    return Outcome(size.times, faults | _crashes(stage), figures)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()


def _limit_workers(flow: Flow) -> None:
    """Limit the memory of the current workers to what they have."""
    for worker in flow.workers():
        with contextlib.suppress(psutil.Error):
            worker.rlimit(resource.RLIMIT_AS, (worker.memory_info().vms,) * 2)


def _end_jvm(flow: Flow, kind: str, dice: Random) -> float:
    """Seconds from the JVM's end to the app's. If the JVM ends during the start, the app starts it again."""
    if kind == "jvm_metaspace":
        kill(flow.app)
        limit = {"_JAVA_OPTIONS": f"-XX:MaxMetaspaceSize={dice.randint(60, 85)}m"}
        flow.restart_with_environment(limit, SPARK__CLASS_ARCHIVE="")  # its classes use none of it
    elif (jvm := flow.jvm()) is not None:
        time.sleep(dice.uniform(0.0, 3.0))
        jvm.kill()
    deadline = time.monotonic() + LONGEST_START_S
    seen = time.monotonic()
    while flow.app.poll() is None and time.monotonic() < min(deadline, seen + ENDS_S):
        if _is_alive(flow.jvm()):
            seen = time.monotonic()
        time.sleep(0.05)
    return time.monotonic() - seen


def _is_alive(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _crashes(stage: Stage) -> dict[str, object]:
    """Kills from outside must not put a record into quarantine."""
    rows = read_back.read(stage.lake, "quarantine_events", ["cause"])
    blamed = rows["cause"].to_pylist().count("decode_crash")
    return {"blamed_records": blamed} if blamed else {}


def _tries(stage: Stage) -> dict[str, int]:
    text = stage.log.read_text()
    return {"tries": text.count("the pass failed"), "batches_landed_only": text.count("its decoding is deferred")}
