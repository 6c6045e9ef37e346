"""Kills before and after every durable step: the app is restarted again and again, and kills itself at the first armed
failpoint that it reaches, until none is left."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from subprocess import Popen
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from spark_app.lake.files.failpoints import POINTS
from spark_app.lake.files.local import open_storage
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.recovery import requests
from tests.chaos.gold_tables import BY_SQL
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import WAITS_FOR_SCHEMAS, Stage, kill, wait_for, wait_until

GAMES = ["euchre", "go_fish", "hearts", "poker", "rummy", "spades", "uno"]
REFUSED = ["hearts", "poker"]  # at first, so that a replay has records to place
REMOVED = ["rummy", "spades", "uno"]  # at the end, so that a rebuild has rows to add
OF_REQUESTS = ("request", "progress", "answer")
OF_LOSSES = ("loss", "aside")  # scenario `offsets` uses these
OF_BUCKETS = ("takeover", "round")
OF_OLD_LAKES = ("properties",)  # a new table has them from its creation; a unit test uses it
OF_FILES = ("taken",)  # of a source of files; tests/spark/test_spark_files.py uses them
RULES: dict[str, dict[str, Any]] = {
    "known": {"check": "gamer_id <> ''", "action": "quarantine"},
    "early": {"check": "event_timestamp <= _kafka_timestamp + INTERVAL 1 HOUR", "action": "warn"},
    "steady": {"check": "_offset % 97 <> 5", "action": "pause", "tables": ["euchre"]},
}
RESUMING = RULES | {"steady": RULES["steady"] | {"action": "warn"}}
COLUMNS = {"gamer_id": "hmac(gamer_id)", "device_id": "left(device_id, 3) || '***'", "day": "event_timestamp::DATE"}
KEY = "a key of the campaign alone"
STUDIOS = {"key": "game_name", "columns": ["studio", "edition"], "refresh_s": 0.2, "keep_versions": 1000}
MORE = 2_000  # records per supply
PATIENCE_S = 240.0  # for the next failpoint, or for a run without one to end, on a busy machine, too
SUPPLIES = 5  # of units, because one unit may not reach every failpoint


@dataclass
class Deaths:
    """The results."""

    met: int = 0
    starts: int = 0
    faults: dict[str, object] = field(default_factory=dict)


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Kill at every step of normal work, in so many rounds, each on its own lake."""
    return _play(lab, size, partial(_work, lab.address("studios")))


