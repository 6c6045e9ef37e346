"""The registry down, silent, late, overloaded, or answering with random bytes or with another schema: records of known
schemas are ingested, records of a new one are deferred, and none is quarantined."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random

from scripts.local.artifacts import ROOT
from tests.chaos import read_back
from tests.chaos.flow import Flow, flowing
from tests.chaos.gateway import MODES, Gateway, open_gateway
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, wait_until

OUTAGE_S = 60.0
NEW = 400  # records per outage: half of them have a new schema
RESUMES_S = 30.0


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """So many outages of a minute; in each the first records of a new schema arrive."""
    folder = _versions(lab.folder / "proto", size.times + 1)
    resumed: dict[str, float] = {}
    with open_gateway(lab.registry.url) as gateway:
        stage = lab.stage(REGISTRY__URL=gateway.url, SCHEMAS__ON_BUMP="in-place", REGISTRY__TIMEOUT_S="5")
        stage.produce(size.records, partitions="3", proto=str(folder))
        with flowing(stage) as flow:
            for number in range(size.times):
                mode = MODES[number % len(MODES)]
                seconds = _outage(flow, gateway, mode, number + 2, folder, size.records + number * NEW)
                resumed[mode] = max(resumed.get(mode, 0.0), seconds)
            faults = flow.finish()
        fetches = {path: count for path, count in gateway.responses.items() if "/ids/" in path}
    rows = read_back.read(stage.lake, "quarantine_events", ["cause"])
    figures = {f"{mode}_resumed_s": seconds for mode, seconds in resumed.items()}
    figures |= {
        "quarantined": rows.num_rows,
        "starts": flow.starts,
        "fetches_of_an_id": max(fetches.values(), default=0),
    }
    return Outcome(size.times, faults | ({"quarantined": rows.num_rows} if rows.num_rows else {}), figures)


def _outage(flow: Flow, gateway: Gateway, mode: str, version: int, folder: Path, records: int) -> float:
    """Seconds from the end of the outage until the records of the new schema are in silver."""
    stage = flow.stage
    wait_until(lambda: stage.status().get("bronze") == records, "the end of the backlog")
    gateway.mode, began = mode, time.monotonic()  # type: ignore[assignment]
    stage.produce(NEW, schema_version=str(version), num_versions="2", proto=str(folder), seed=str(version))
    if flow.await_units(timeout=RESUMES_S) >= RESUMES_S:
        flow.faults[f"{mode}: known schemas"] = f"no unit within {RESUMES_S:.0f} s"
    _await_waiting(stage, mode, flow)
    time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - began)))
    gateway.mode = "pass"
    healed = time.monotonic()
    while stage.status().get("deferred") and time.monotonic() - healed < 2 * RESUMES_S:
        time.sleep(0.1)
    seconds = time.monotonic() - healed
    if seconds > RESUMES_S:
        flow.faults[f"{mode}: resumed"] = f"after {seconds:.0f} s"
    return seconds


def _await_waiting(stage: Stage, mode: str, flow: Flow) -> None:
    """Wait until the new records are deferred; a late registry may have responded by then."""
    deadline = time.monotonic() + OUTAGE_S
    while not stage.status().get("deferred") and time.monotonic() < deadline:
        time.sleep(0.1)
    if not stage.status().get("deferred"):
        flow.faults[f"{mode}: new schema"] = "its records were not deferred"


def _versions(folder: Path, count: int) -> Path:
    """Versions of the demo's schema: each has one column more."""
    for version in range(1, count + 1):
        path = folder / f"v{version}" / "game_event.proto"
        path.parent.mkdir(parents=True)
        if version == 1:
            shutil.copy(ROOT / "proto" / "v1" / "game_event.proto", path)
            continue
        text = (ROOT / "proto" / "v1" / "game_event.proto").read_text().rstrip().removesuffix("}")
        columns = [f"  optional string col_custom_{n} = {n + 4};" for n in range(1, version)]
        path.write_text("\n".join([text, *columns, "}\n"]))
    return folder
