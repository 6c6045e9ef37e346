"""Many small micro-batches with a short retention: files, log entries, state and memory must stop growing."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from random import Random

import psutil  # type: ignore[import-untyped]

from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import HANGS_S, Stage, kill

RECORDS_PER_BATCH = 20
SAMPLES = 30
MOST_GROWTH = 1.25  # last third divided by middle third
RETENTION_S = 72.0
KEPT, UNTIL_REMOVED_S = 100, 90.0  # manifests; seconds until one beyond these is removed
BY_PACE = ("files_per_table", "log_entries_per_table", "manifests")  # kept for a time: more if batches become faster
MEASURED = (*BY_PACE, "checkpoint_files", "driver_mib", "workers_mib", "jvm_mib")
Sample = Mapping[str, int]


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """`size.times` micro-batches; the largest values of each third."""
    stage = lab.stage(
        BATCH__INTERVAL_S="0.4",  # so that 600 units take three times the retention on a fast machine, too
        BATCH__MAX_RECORDS=str(RECORDS_PER_BATCH),
        GOLD__INTERVAL_S="1",
        LAKE__LOG_RETENTION_HOURS=str(RETENTION_S / 3600),
        LAKE__KEEP_MANIFESTS=str(KEPT),
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
    )
    stage.produce(size.times * RECORDS_PER_BATCH, poison="0.01")
    samples = _watch(stage, size.times)
    if len(samples) < SAMPLES:
        return Outcome(len(samples), {"ended early": f"{stage.unit():,} units of {size.times:,}"}, {})
    codes = stage.drain(BATCH__MAX_RECORDS="100000")
    early, late = samples[len(samples) // 3 : 2 * len(samples) // 3], samples[2 * len(samples) // 3 :]
    before, after = _most(early), _most(late)
    pace = max(1.0, after["units_within_retention"] / max(before["units_within_retention"], 1))
    most = {name: MOST_GROWTH * before[name] * (pace if name in BY_PACE else 1.0) for name in MEASURED}
    # Manifests go once a minute, up to a cursor that is stored twice a minute.
    most["manifests"] = max(most["manifests"], KEPT + after["units_within_retention"] * UNTIL_REMOVED_S / RETENTION_S)
    grown = {name: [before[name], after[name]] for name in MEASURED if after[name] > most[name]}
    faults: dict[str, object] = {"grown": grown} if grown else {}
    faults |= {"drain": codes} if codes[-1] else {}
    figures = {f"{name}_middle_and_last_third": f"{before[name]} and {after[name]}" for name in after}
    return Outcome(size.times, faults | stage.verify(), figures)


def _watch(stage: Stage, batches: int) -> list[Sample]:
    """Samples at equal distances in units, until so many are done or there is no more progress."""
    samples: list[Sample] = []
    app = stage.start()
    try:
        passed = deque([(time.monotonic(), 0)])  # when each unit was seen, within the retention
        while app.poll() is None and len(samples) < SAMPLES and time.monotonic() - passed[-1][0] < HANGS_S:
            time.sleep(0.5)
            unit = stage.unit()
            if unit > passed[-1][1]:
                passed.append((time.monotonic(), unit))
            while len(passed) > 1 and passed[0][0] < time.monotonic() - RETENTION_S:
                passed.popleft()
            if unit >= (len(samples) + 1) * batches // SAMPLES:
                samples.append(_sample(stage, app.pid, unit - passed[0][1]))
    finally:
        kill(app)
    return samples


def _sample(stage: Stage, pid: int, units: int) -> Sample:
    """`units`: those within the retention. Memory that forked processes share is divided among them."""
    tables = [path for path in stage.lake.iterdir() if (path / "_delta_log").is_dir()]
    state = stage.lake / "_protolake"
    memory = {"driver": psutil.Process(pid).memory_info().rss, "java": 0, "workers": 0}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # the JVM starts short-lived processes for its commands
            if process.name() == "java":
                memory["java"] += process.memory_info().rss
            else:
                memory["workers"] += process.memory_full_info().pss
    return {
        "files_per_table": max(len(list(table.glob("*.parquet"))) for table in tables),
        "log_entries_per_table": max(len(list((table / "_delta_log").iterdir())) for table in tables),
        "manifests": len(list((state / "manifests").glob("*.json"))),
        "checkpoint_files": sum(1 for path in (state / "checkpoint").rglob("*") if path.is_file()),
        "driver_mib": memory["driver"] >> 20,
        "workers_mib": memory["workers"] >> 20,
        "jvm_mib": memory["java"] >> 20,
        "units_within_retention": units,
    }


def _most(samples: list[Sample]) -> dict[str, int]:
    return {name: max(sample[name] for sample in samples) for name in samples[0]}
