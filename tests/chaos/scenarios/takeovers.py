"""An app on one machine is stopped at a failpoint, as by a long pause; an app on another machine takes its lake in a
bucket over; then the first one goes on. It has to leave with 69, and nothing that a reader sees may have changed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from subprocess import Popen

import obstore

from spark_app.lake.delta.manifest import read_manifest
from spark_app.lake.files.failpoints import POINTS
from spark_app.lake.files.object_clients import open_store
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.scenarios.failpoints import OF_FILES, OF_LOSSES, OF_OLD_LAKES, OF_REQUESTS
from tests.chaos.stage import Stage, kill, wait_for

GAMES = ["euchre", "hearts", "rummy", "uno"]
BUMPS = 5  # of one lake: the producer has six versions of the schema
MORE = 400  # records for each app
PATIENCE_S = 120.0
SUPPLY_S = 8.0  # between records for an app that has not reached its point yet
STARTS_S = 30.0
LEAVES_S = 60.0
LEASE_S = "3"
NEVER = ("replay", "rebuild", "renew", "resume", "deferred", "checkpoint", "mend", "aside", "loss", "leave", "identity")
OF_BUMPS = ("columns", "descriptors", "field_ids", "ledger")
LATE = ("forget", "vacuum", "clean_log")
OF_NEW_TABLES = ("gold.replace", "gold.state")
OF_TAKERS = ("round",)  # an app that takes a lake over completes the deletes of the one before
BY_CHANCE = ("began", "rules", "definitions", "reference", "tables", "settings", "properties")


@dataclass
class Pauses:
    """The results. `left`: files of the paused apps that nothing names."""

    done: int = 0
    met: list[str] = field(default_factory=list)
    left: int = 0
    faults: dict[str, object] = field(default_factory=dict)


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Pause at so many points, on as many lakes as the bumps among them need."""
    points = dice.sample(_points(), min(size.times, len(_points())))
    points.sort(key=lambda point: not point.startswith(OF_BUMPS))  # dealt first, so that each lake has its part of them
    lakes = 1 + sum(point.startswith(OF_BUMPS) for point in points) // (BUMPS + 1)
    found = [play(lab, _mixed(points[number::lakes], dice)) for number in range(lakes)]
    faults = {what: fault for one in found for what, fault in one.faults.items()}
    figures = {name: sum(one.figures[name] for one in found) for name in found[0].figures}
    return Outcome(sum(one.done for one in found), faults, figures)


def _mixed(points: list[str], dice: Random) -> list[str]:
    """In any order, but those last that only a lake of many units reaches."""
    return sorted(dice.sample(points, len(points)), key=lambda point: point.startswith(LATE))


def play(lab: Lab, points: list[str]) -> Outcome:
    """Pause at the points, one after the other on the same lake."""
    stage = lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS="150",
        GOLD__INTERVAL_S="0.5",
        EVENTS__INTERVAL_S="0.5",
        LAKE__COMPACT_FILES="4",
        LAKE__KEEP_MANIFESTS="20",
        LAKE__CHECKPOINT_EVERY="10",
        STORE__LEASE_S=LEASE_S,
    )
    pauses, version, games = Pauses(), 1, list(GAMES)
    _produce(stage, version, games)
    stage.drain()
    for point in points:
        version += point.startswith(OF_BUMPS)
        if point.startswith(OF_NEW_TABLES):
            games.append(f"game_{len(games)}")
        if point.startswith(OF_TAKERS):
            kill(_start(stage))  # it leaves its lease behind
        _pause(stage, point, partial(_produce, stage, version, games), pauses)
    stage.drain(BATCH__MAX_RECORDS="100000")
    figures = {"points": len(points), "met": len(pauses.met), "left": pauses.left}
    return Outcome(pauses.done, pauses.faults | stage.verify(), figures)


def _points() -> list[str]:
    special = (*NEVER, *BY_CHANCE, *OF_LOSSES, *OF_OLD_LAKES, *OF_FILES, *OF_REQUESTS, "takeover")
    return [point for point in POINTS if not point.startswith(special)]


