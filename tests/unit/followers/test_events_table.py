"""The table of events: what the units say, each once, whatever crashes."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.followers.events.events_table import SCHEMA, to_arrow
from spark_app.followers.events.spool import EventLog
from spark_app.followers.events.unit_events import MOST_TABLES, unit_events
from spark_app.followers.runner import FollowerRunner, Followers
from spark_app.lake.delta import durability, inventory
from spark_app.lake.delta.manifest import Manifest, Manifests, counts_of
from spark_app.model.columns import NO_IDS
from spark_app.model.events import RUN_ID, Event, EventRow
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.recovery import doctor
from spark_app.sources.kafka.topics import BrokerUnreachable, Topics
from spark_app.units.driver import open_lake
from tests.support.event_lakes import follow, lake_of, take
from tests.support.lakes import SmallLake
from tests.support.projections import GROWN

TABLE = "pipeline_events"


def rows(lake: SmallLake, kind: str = "") -> list[dict[str, Any]]:
    found = pl.read_delta(str(lake.lake.path(TABLE))).sort("happened_at", "id").to_dicts()
    return [row | {"details": json.loads(row["details"])} for row in found if kind in ("", row["kind"])]


def unit_numbers(lake: SmallLake) -> list[int]:
    return sorted(row["unit"] for row in rows(lake, "unit"))


def kept_for(lake: SmallLake, events: FollowerRunner, most_bytes: int) -> Followers:
    """What keeps manifests for the events, which another runner follows."""
    made = Followers([], lake.lake, lake.opened.units.manifests, threading.Event(), most_bytes)
    made._runners["events"] = events
    return made


def test_each_unit_has_one_event(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 3)
    events.call()
    events.call()
    take(lake, 2)
    events.call()
    assert unit_numbers(lake) == [1, 2, 3, 4, 5]
    assert (events.cursor, events.paused) == (5, None)
    first = rows(lake, "unit")[0]
    assert (first["id"], first["level"], first["run"]) == ("unit/1", "INFO", RUN_ID)
    assert first["message"].startswith("Unit 1 (ingest) has 2 records in ")
    due = {"kind": "ingest", "records": 2, "silver": 1, "quarantine": 1, "deferred": 0, "range": {"t/0": [0, 2]}}
    assert due.items() <= first["details"].items()
    assert abs(first["happened_at"].timestamp() - time.time()) < 60
    assert len({row["id"] for row in rows(lake)}) == len(rows(lake))


def test_rows_rules_and_causes_are_summed_over_the_units_of_a_flush(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 2)
    take(lake, latency=60)
    events.call()
    silver = [(row["table"], row["message"], row["details"]) for row in rows(lake, "table_rows")]
    assert silver == [("silver_uno_events", "2 rows in units 1 to 3", {"rows": 2})]
    (rule,) = rows(lake, "rule")
    assert (rule["level"], rule["details"]) == ("WARN", {"rule": "small", "passed": 2, "failed": 1})
    causes = {row["details"]["cause"]: row["details"] for row in rows(lake, "quarantine")}
    assert {cause: (found["count"], found["sample"]) for cause, found in causes.items()} == {
        "frame_magic": (3, "t/0@1"),
        "expect_failed": (1, "t/0@4"),
    }


def test_tables_that_begin_and_columns_that_are_added_are_emitted_with_their_unit(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake)
    take(lake, decodable=GROWN)
    take(lake, decodable=GROWN)
    events.call()
    begun = {row["table"]: row["unit"] for row in rows(lake, "table_admitted")}
    assert begun == {"bronze_events": 1, "quarantine_events": 1, "silver_uno_events": 1}
    (grown,) = rows(lake, "columns_added")
    assert (grown["unit"], grown["table"]) == (2, "silver_uno_events")
    assert grown["details"]["columns"]


def test_a_table_that_is_paused_is_emitted_with_its_unit(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, game="poker", latency=13)
    take(lake, game="poker", latency=13)
    events.call()
    (paused,) = rows(lake, "paused")
    assert (paused["unit"], paused["level"], paused["table"]) == (1, "ERROR", "silver_poker_events")
    assert paused["details"] == {"rule": "calm", "record": "t/0@0"}


def test_the_table_of_an_older_lake_begins_with_its_next_unit(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    take(lake, 3)
    events = follow(lake)
    events.call()
    assert unit_numbers(lake) == []
    take(lake)
    events.call()
    assert unit_numbers(lake) == [4]


def test_many_tables_and_rules_are_bounded() -> None:
    names = [f"g{number}" for number in range(1000)]
    counts = counts_of(Report(silver=dict.fromkeys(names, 1), expectations={name: {"r": [1, 0]} for name in names}))
    found = list(unit_events(TableNames(), [Manifest(n, "ingest", {}, {}, counts) for n in (1, 2)]))
    kinds = Counter(row.kind for row in found)
    assert kinds == {"unit": 2, "table_rows": MOST_TABLES + 1, "rule": MOST_TABLES + 1}
    rest = json.loads(found[2 + MOST_TABLES].details)
    assert rest == {"rows": 1600, "tables": 800}
    assert len({row.id for row in found}) == len(found)


@pytest.mark.nightly
def test_a_follower_that_was_stopped_for_long_loses_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, lake={"keep_manifests": 1})
    events = follow(lake)
    take(lake)
    manifests, synced = lake.opened.units.manifests, lake.opened.units.committer.synced
    kept = kept_for(lake, events, 1 << 30)
    events.call()
    events.flush()
    for number in range(2, 3602):
        manifests.commit(Manifest(number, "deferred", {}, {}, counts_of(Report())))
        manifests.mark_applied(number)
    synced.unit = manifests.last
    kept.forget(1, manifests.last)
    assert manifests.numbers() == list(range(1, 3602))  # 1 is the last unit of ingest
    assert kept.describe()["events"]["lag"] == 3600
    again = follow(lake)
    again.call()
    assert unit_numbers(lake) == list(range(1, 3602))
    again.flush()
    kept_for(lake, again, 1 << 30).forget(1, manifests.last)
    assert manifests.numbers() == [1, 3601]


def test_a_follower_whose_units_are_gone_is_paused_until_a_person_decides(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 2)
    events.call()
    events.flush()
    take(lake, 8)
    manifests = lake.opened.units.manifests
    size = sum(manifests._storage.size(manifests._key(number)) or 0 for number in (8, 9, 10))
    kept = kept_for(lake, events, size)
    kept.forget(1, 10)
    assert manifests.numbers() == [8, 9, 10]
    again = follow(lake)
    again.call()
    assert unit_numbers(lake) == [1, 2]
    assert "units 3 to 7 were removed" in str(again.paused)
    assert "--accept-gap" in str(again.paused)
    take(lake)
    again.call()
    assert unit_numbers(lake) == [1, 2]
    decided = follow(lake, accepted=manifests.last)
    decided.call()
    assert unit_numbers(lake) == [1, 2, 8, 9, 10, 11]
    (gap,) = rows(lake, "gap")
    assert (gap["level"], gap["details"]) == ("WARN", {"units": [3, 7]})
    assert decided.paused is None


def test_events_expire_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(tmp_path, events={"keep_days": 1})
    events = follow(lake)
    take(lake, 2)
    events.call()
    old = rows(lake)
    past = int((time.time() - 2 * 86_400) * 1e6)
    monkeypatch.setattr(
        "spark_app.followers.events.events_table.unit_events",
        lambda layout, units: [replace(row, happened_at=past) for row in unit_events(layout, units)],
    )
    take(lake)
    events.call()
    assert len(rows(lake)) > len(old)
    monkeypatch.undo()
    take(lake)
    again = follow(lake)
    again.call()
    assert unit_numbers(lake) == [1, 2, 4]


def test_the_table_is_compacted_and_cleaned_as_any_other(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, lake={"compact_files": 4, "checkpoint_every": 5, "log_retention_hours": 1e-6})
    events, count = follow(lake), 0
    while count < 40 or len(list(lake.lake.path(TABLE).glob("*.parquet"))) >= count - 5:
        take(lake)
        events.call()
        count += 1
        assert count < 1000  # files are kept for a second, the least that Delta knows
    table = DeltaTable(str(lake.lake.path(TABLE)))
    assert len(table.file_uris()) < 8
    assert unit_numbers(lake) == list(range(1, count + 1))
    assert any(lake.lake.path(TABLE).glob("_delta_log/*.checkpoint.parquet"))


def test_another_writer_of_the_table_does_no_harm(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake)
    events.call()
    table = DeltaTable(str(lake.lake.path(TABLE)))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    take(lake)
    with pytest.raises(Exception, match="another writer has changed"):
        events.call()
    events.call()
    assert unit_numbers(lake) == [1, 2]


def test_a_table_that_was_removed_begins_again(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 2)
    events.call()
    shutil.rmtree(lake.lake.path(TABLE))
    take(lake)
    with pytest.raises(DeltaError, match="has changed or removed"):
        events.call()
    take(lake)
    events.call()
    take(lake)
    events.call()
    assert unit_numbers(lake) == [5]


def test_a_unit_is_remembered_without_what_is_large(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake)
    (unit,) = events._recent
    assert unit.tables == {}
    assert "schema_ids" not in unit.counts


def test_readers_find_events_by_filters(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 3)
    events.call()
    take(lake, 2)
    events.call()
    path = str(lake.lake.path(TABLE))
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    scan = pl.scan_delta(path).filter(pl.col("happened_at") > since, pl.col("kind") == "unit", pl.col("unit") >= 4)
    assert scan.select("unit").collect().to_series().sort().to_list() == [4, 5]
    filters = [("kind", "=", "unit"), ("unit", "<", 3)]
    assert sorted(DeltaTable(path).to_pyarrow_table(filters=filters)["unit"].to_pylist()) == [1, 2]
    files = DeltaTable(path).file_uris()
    wanted = "kind = 'unit' AND happened_at > now() - INTERVAL 1 HOUR"
    query = f"SELECT unit, count(*) FROM read_parquet({files!r}) WHERE {wanted}"
    found = duckdb.sql(f"{query} GROUP BY 1 HAVING unit > 2 ORDER BY 1").fetchall()
    assert found == [(3, 1), (4, 1), (5, 1)]
    table = DeltaTable(path).to_pyarrow_dataset()
    duckdb.register("pipeline_events", table)
    said = duckdb.sql("SELECT details->>'$.rule' FROM pipeline_events WHERE kind = 'rule' AND \"level\" = 'INFO'")
    assert said.fetchall() == [("small",)] * 2


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise BrokerUnreachable("no broker")

    monkeypatch.setattr(Topics, "look", unreachable)


def examine(lake: SmallLake) -> list[str]:
    return [problem.what for problem in doctor.examine(lake.lake, lake.settings) if "no broker" not in problem.what]


@pytest.mark.usefixtures("no_broker")
def test_the_doctor_removes_lost_files_from_the_table(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    for _ in range(2):
        take(lake)
        events.call()
    events.flush()
    lake.opened.units.committer.close()
    assert examine(lake) == []
    max(lake.lake.path(TABLE).glob("*.parquet"), key=lambda path: path.stat().st_mtime).unlink()
    (found,) = examine(lake)
    assert "pipeline_events: 1 of its files are missing" in found
    assert any("removed 1 files" in done for done in doctor.repair(lake.lake, lake.settings))
    assert examine(lake) == []
    assert unit_numbers(lake) == [1]
    take(lake)
    follow(lake).call()
    assert unit_numbers(lake) == [1, 3]


def test_the_other_parts_know_the_table(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    take(lake, 2)
    events = follow(lake)
    take(lake, 2)
    events.call()
    units, layout = lake.opened.units, lake.settings.layout
    units.committer.close()
    assert inventory.examine(lake.lake, units.manifests, units.committer, layout) == []
    assert durability.look(lake.lake, units.committer.synced, layout) == []
    assert TABLE not in open_lake.count_rows(lake.opened)
    wrong = {key for key in lake.audit().counts if key[0] != "gold"}  # nothing has made gold
    assert wrong == set()
    assert lake.opened.units.committer.tables.field_ids(TABLE, SCHEMA) is NO_IDS


def test_a_table_ahead_of_the_manifests_is_found(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events = follow(lake)
    take(lake, 2)
    events.call()
    lake.lake.path(lake.lake.manifests).joinpath(f"{2:012d}.json").unlink()
    units = lake.opened.units
    found = inventory.examine(lake.lake, Manifests(lake.lake), units.committer, lake.settings.layout)
    assert any(TABLE in problem.what and "the newest manifest is 1" in problem.what for problem in found)


def test_a_log_that_a_power_cut_has_torn_is_written_again(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    events, told = follow(lake), EventLog(lake.lake)
    take(lake, 2)
    events.call()
    events.flush()
    take(lake, 2)
    told.add(Event("note", "one"))
    events.call()
    (last,) = [max(lake.lake.path(TABLE).glob("_delta_log/*.json"))]
    lines = last.read_bytes().splitlines(keepends=True)
    last.write_bytes(b"".join(lines[:-1]))  # without the transaction of the units, but with that of the spool
    assert b'"txn"' in lines[-2]
    lake = lake_of(tmp_path)
    follow(lake).call()
    assert unit_numbers(lake) == [1, 2, 3, 4]
    assert [row["message"] for row in rows(lake, "note")] == ["one"]


def test_a_unit_costs_ingest_next_to_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    follow(lake)
    take(lake)
    unit = lake.opened.units.manifests.read(1)
    offer = lake.opened.units.on_commit
    began = time.thread_time()
    for _ in range(1000):
        offer(unit)
    assert (time.thread_time() - began) / 1000 < 0.001


def test_a_row_says_when_it_was_written() -> None:
    row = EventRow("a", 1, "unit", "INFO", None, 1, None, "m", "{}")
    (found,) = to_arrow([row]).to_pylist()
    assert found["written_at"] > found["happened_at"]
