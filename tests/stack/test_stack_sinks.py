"""Rows of the real app reach a REST service, whatever is killed, and the app knows nothing of the service."""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from spark_app.audit import audit_sink
from spark_app.followers.sinks import state
from spark_app.lake.lake import Lake
from spark_app.settings import config
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.file_sources import framed, write_parquet
from tests.support.targets import Row, Target

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target().up()
    yield made
    made.down()


def sinks(target: Target, **more: dict[str, Any]) -> str:
    rest = {"url": f"{target.url}/{{name}}", "allow_private": True}
    return json.dumps({name: {"rest": rest, **sink} for name, sink in more.items()})


def audit(stage: Stage, target: Target, sinks: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the log of the target lacks or has besides."""
    log = folder / "received.jsonl"
    calls = [{"key": key, "rows": rows} for key, several in target.accepted.items() for rows in several]
    log.write_text("".join(json.dumps(call) + "\n" for call in calls if "_offset" in call["rows"][0]))
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", str(stage.lake))
    monkeypatch.setenv("PROTOLAKE_SINKS", sinks)
    return audit_sink(config.load(), "events", log).faults()


@pytest.mark.nightly
def test_rows_and_changes_reach_a_service_while_everything_is_killed(
    new_stage: Callable[..., Stage], target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = sinks(target, events={"begin": "all", "rows_per_call": 20}, players={"from": "gold", "rows_per_call": 50})
    stage = new_stage(GOLD__INTERVAL_S="0.5", SINKS=own)
    stage.produce(500)
    lake = Lake(stage.lake)
    app, deliver = stage.start(), stage.spawn("deliver")
    try:
        wait_until(lambda: len(target.accepted) > 5, "the first calls")
        reached = {one.raddr.port for one in psutil.Process(app.pid).net_connections() if one.raddr}
        opened = [one.path for one in psutil.Process(app.pid).open_files()]
        assert target.port not in reached
        assert [path for path in opened if "/_protolake/sinks/" in path] == []
        for process, command in ((deliver, ("deliver",)), (app, ("run",)), (None, ("deliver",))):
            kill(process or deliver)
            stage.produce(500)
            if command == ("run",):
                app = stage.start()
            else:
                deliver = stage.spawn("deliver")
        wait_until(lambda: stage.status().get("bronze") == 2000 and not stage.status()["lag"], "all records")
        wait_until(lambda: _players(target) == _gold(stage), "the players")
        wait_until(lambda: state.read(lake, "events").get("planned", 0) >= max(lake.units()), "all units planned")
        wait_until(lambda: not any(one["waiting"] for one in state.read_all(lake).values()), "nothing to wait")
        calls = stage.lake / "sink_calls"
        wait_until(lambda: calls.exists() and _moved(calls) >= len(target.accepted), "the table of calls")
    finally:
        kill(deliver)
        kill(app)
    assert audit(stage, target, own, tmp_path, monkeypatch) == {}
    assert stage.drain()[-1] == 0
    assert stage.verify() == {}
    table = pl.read_delta(str(calls))
    assert set(table.filter(pl.col("result") == "accepted")["key"]) == set(target.accepted)
    assert "players" in stage.command("sinks").stdout


def _moved(calls: Path) -> int:
    return pl.read_delta(str(calls))["key"].n_unique()


def _players(target: Target) -> dict[tuple[str, str], int]:
    """(game, key) -> the value that the target ends with."""
    found: dict[tuple[str, str], int] = {}
    paths = {key: path for _, _, path, key in list(target.got)}
    for key, several in list(target.accepted.items()):
        for row in several[0]:
            if "_op" in row:
                found[paths[key], row["gamer_id"]] = row["session_count"]
    return found


def _gold(stage: Stage) -> dict[tuple[str, str], int]:
    found = {}
    for folder in stage.lake.glob("gold_*_player_agg"):
        game = folder.name.removeprefix("gold_").removesuffix("_player_agg")
        for key, count in pl.read_delta(str(folder)).select("gamer_id", "session_count").rows():
            found[f"/{game}", key] = count
    return found


def test_a_folder_of_files_reaches_a_service(
    new_stage: Callable[..., Stage], target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    own = sinks(target, events={"begin": "all", "rows_per_call": 10})
    stage = new_stage(SOURCE__KIND="files", SOURCE__PATH=str(folder), SOURCE__SETTLE_S="0.1", SINKS=own)
    stage.produce(10)  # registers the schema, which other tests have, too
    with urllib.request.urlopen(f"{stage.registry.url}/subjects/{stage.topic}-value/versions/latest") as answer:
        own_id = struct.pack(">I", json.load(answer)["id"])
    app, deliver = stage.start(), stage.spawn("deliver")
    try:
        for number in range(3):
            frames = [b"\0" + own_id + frame[5:] for frame in framed(100 * (number + 1), 100 * number)]
            write_parquet(folder / f"{number}.parquet", frames)
            wait_until(lambda count=100 * (number + 1): len(target.rows()) == count, "the rows of the file")
    finally:
        kill(deliver)
        kill(app)
    rows: list[Row] = target.rows()
    assert len(rows) == 300
    assert len({(row["_topic"], row["_partition"], row["_offset"]) for row in rows}) == 300
    assert audit(stage, target, own, tmp_path, monkeypatch) == {}
