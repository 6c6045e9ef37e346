"""A lake of an earlier release, without JVM and servers: what can be opened here says what that release said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_app.lake.lake import Lake
from spark_app.recovery import requests
from tests.support import golden_lake
from tests.support.golden_lake import ALONE, ARCHIVE, EARLIER, ROWS

TABLES = sorted(path.stem for path in ROWS.iterdir())
COMPACTED = ("bronze_events", "silver_poker_events", "silver_rummy_events")
MOST_BYTES = 1 << 20
MADE_IN = b"/tmp/"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return golden_lake.unpack(tmp_path)


def kept(table: str) -> list[str]:
    return (ROWS / f"{table}.jsonl").read_text().splitlines()


@pytest.mark.parametrize("read", [golden_lake.rows_by_arrow, golden_lake.rows_by_polars])
def test_every_row_of_every_table_is_as_it_was_written(lake: Path, read: Any) -> None:
    assert Lake(lake).tables() == TABLES
    assert {table: read(lake, table) for table in TABLES} == {table: kept(table) for table in TABLES}


def test_the_lake_holds_what_kafka_was_sent(lake: Path) -> None:
    """Each record once in bronze, with its bytes; what the serializer was given is in silver, refused or waiting."""
    sent = {(r["partition"], r["offset"]): r for r in golden_lake.records(EARLIER)}
    bronze = [json.loads(line) for line in kept("bronze_events")]
    assert {(r["partition"], r["offset"]): r["value"] for r in bronze} == {at: r["value"] for at, r in sent.items()}
    assert len(bronze) == len(sent)
    silver = {t: [json.loads(line) for line in kept(t)] for t in TABLES if t.startswith("silver_")}
    assert len(silver) == 7
    placed = [(r["_partition"], r["_offset"]) for rows in silver.values() for r in rows]
    states = ("quarantine_events", "deferred_events", "resolved_events")
    refused, waiting, resolved = (
        [(r["partition"], r["offset"]) for r in map(json.loads, kept(table))] for table in states
    )
    tombstones = [at for at, record in sent.items() if record["value"] is None]
    assert sorted([*placed, *refused, *waiting, *tombstones]) == sorted([*sent, *resolved])
    for game, column, text in (("poker", "chips", str), ("rummy", "odds", lambda number: str(float(number)))):
        given = {at: record["fields"].get(column) for at, record in sent.items() if record["game"] == game}
        found = {(r["_partition"], r["_offset"]): r[column] for r in silver[f"silver_{game}_events"]}
        assert {at: text(value or 0) for at, value in found.items()} == {at: text(given[at] or 0) for at in found}
        assert given.keys() - found.keys() <= set(waiting)


def test_tables_were_compacted_by_the_release_that_made_them(lake: Path) -> None:
    for table in COMPACTED:
        operations = [commit["operation"] for commit in DeltaTable(str(lake / table)).history()]
        assert "OPTIMIZE" in operations, table


def test_a_request_waits(lake: Path) -> None:
    (request,) = requests.pending(Lake(lake))
    assert (request.kind, request.arguments["causes"], request.dry_run) == ("replay", ["route_refused"], False)


@pytest.mark.parametrize("command", ALONE)
def test_command_says_without_servers_what_it_said(lake: Path, command: str) -> None:
    assert golden_lake.ask_alone(lake, command) == golden_lake.said(f"alone-{command}")


def test_nothing_in_it_names_the_place_where_it_was_made(lake: Path) -> None:
    """A lake may be moved, and its servers too. delta-rs notes the folder where a table is made, in the history of its
    first version, which nobody reads."""
    texts = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    for path in lake.glob("*/_delta_log/*.json"):
        texts[path] = b"\n".join(line for line in texts[path].splitlines() if b'{"commitInfo"' not in line)
    assert [path for path, text in texts.items() if MADE_IN in text or b"127.0.0.1" in text] == []


def test_it_stays_small() -> None:
    assert ARCHIVE.stat().st_size < MOST_BYTES