def _pause(stage: Stage, point: str, produce: Callable[[], None], pauses: Pauses) -> None:
    stage.arm([point])
    produce()
    old = _start(stage, FAILPOINTS="stop")
    try:
        if not _reaches(stage, old, produce):
            pauses.faults[f"{point}: not reached"] = old.poll()
            return
        pauses.met.append(point)
        os.killpg(old.pid, signal.SIGSTOP)
        _work_elsewhere(stage, produce)
        before = _contents(stage)
        os.killpg(old.pid, signal.SIGCONT)
        wait_for(old, LEAVES_S)
        pauses.done += 1
        if old.poll() != ExitCode.UNREACHABLE:
            pauses.faults[f"{point}: exit code"] = old.poll()
        changed = _changed(before, _contents(stage))
        orphans = {key for key in changed if _is_data(key)} - _named(stage)
        pauses.left += len(orphans)
        if wrong := [key for key in changed if key not in orphans and not _is_of_checkpoint(key)]:
            pauses.faults[f"{point}: changed"] = wrong[:5]
    finally:
        kill(old)


def _reaches(stage: Stage, app: Popen[bytes], produce: Callable[[], None]) -> bool:
    """Whether the app comes to the point; it gets more records until then, because some points come once in many
    units."""
    deadline = time.monotonic() + PATIENCE_S
    while app.poll() is None and time.monotonic() < deadline:
        if wait_for(app, SUPPLY_S, lambda: not stage.unmet()):
            return True
        produce()
    return not stage.unmet()


def _produce(stage: Stage, version: int, games: list[str]) -> None:
    stage.produce(MORE, games=",".join(games), schema_version=str(version))


def _work_elsewhere(stage: Stage, produce: Callable[[], None]) -> None:
    """An app of another machine takes the lake over, ingests, and ends."""
    before = stage.unit()
    produce()
    new = _start(stage, STORE__LOCAL_PATH=str(stage.lake.with_name("elsewhere")))
    try:
        wait_for(new, PATIENCE_S, lambda: stage.unit() > before + 1)
        new.terminate()
        wait_for(new, PATIENCE_S)
    finally:
        kill(new)


def _start(stage: Stage, **settings: str) -> Popen[bytes]:
    """The app; if it leaves for a bump, the next one, as the restart policy would start it."""
    app = stage.start(**settings)
    is_up = wait_for(app, STARTS_S, lambda: stage.status().get("pid") == app.pid and stage.unit() > 0)
    return stage.start(**settings) if not is_up and app.poll() == ExitCode.BUMP else app


def _contents(stage: Stage) -> dict[str, str]:
    """Key -> tag, of all but the lease."""
    found = [one for chunk in obstore.list(open_store(stage.address)) for one in chunk]
    return {one["path"]: str(one["e_tag"]) for one in found if one["path"] != Lake.leased}


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]


def _named(stage: Stage) -> set[str]:
    """The files that a manifest or a log entry names."""
    lake = Lake(stage.address)
    manifests = (read_manifest(lake.storage, key) for key in lake.storage.list(lake.manifests) if key.endswith(".json"))
    named = {f"{table}/{entry.path}" for m in manifests for table, change in m.tables.items() for entry in change.adds}
    for table in lake.tables():
        entries = [key for key in lake.storage.list(f"{table}/_delta_log") if key.endswith(".json")]
        text = "".join(lake.storage.get(key).decode() for key in entries)
        named |= {key for key in lake.storage.list(table) if key.rpartition("/")[2] in text}
    return named


def _is_data(key: str) -> bool:
    return key.endswith(".parquet") and "_delta_log" not in key


def _is_of_checkpoint(key: str) -> bool:
    """An old process may still write a checkpoint of the version that it knows. Readers pass over it, because they take
    the newest one behind the hint."""
    return "/_delta_log/" in key and key.endswith((".checkpoint.parquet", "/_last_checkpoint"))
