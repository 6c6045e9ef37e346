"""The text of hidden columns is in bronze, and in the raw records of quarantine; nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_app.followers.events.settings_event import settings_event
from spark_app.followers.events.spool import EventLog
from spark_app.units.driver.status import Status
from tests.chaos import read_back
from tests.support.clear_text import places_of
from tests.support.following import follow_events
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, event, hashed, key_file, lake_of

SECRET = "Zebra-7731"
HIDDEN: dict[str, Any] = {
    "drop": ["ssn", "home"],
    "columns": {
        "gamer_id": "hmac(gamer_id)",
        "number": "gamer_id::INTEGER",  # DuckDB's message about a failed cast has the text
        "city": "home.city::DATE",
        "device_id": "left(device_id, 2) || '***'",
        "known": "ssn IS NOT NULL",
    },
}
RULES = {
    "cast": {"check": "gamer_id::INTEGER > 0", "action": "warn"},
    "small": {"check": "latency_ms < 50", "action": "quarantine"},
    "even": {"check": "latency_ms % 2 = 0", "action": "drop"},
    "calm": {"check": "latency_ms <> 13", "action": "pause", "tables": ["poker"]},
}

SECTIONS: dict[str, Any] = {
    "expectations": RULES,
    "lake": {"checkpoint_every": 2, "compact_files": 2},
    "event": {"time": "_landed_at"},
}


def sent(first: int) -> list[bytes]:
    """Rows that land, and some that are kept out in each way."""
    hidden = {"ssn": f"{SECRET}-ssn", "device_id": f"d {SECRET}", "home": {"city": f"{SECRET} city"}}
    names = [("uno", n) for n in range(45, 55)] + [("poker", 2), ("poker", 13), ("no name !", 1), ("", 1)]
    events = [event(game, f"{SECRET}-{first + n}", GROWN, latency_ms=n, **hidden) for game, n in names]
    return [*events, events[0][:-3], events[0][:5] + b"\xff" + SECRET.encode(), SECRET.encode()]


def take(lake: SmallLake) -> None:
    for first in range(0, 100, 20):
        lake.take(batch_of(sent(first), first=first))


def test_a_lake_that_hides_nothing_shows_it_everywhere(tmp_path: Path) -> None:
    """What is looked for is found: in pages, bounds and logs."""
    lake = lake_of(tmp_path / "lake", {}, expectations=RULES)
    take(lake)
    lake.fold("_landed_at")
    found = places_of(tmp_path / "lake", SECRET)
    assert any(place.endswith(".parquet:gamer_id") for place in found)
    assert any("silver_uno_events/_delta_log/" in place for place in found)
    assert any("manifests/" in place for place in found)
    assert any(place.startswith("gold_") for place in found)


def test_hidden_text_is_only_in_the_records(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake = lake_of(tmp_path / "lake", HIDDEN, **SECTIONS)
    EventLog(lake.lake).add(settings_event(lake.lake, lake.settings))
    events = follow_events(lake.opened)
    take(lake)
    events.call()
    lake.fold("_landed_at")
    lake.units.check_expectations()
    status = Status(lake.lake, lake.settings.layout)
    status.running()
    verdict = lake.audit()
    assert verdict.clean, verdict.faults()
    assert SECRET not in json.dumps(verdict.to_json())
    tables = {path.name for path in (tmp_path / "lake").iterdir()}
    assert {"quarantine_events", "deferred_events", "dropped_events", "gold_uno_player_agg"} <= tables
    kinds = read_back.read(lake.lake.root, "pipeline_events", ["kind"])["kind"].to_pylist()
    assert {"unit", "table_rows", "rule", "quarantine", "paused", "settings"} <= {*kinds}
    assert any((tmp_path / "lake").rglob("*.checkpoint.parquet"))
    assert places_of(tmp_path / "lake", SECRET) == set()
    said = "".join(capfd.readouterr())
    assert "tables admitted" in said
    assert SECRET not in said
    assert places_of(tmp_path / "lake", hashed(f"{SECRET}-46"))  # the hash is there


def test_a_key_is_in_no_file_and_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = b"Okapi-key-of-more-than-16-bytes"
    path = key_file(tmp_path / "own", key)
    lake = SmallLake(tmp_path / "lake", EVENTS, silver=HIDDEN | {"hmac_key_file": path, "drop": ["ssn"]})
    lake.take(batch_of([event("uno", "a")]))
    lake.audit()
    assert places_of(tmp_path / "lake", "Okapi") == set()
    assert "Okapi" not in "".join(capfd.readouterr())
    assert "Okapi" not in repr(lake.settings)
