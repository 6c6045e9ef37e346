"""The audit of a lake with a history: records that are gone or given up, units not finished, gold behind, damage."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.audit import audit
from spark_app.audit.snapshot import Table
from spark_app.lake.files.state_files import write_quickly
from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import count_open_causes
from spark_app.units.driver.unit import UnitOptions
from tests.support.frames import batch_of
from tests.support.lakes import TOPIC, TOPIC_ID, SmallLake
from tests.unit.audit.test_audit import KINDS, SILVER, check, kinds_lake, played
from tests.unit.units import test_task as kinds


def test_records_that_kafka_no_longer_has_are_compared_with_bronze(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS), batch_of(KINDS, partition=1))
    lake.kafka.first_kept = 7
    check(lake, 2 * SILVER, gold=2, records=14, offsets=7)


@pytest.mark.parametrize(
    ("column", "damage", "named"),
    [("headers", "'{'", "headers"), ("headers", "'[1]'", "headers"), ("timestamp_type", "null", "timestamp_type")],
)
def test_damage_to_what_only_bronze_still_has_is_named(tmp_path: Path, column: str, damage: str, named: str) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    lake.kafka.first_kept = len(KINDS)
    DeltaTable(str(lake.lake.path("bronze_events"))).update({column: damage}, predicate="offset = 2")
    found = lake.audit().named["altered"]
    assert {wrong.what for wrong in found} == {f"{TOPIC}/0@2"}
    assert [wrong.why for wrong in found if wrong.table == "bronze_events"] == [named]


def test_a_compacted_topic_may_lack_records(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    lake.kafka.dropped = {(0, 0), (0, 3)}
    assert sorted(w.what for w in lake.audit().named["phantom"]) == ["t/0@0", "t/0@0", "t/0@3"]
    lake.kafka.compacted = True
    check(lake, SILVER, gold=2, records=2)


@pytest.mark.parametrize("found", ["another id", None])
def test_a_topic_that_is_not_there_any_more(tmp_path: Path, found: str | None) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    lake.kafka.id = found
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert any("compared with bronze" in words for words in verdict.notes)


def test_records_that_were_only_landed_wait(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS), origin=UnitOptions({TOPIC: TOPIC_ID}, land_only=True))
    assert check(lake, 0).rows["deferred_events"] == len(KINDS) - 1


def test_records_that_were_given_up_are_nowhere(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    lake.kafka.batches.append(batch_of(KINDS[:3], first=len(KINDS)))
    lake.take(batch_of(KINDS, first=len(KINDS) + 3))
    assert len(lake.audit().named["lost"]) > 3
    lost = {"topic": [TOPIC], "topic_id": [TOPIC_ID], "partition": [0], "first": [len(KINDS)], "end": [len(KINDS) + 3]}
    write_deltalake(str(tmp_path / "lost_events"), pa.table(lost))
    check(lake, 2 * SILVER, gold=2)


def test_rows_beyond_the_audited_end_are_not_phantoms(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    table = lake.lake.path("bronze_events")
    rows = DeltaTable(str(table)).to_pyarrow_table()
    for offset, phantoms in ((100, 0), (None, 1)):
        other = pa.array([offset] * len(rows), pa.int64())
        write_deltalake(
            str(table), rows.set_column(rows.column_names.index("offset"), "offset", other)[:1], mode="append"
        )
        assert sum(lake.audit().counts.values()) == phantoms


def acks_of(path: Path, values: Sequence[bytes | None], first: int = 0) -> Path:
    lines = [
        {"topic": TOPIC, "partition": 0, "offset": first + n, "sha256": v and hashlib.sha256(v).hexdigest()}
        for n, v in enumerate(values)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_acknowledged_records_must_be_there(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path / "lake")
    lake.take(batch_of(KINDS))
    assert lake.audit(acks=acks_of(tmp_path / "acks", KINDS)).faults() == {}
    lake.take(batch_of(KINDS[:2], first=len(KINDS) + 1))
    assert lake.audit().faults() == {}
    wrong = [b"other", *KINDS[1:], b"was never there"]
    verdict = lake.audit(acks=acks_of(tmp_path / "acks", wrong))
    assert {(w.kind, w.what) for found in verdict.named.values() for w in found} == {
        ("altered", "t/0@0"),
        ("lost", f"t/0@{len(KINDS)}"),
    }


def test_acks_that_are_none_are_an_error(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path / "lake")
    lake.take(batch_of(KINDS))
    (tmp_path / "acks").write_text('{"topic": "t"}\n')
    with pytest.raises(ConfigurationError, match="line 1 of"):
        lake.audit(acks=tmp_path / "acks")


def test_a_folder_that_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lake with committed units"):
        audit(Settings(lake={"path": str(tmp_path)}))  # type: ignore[arg-type]


def test_a_unit_that_is_not_finished_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    (lake.lake.path(lake.lake.manifests) / "finished").write_text("0")
    monkeypatch.setattr("spark_app.audit.auditor.SNAPSHOT_TIMEOUT_S", 0.5)
    with pytest.raises(UnreachableError, match="start the app, which completes the unit"):
        lake.audit()


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    next(lake.lake.path("bronze_events").glob("*.parquet")).unlink()
    with pytest.raises(ContractError, match="bronze_events cannot be read"):
        lake.audit()


def test_where_an_old_lake_began_is_read_from_bronze_and_reported(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    for first in range(3):
        lake.take(batch_of(KINDS, first=5 + first * len(KINDS)))
    lake.opened.units.manifests.forget(1, 3)
    (lake.lake.path(lake.lake.manifests) / "began").unlink()
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert any("took it from the first offsets in bronze" in words for words in verdict.notes)


def test_gold_is_compared_with_the_silver_that_it_has_folded(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1, event={"time": "at"})
    played(lake, "a", "b")
    check(lake, 2, gold=1)
    lake.fold("at")
    check(lake, 2)
    played(lake, "a", "c")
    played(lake, "c", "d")
    assert check(lake, 6).upto == 3
    lake.fold("at", unit=2)
    assert {(w.what, w.why.split(",")[0]) for w in lake.audit().named["gold"]} == {
        ("c", "session_count"),
        ("d", "not in silver"),
    }
    lake.fold("at")
    check(lake, 6)
    shutil.rmtree(lake.lake.path("gold_rummy_player_agg"))
    assert {(w.what, w.why) for w in lake.audit().named["gold"]} == {(gamer, "missing") for gamer in "abcd"}


def test_a_table_as_of_a_unit_beside_an_app_that_goes_on(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1)
    for _ in range(4):
        played(lake, "a")
    table = Table(lake.lake.storage, "silver_rummy_events")
    played(lake, "a")
    found = [table.as_of(unit) for unit in (0, 1, 2, 3, 4)]
    assert [old and old.count() for old in found] == [None, 1, 2, 3, 4]


def test_gold_that_is_behind_an_old_log_is_not_judged(tmp_path: Path) -> None:
    lake = SmallLake(
        tmp_path, kinds.V1, event={"time": "at"}, lake={"log_retention_hours": 1e-6, "checkpoint_every": 1}
    )
    played(lake, "a")
    lake.fold("at")
    for _ in range(3):
        played(lake, "a")
    time.sleep(1.1)
    table = DeltaTable(str(lake.lake.path("silver_rummy_events")))
    table.create_checkpoint()
    table.cleanup_metadata()
    check(lake, 4, gold=1)


def test_gold_that_skipped_a_unit_is_found(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1, event={"time": "at"})
    played(lake, "a")
    lake.fold("at")
    played(lake, "a", "b")
    write_quickly(lake.lake.storage, lake.lake.synced, {"folded": 2}, None)
    assert {(w.what, w.why.split(",")[0]) for w in lake.audit().named["gold"]} == {
        ("a", "session_count"),
        ("b", "missing"),
    }


def test_files_that_were_removed_during_the_audit_are_no_damage(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1, lake={"log_retention_hours": 1e-6})
    for gamer in "ab":
        played(lake, gamer)
    table = Table(lake.lake.storage, "silver_rummy_events")
    folder = lake.lake.path(table.name)
    current = DeltaTable(str(folder))
    current.optimize.compact()
    time.sleep(1.1)
    current.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(UnreachableError, match="audit again"):
        list(table.batches(["gamer_id"]))
    for path in folder.glob("*.parquet"):
        path.unlink()
    with pytest.raises(ContractError, match="restore its files"):
        list(Table(lake.lake.storage, table.name).batches(["gamer_id"]))


def test_a_damaged_quarantine_is_named_at_the_start(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS))
    assert sum(count_open_causes(lake.opened).values()) > 0
    for path in lake.lake.path("quarantine_events").glob("*.parquet"):
        path.write_bytes(b"PAR1")
    with pytest.raises(ContractError, match="quarantine_events cannot be read"):
        count_open_causes(lake.opened)
