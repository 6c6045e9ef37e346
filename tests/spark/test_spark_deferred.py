"""What waits is decoded from bronze once, whatever its schema, its neighbours and crashes do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.spark.parts import ORIGIN, Killed, Parts, events, source
from tests.support.answers import Answers

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
LANDED = replace(ORIGIN, land_only=True)
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c"), ("uno", "d"), ("rummy", "e")]


def landed(parts: Parts) -> dict[str, list[int]]:
    """The offsets in every table but bronze."""
    columns = {name: "_offset" if name.startswith("silver") else "offset" for name in parts.lake.tables()}
    del columns["bronze_events"]
    return {name: sorted(parts.read(name)[column].to_list()) for name, column in columns.items()}


def landing_times(parts: Parts) -> tuple[dict[int, Any], dict[int, Any]]:
    """Offset -> landing time, in bronze and in silver and quarantine."""
    bronze = dict(parts.read("bronze_events").select("offset", "landed_at").iter_rows())
    found: dict[int, Any] = {}
    for name in parts.lake.tables():
        if name.startswith("silver"):
            found |= dict(parts.read(name).select("_offset", "_landed_at").iter_rows())
        if name.startswith("quarantine"):
            found |= dict(parts.read(name).select("offset", "landed_at").iter_rows())
    return bronze, found


def test_ids_wait_until_they_resolve_or_the_patience_is_over(new_parts: NewParts, answers: Answers) -> None:
    answers["/schemas/ids/2"] = (500, {"error_code": 50001, "message": "starting"})
    parts = new_parts(answers.url)
    parts.learn(1)
    parts.take(events(1, PLAYERS[:1]) + events(2, PLAYERS[1:3]) + events(3, PLAYERS[3:]))
    waiting = {"silver_rummy_events": [0], "deferred_events": [1, 2, 3, 4]}
    assert landed(parts) == waiting
    assert parts.deferred.step(None) is None
    assert (landed(parts), parts.manifests.last) == (waiting, 1)

    answers.schema(2, source(2))
    parts = new_parts(answers.url)
    report = parts.deferred.step(None)
    assert report is not None
    assert report.silver == {"rummy": 1, "uno": 1}
    assert landed(parts) == {"deferred_events": [3, 4], "silver_rummy_events": [0, 2], "silver_uno_events": [1]}
    assert parts.read("silver_uno_events")["col_custom_1"].to_list() == ["a"]
    assert parts.deferred.step(None) is None

    parts = new_parts(answers.url, schemas={"unknown_id_grace_s": 0.001})
    assert parts.deferred.step(None) is not None
    assert landed(parts)["deferred_events"] == []
    assert landed(parts)["quarantine_events"] == [3, 4]
    assert set(parts.read("quarantine_events")["cause"]) == {"schema_unknown"}
    assert (parts.deferred.step(None), len(parts.read("bronze_events"))) == (None, 5)
    bronze, found = landing_times(parts)
    assert found == bronze


def test_landed_records_of_new_ids_settle_in_place(new_parts: NewParts, answers: Answers) -> None:
    answers.schema(2, source(2))
    parts = new_parts(answers.url)
    parts.learn(1)
    parts.take([*events(1, PLAYERS[:2]), *events(2, PLAYERS[2:4]), None, b"no frame"], LANDED)
    assert landed(parts) == {"deferred_events": [0, 1, 2, 3, 5]}
    report = parts.deferred.step(None)
    assert report is not None
    assert (report.silver, report.quarantine) == ({"rummy": 2, "uno": 2}, {"frame_magic": 1})
    assert landed(parts) == {
        "deferred_events": [],
        "quarantine_events": [5],
        "silver_rummy_events": [0, 2],
        "silver_uno_events": [1, 3],
    }
    bronze, found = landing_times(parts)
    assert found == {offset: moment for offset, moment in bronze.items() if offset != 4}


def test_record_that_breaks_the_pass_is_quarantined_alone(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_app.units.driver.ingest.MOST_AT_ONCE", 10)
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, PLAYERS), LANDED)
    steps: list[int | None] = []
    while None not in steps and len(steps) < 20:
        if len(steps) != 3:  # once without a restart, which makes no difference
            parts = new_parts()
            parts.fail_tasks_at(1, monkeypatch)
        report = parts.deferred.step(None)
        steps.append(report.bronze if report else None)
    assert steps == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 3, None]
    assert landed(parts) == {
        "deferred_events": [],
        "quarantine_events": [1],
        "silver_rummy_events": [0, 2, 4],
        "silver_uno_events": [3],
    }
    refused = parts.read("quarantine_events")
    assert refused.select("cause", "hop", "schema_id").row(0) == ("decode_crash", "decode", 1)
    assert refused["value"].to_list() == events(1, PLAYERS)[1:2]
    bronze, found = landing_times(parts)
    assert found == bronze


def test_crash_between_manifest_and_commits_is_redone_once(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, PLAYERS), LANDED)
    parts.kill_at_commit("deferred_events", monkeypatch)
    with pytest.raises(Killed):
        parts.deferred.step(None)
    parts = new_parts()
    assert parts.redone_units == 1
    assert parts.deferred.step(None) is None
    assert landed(parts) == {"deferred_events": [], "silver_rummy_events": [0, 2, 4], "silver_uno_events": [1, 3]}


@pytest.mark.parametrize("table", ["deferred_events", "silver_rummy_events", "silver_uno_events"])
def test_a_commit_that_failed_is_made_before_more_is_decided(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, PLAYERS), LANDED)
    with monkeypatch.context() as full:
        parts.kill_at_commit(table, full)
        with pytest.raises(Killed):
            parts.deferred.step(None)
    assert parts.manifests.applied() < parts.manifests.last
    assert parts.deferred.step(None) is None  # in the same process
    assert parts.manifests.applied() == parts.manifests.last == 2
    assert landed(parts) == {"deferred_events": [], "silver_rummy_events": [0, 2, 4], "silver_uno_events": [1, 3]}