def recover(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Kill at every step of late decoding, replay and rebuild."""
    return _play(lab, size, _recover)


def _play(lab: Lab, size: Size, play_round: Callable[[Stage, int, Deaths], None]) -> Outcome:
    deaths = Deaths()
    verdicts: dict[str, object] = {}
    for number in range(size.times):
        stage = _stage(lab)
        play_round(stage, size.records // size.times, deaths)
        verdicts |= {f"round {number + 1}: {what}": found for what, found in stage.verify().items()}
    figures = {"points": deaths.met // size.times, "starts": deaths.starts, "records": size.records}
    return Outcome(deaths.met, deaths.faults | verdicts, figures)


def change_rules(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Kill between two commits of a unit, each time with other games allowed: a committed unit stays the same."""
    return _die_often(lab, size, dice, _points("ingest"), lambda: json.dumps(dice.sample(GAMES, 4)))


def merge_again(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Kill around the merges into gold: each merge is repeated, and no record counts twice."""
    return _die_often(lab, size, dice, _points("gold.merge"), lambda: json.dumps(GAMES))


def _die_often(lab: Lab, size: Size, dice: Random, points: list[str], allow: Callable[[], str]) -> Outcome:
    """Kill at one of the failpoints in each run; each run may have its own list of games."""
    deaths, stage = Deaths(), _stage(lab)
    _produce(stage, size.records, partitions="3")
    for _ in range(size.times):
        _die_everywhere(stage, [dice.choice(points)], lambda: stage.start(TABLES__ALLOWLIST=allow()), deaths)
    _finish(stage)
    return Outcome(deaths.met, deaths.faults | stage.verify(), {"starts": deaths.starts, "records": size.records})


def _stage(lab: Lab) -> Stage:
    key = lab.folder / "hmac.key"
    key.touch(0o600)
    key.write_text(KEY)
    studios = lab.address("studios")
    _change(studios)
    return lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS="1000",
        GOLD__INTERVAL_S="0.5",
        EVENTS__INTERVAL_S="0.5",
        LAKE__COMPACT_FILES="6",
        LAKE__KEEP_MANIFESTS="20",
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
        EXPECTATIONS=json.dumps(RULES),
        SILVER__COLUMNS=json.dumps(COLUMNS),
        SILVER__HMAC_KEY_FILE=str(key),
        REFERENCE=json.dumps({"studios": STUDIOS | {"path": studios.root}}),
        TABLES__ALLOWLIST="[]",  # otherwise a command has that of the last start
        FAILPOINTS="on",
        **BY_SQL,
        **WAITS_FOR_SCHEMAS,
    )


def _change(studios: StorageAddress) -> None:
    """Write another version of the reference table."""
    edition = time.time_ns()
    table = pa.table({"game_name": GAMES, "studio": [f"the {game} studio" for game in GAMES]})
    table = table.append_column("edition", pa.array([edition] * len(GAMES)))
    options = open_storage(studios).delta_options
    write_deltalake(studios.root, table, mode="overwrite", storage_options=options)


def _start_with_others(stage: Stage, studios: StorageAddress) -> Popen[bytes]:
    """The app, whose reference table is another one than before."""
    _change(studios)
    return stage.start()


def _work(studios: StorageAddress, stage: Stage, records: int, deaths: Deaths) -> None:
    bumps = ",".join(f"*={version}@{records * version // 4}r" for version in (2, 3))
    _produce(stage, records, partitions="3", timeline=bumps)
    start = partial(_start_with_others, stage, studios)
    in_bucket = bool(stage.address.scheme)
    _die_everywhere(stage, _points("ingest", *(OF_BUCKETS if in_bucket else ()), *_others()), start, deaths)
    if not in_bucket:  # an object store tears nothing
        _tear_log(stage)
        _die_everywhere(stage, _points("mend"), stage.start, deaths)
    shutil.rmtree(stage.lake / "_protolake" / "checkpoint", ignore_errors=True)
    _die_everywhere(stage, _points("checkpoint"), stage.start, deaths)
    stage.drain(BATCH__MAX_RECORDS="100000")
    for version, point in enumerate(_points("leave"), 4):
        _die_everywhere(stage, [point], partial(_bump, stage, version), deaths)
    _finish(stage)


def _recover(stage: Stage, records: int, deaths: Deaths) -> None:
    allowed = json.dumps([game for game in GAMES if game not in REFUSED])
    _produce(stage, records, partitions="3", schema_version="5", num_versions="5")
    stage.run("--available-now", "--land-only", TABLES__ALLOWLIST=allowed, BATCH__MAX_RECORDS="20000")
    drain = partial(stage.start, "--available-now", TABLES__ALLOWLIST=allowed)
    _die_everywhere(stage, _points("deferred"), drain, deaths, lambda: _land(stage, allowed))
    stage.drain(TABLES__ALLOWLIST=allowed, BATCH__MAX_RECORDS="100000")
    resume = partial(_ask, stage, "resume", "euchre", "--failing", "quarantine")
    _die_everywhere(stage, _points("resume"), resume, deaths)
    _die_everywhere(stage, _points("deferred"), drain, deaths, lambda: _land(stage, allowed))
    of_replay = _points("replay", *OF_REQUESTS)
    _die_everywhere(stage, of_replay, lambda: _ask(stage, "replay"), deaths, lambda: _refuse(stage, allowed))
    _remove(stage)
    of_rebuild = _points("rebuild")
    _die_everywhere(stage, of_rebuild, lambda: _ask(stage, "rebuild", *REMOVED), deaths, lambda: _remove(stage))
    renew = partial(_ask, stage, "rebuild", REMOVED[0], "--renew", "--yes")
    _die_everywhere(stage, _points("renew"), renew, deaths)
    stage.arm([])
    for command in ("replay", "rebuild"):
        stage.command(command)
    _finish(stage)


def _finish(stage: Stage) -> None:
    """Ingest everything that is left, the rows of paused tables among it."""
    stage.arm([])
    stage.drain(BATCH__MAX_RECORDS="100000", EXPECTATIONS=json.dumps(RESUMING))


def _produce(stage: Stage, records: int, **options: str) -> None:
    stage.produce(records, games=",".join(GAMES), poison="0.01", **options)


def _land(stage: Stage, allowed: str) -> None:
    """Add records that wait to be decoded."""
    _produce(stage, MORE, schema_version="5")
    stage.run("--available-now", "--land-only", TABLES__ALLOWLIST=allowed, BATCH__MAX_RECORDS="20000")


def _refuse(stage: Stage, allowed: str) -> None:
    """Add records to quarantine: of games that never had a table, because existing tables stay."""
    number = sum(name.startswith("silver_") for name in Lake(stage.address).tables())
    stage.produce(MORE, schema_version="5", games=f"late_{number},late_{number + 1}")
    stage.drain(TABLES__ALLOWLIST=allowed)


def _ask(stage: Stage, *command: str) -> Popen[bytes]:
    """Start the command. Of the requests of killed commands only the oldest, which has begun, is kept: the others would
    all be executed one after another."""
    lake = Lake(stage.address)
    for request in requests.pending(lake)[1:]:
        lake.storage.delete(requests.key_of(request))
    return stage.spawn(*command)


def _remove(stage: Stage) -> None:
    """Remove tables, for a rebuild."""
    for game in REMOVED:
        Lake(stage.address).storage.delete_all(f"silver_{game}_events")


def _bump(stage: Stage, version: int) -> Popen[bytes]:
    """A running app that reads a new schema id."""
    app = stage.start()
    wait_until(lambda: stage.status().get("pid") == app.pid and stage.status()["state"] == "running", "the start")
    _produce(stage, 500, schema_version=str(version))
    return app


def _tear_log(stage: Stage) -> None:
    """Tear a log as a power cut may do: the newest entry is empty, and it is not known how far the log was durable."""
    (stage.lake / "_protolake" / "synced.json").unlink(missing_ok=True)
    max((stage.lake / "bronze_events" / "_delta_log").glob("*.json")).write_bytes(b"")


def _points(*steps: str) -> list[str]:
    return [point for point in POINTS if any(point.startswith(f"{step}.") for step in steps)]


def _others() -> list[str]:
    """Steps of normal work that belong to no kind of unit."""
    of_units = ("ingest", "deferred", "replay", "rebuild", "renew", "resume", "checkpoint", "mend", "leave")
    of_sinks = ("sink",)  # which another process takes: tests/unit/followers/test_sink_kills.py
    special = (*of_units, *of_sinks, *OF_LOSSES, *OF_OLD_LAKES, *OF_FILES, *OF_REQUESTS, *OF_BUCKETS)
    return sorted({p.rsplit(".", 1)[0] for p in POINTS if not p.startswith(special)})


def _die_everywhere(
    stage: Stage,
    points: list[str],
    start: Callable[[], Popen[bytes]],
    deaths: Deaths,
    supply: Callable[[], None] | None = None,
) -> None:
    """Kill once at each failpoint.

    Args:
        supply: makes another unit when a run ends normally. Tables are committed in parallel: the kill at one of them
            may come between another table's commit and the failpoint after it, and then that unit never reaches that
            failpoint.
    """
    stage.arm(points)
    moved, left, supplies = time.monotonic(), len(points), SUPPLIES if supply else 0
    while left:
        app = start()
        deaths.starts += 1
        try:
            wait_for(app, PATIENCE_S - (time.monotonic() - moved), lambda: not stage.unmet())
            is_done = app.poll() == 0
        finally:
            kill(app)
        if len(stage.unmet()) < left:
            moved, left = time.monotonic(), len(stage.unmet())
        elif supply and supplies and is_done:
            supply()
            moved, supplies = time.monotonic(), supplies - 1
        elif time.monotonic() - moved > PATIENCE_S:
            deaths.faults[f"never met, of {points[0]} ..."] = stage.unmet()
            break
    deaths.met += len(points) - left
