"""Many small micro-batches with a short retention: files, log entries, state and memory must stop growing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from random import Random

import psutil  # type: ignore[import-untyped]

from scripts.campaign.lab import Lab
from scripts.campaign.outcome import Outcome
from scripts.campaign.scenarios import Size
from scripts.campaign.stage import HANGS_S, Stage, kill

RECORDS_PER_BATCH = 20
SAMPLES = 30
MOST_GROWTH = 1.25  # last third divided by middle third
Sample = Mapping[str, int]


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """`size.times` micro-batches; the largest values of each third."""
    stage = lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS=str(RECORDS_PER_BATCH),
        GOLD__INTERVAL_S="1",
        LAKE__LOG_RETENTION_HOURS="0.02",
        LAKE__KEEP_MANIFESTS="100",
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
    )
    stage.produce(size.times * RECORDS_PER_BATCH, poison="0.01")
    samples = _watch(stage, size.times)
    if len(samples) < SAMPLES:
        return Outcome(len(samples), {"ended early": f"{stage.unit():,} units of {size.times:,}"}, {})
    codes = stage.drain(BATCH__MAX_RECORDS="100000")
    early, late = samples[len(samples) // 3 : 2 * len(samples) // 3], samples[2 * len(samples) // 3 :]
    before, after = _most(early), _most(late)
    grown = {name: [before[name], after[name]] for name in after if after[name] > MOST_GROWTH * before[name]}
    faults: dict[str, object] = {"grown": grown} if grown else {}
    faults |= {"drain": codes} if codes[-1] else {}
    figures = {f"{name}_middle_and_last_third": f"{before[name]} and {after[name]}" for name in after}
    return Outcome(size.times, faults | stage.verify(), figures)


def _watch(stage: Stage, batches: int) -> list[Sample]:
    """Samples at equal distances in units, until so many are done or there is no more progress."""
    samples: list[Sample] = []
    app = stage.start()
    try:
        moved, unit = time.monotonic(), 0
        while app.poll() is None and len(samples) < SAMPLES and time.monotonic() - moved < HANGS_S:
            time.sleep(0.5)
            now = stage.unit()
            if now > unit:
                moved, unit = time.monotonic(), now
            if now >= (len(samples) + 1) * batches // SAMPLES:
                samples.append(_sample(stage, app.pid))
    finally:
        kill(app)
    return samples


def _sample(stage: Stage, pid: int) -> Sample:
    tables = [path for path in stage.lake.iterdir() if (path / "_delta_log").is_dir()]
    state = stage.lake / "_protolake"
    memory = {"java": 0, "others": 0}
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # the JVM starts short-lived processes for its commands
            memory["java" if process.name() == "java" else "others"] += process.memory_info().rss
    return {
        "files_per_table": max(len(list(table.glob("*.parquet"))) for table in tables),
        "log_entries_per_table": max(len(list((table / "_delta_log").iterdir())) for table in tables),
        "manifests": len(list((state / "manifests").glob("*.json"))),
        "checkpoint_files": sum(1 for path in (state / "checkpoint").rglob("*") if path.is_file()),
        "driver_and_workers_mib": memory["others"] >> 20,
        "jvm_mib": memory["java"] >> 20,
    }


def _most(samples: list[Sample]) -> dict[str, int]:
    return {name: max(sample[name] for sample in samples) for name in samples[0]}
