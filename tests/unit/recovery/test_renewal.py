"""A silver table that is made anew from bronze: its rows, its columns, and what stays of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_app.model.errors import ConfigurationError
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, UNO, columns, event, faults, lake_of, renew, rows


def test_the_audit_proves_rows_that_were_made_anew(tmp_path: Path) -> None:
    """They met the rules when they came, and meet none now; what is kept out stays out."""
    rules = {"quick": {"check": "latency_ms < 5", "action": "quarantine"}}
    lake = SmallLake(tmp_path / "lake", EVENTS, expectations=rules)
    for first in range(0, 30, 10):
        sent = [event("uno", "a", latency_ms=n, ssn="1", device_id="phone") for n in range(10)]
        lake.take(batch_of(sent, first=first))
    silver = {"columns": {"latency_ms": "latency_ms || ' ms'"}, "drop": ["ssn"]}
    stricter = {"none": {"check": "false", "action": "drop"}}
    later = SmallLake(tmp_path / "lake", EVENTS, silver=silver, expectations=stricter)
    later.ends, later.kafka = lake.ends, lake.kafka
    with pytest.raises(ConfigurationError, match="rebuild uno --renew --yes"):
        later.units.check_expectations()
    renew(later, "uno")
    later.units.check_expectations()
    assert rows(later, UNO, "latency_ms", "_definition") == [(f"{n} ms", 3) for n in range(5)] * 3
    assert "ssn" not in columns(later, UNO)
    assert faults(later) == {}
    again = lake_of(tmp_path / "lake", silver)
    again.ends, again.kafka = later.ends, later.kafka
    again.take(batch_of([event("uno", "a", latency_ms=77)], first=30))
    assert rows(again, UNO, "latency_ms")[-1] == ("77 ms",)
    assert faults(again) == {}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_renewal_is_applied_again_to_any_files(tmp_path: Path, compacted: bool) -> None:
    """After a power cut the table may have other files than those that the renewal replaced at first."""
    lake = SmallLake(tmp_path / "lake", EVENTS)
    for first in range(3):
        lake.take(batch_of([event("uno", "a", ssn="1")], first=first))
    later = lake_of(tmp_path / "lake", {"drop": ["ssn"]})
    later.ends, later.kafka = lake.ends, lake.kafka
    path = lake.lake.path(UNO)
    newest = DeltaTable(str(path)).version() + 1
    renew(later, "uno")
    (path / "_delta_log" / f"{newest:020d}.json").unlink()
    if compacted:
        DeltaTable(str(path)).optimize.compact()
    (tmp_path / "lake" / "_protolake" / "synced.json").unlink(missing_ok=True)
    again = lake_of(tmp_path / "lake", {"drop": ["ssn"]})
    again.ends, again.kafka = lake.ends, lake.kafka
    assert again.opened.units.redone_units == 1
    assert len(rows(again, UNO, "_offset")) == 3
    assert "ssn" not in columns(again, UNO)
    assert faults(again) == {}


@pytest.mark.parametrize("said", [None, "what a person says of it"])
def test_a_renewal_keeps_the_comment_of_the_table(tmp_path: Path, said: str | None) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    lake.take(batch_of([event("uno", "a", ssn="1")]))
    table = DeltaTable(str(lake.lake.path(UNO)))
    if said is not None:
        table.alter.set_table_description(said)
    before = DeltaTable(str(lake.lake.path(UNO))).metadata()
    later = lake_of(tmp_path / "lake", {"drop": ["ssn"]})
    later.ends, later.kafka = lake.ends, lake.kafka
    renew(later, "uno")
    after = DeltaTable(str(lake.lake.path(UNO))).metadata()
    assert after.description == before.description == (said or before.description)
    assert after.description
    assert (after.id, after.created_time) == (before.id, before.created_time)
    assert faults(later) == {}


def test_a_renewal_keeps_the_comments_of_columns_that_stay(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    lake.take(batch_of([event("uno", "a", ssn="1", device_id="phone", latency_ms=3)]))
    path = str(lake.lake.path(UNO))
    for name in ("gamer_id", "device_id", "latency_ms"):
        DeltaTable(path).alter.set_column_metadata(name, {"comment": f"what a person says of {name}"})
    silver = {"columns": {"device_id": "left(device_id, 2)", "latency_ms": "latency_ms + 1"}, "drop": ["ssn"]}
    later = lake_of(tmp_path / "lake", silver)
    later.ends, later.kafka = lake.ends, lake.kafka
    renew(later, "uno")
    comments = {field.name: field.metadata.get("comment") for field in DeltaTable(path).schema().fields}
    assert comments["gamer_id"] == "what a person says of gamer_id"
    assert (comments["device_id"], comments["latency_ms"]) == (None, None)
    assert comments["_offset"]
    assert faults(later) == {}
