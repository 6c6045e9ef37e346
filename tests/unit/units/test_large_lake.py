"""A lake with records that are too large: tables that get the columns late, compaction, and what the audit says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.lake.delta import rewrite
from spark_app.lake.files.local import LocalStorage
from spark_app.model.record_schemas import OMITTED_SCHEMA
from tests.support.frames import batch_of
from tests.support.lakes import TOPIC, SmallLake
from tests.unit.audit.test_audit import check
from tests.unit.units import test_task as kinds

SIZE, DIGEST = OMITTED_SCHEMA.names
MOST = 200
SMALL = kinds.event(kinds.OLD, "rummy", c0=5)
GIANT = kinds.event(kinds.OLD, "rummy", c0=6) + b"\x12\xd0\x0f" + b"g" * 2000  # the last gamer_id counts
AT = f"{TOPIC}/0@4"
VALUES = [SMALL, GIANT, None, SMALL]


def lake_of(root: Path, most: int = MOST) -> SmallLake:
    """Offsets 0 to 2 small, 3 small, 4 the giant, 5 a tombstone, 6 small."""
    lake = SmallLake(root, kinds.V1, kinds.V2, batch={"max_record_bytes": most})
    lake.take(batch_of([SMALL, None, SMALL]))
    lake.take(batch_of(VALUES, first=3))
    return lake


def with_limit(lake: SmallLake, most: int) -> SmallLake:
    """The lake, under another limit from now on."""
    batch = lake.settings.batch.model_copy(update={"max_record_bytes": most})
    lake.settings = lake.settings.model_copy(update={"batch": batch})
    return lake


def columns(lake: SmallLake, name: str) -> list[str]:
    return list(pa.schema(DeltaTable(str(lake.lake.path(name))).schema().to_arrow()).names)


def found(lake: SmallLake, **options: Any) -> set[tuple[str, str, str, str]]:
    verdict = lake.audit(**options)
    return {(w.kind, w.table.split("_")[0], w.what, w.why) for wrongs in verdict.named.values() for w in wrongs}


@pytest.mark.parametrize("most", [1 << 40, MOST])
def test_the_lake_holds_it_by_size_and_hash(tmp_path: Path, most: int) -> None:
    lake = lake_of(tmp_path)
    lake.kafka.most = most
    check(lake, 4, gold=1)
    for name, rows in (("bronze_events", 7), ("quarantine_events", 1)):
        table = pl.read_delta(str(lake.lake.path(name)))
        kept = table.filter(pl.col(SIZE).is_not_null()).select("offset", "value", SIZE, DIGEST).rows()
        assert (len(table), kept) == (rows, [(4, None, len(GIANT), hashlib.sha256(GIANT).hexdigest())])


def test_tables_get_the_columns_with_the_first_such_record(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1, kinds.V2, batch={"max_record_bytes": MOST})
    lake.take(batch_of([SMALL, b"x"]))
    assert SIZE not in columns(lake, "bronze_events") + columns(lake, "quarantine_events")
    lake.take(batch_of([GIANT], first=2))
    lake.take(batch_of([SMALL, b"x"], first=3))
    for name in ("bronze_events", "quarantine_events"):
        assert columns(lake, name)[-2:] == [SIZE, DIGEST]
    assert not set(columns(lake, "silver_rummy_events")) & {SIZE, DIGEST}
    check(lake, 2, gold=1)
    folder, table = lake.lake.path("bronze_events"), lake.opened.units.committer.tables.get("bronze_events")
    assert table is not None
    paths = [path for path, _ in rewrite.live(table)]
    entry = rewrite.merge(LocalStorage(folder), ".", paths, pa.schema(table.schema().to_arrow()), "zstd")
    lake.opened.units.committer.tables.replace_files("bronze_events", [entry], paths)
    check(lake, 2, gold=1)


def test_the_limit_may_become_another_one(tmp_path: Path) -> None:
    """What was left out stays so, what landed whole stays whole; only whether it had to be left out is not proven."""
    lake = with_limit(lake_of(tmp_path / "raised"), 1 << 20)
    check(lake, 4, gold=1, values=1)
    lake = with_limit(lake_of(tmp_path / "lowered", 1 << 20), MOST)
    lake.kafka.most = MOST
    check(lake, 5, gold=1)


@pytest.mark.parametrize(
    ("table", "change", "why"),
    [
        ("bronze_events", {SIZE: "5"}, SIZE),
        ("bronze_events", {DIGEST: "'ff'"}, DIGEST),
        ("bronze_events", {"value": "X'00'"}, "value"),
        ("quarantine_events", {SIZE: "5"}, SIZE),
        ("quarantine_events", {DIGEST: "null"}, DIGEST),
        ("quarantine_events", {"cause": "'decode_payload'", "hop": "'decode'"}, "cause"),
        ("quarantine_events", {"cause": "'schema_unknown'", "hop": "'schema'"}, "cause"),
        (
            "quarantine_events",
            {"detail": f"'2010 bytes, the most is {1 << 20}'"},
            "value omitted, although it is within the limit that the row gives",
        ),
    ],
)
@pytest.mark.parametrize("kept", [1 << 40, MOST])
def test_each_change_is_named(tmp_path: Path, table: str, change: dict[str, str], why: str, kept: int) -> None:
    lake = lake_of(tmp_path)
    lake.kafka.most = kept
    DeltaTable(str(lake.lake.path(table))).update(change, predicate="offset = 4")
    assert ("altered", table.split("_")[0], AT, why) in found(lake)


@pytest.mark.parametrize(("kept", "why"), [(1 << 40, "value"), (MOST, SIZE)])
def test_a_giant_is_no_tombstone(tmp_path: Path, kept: int, why: str) -> None:
    lake = lake_of(tmp_path)
    lake.kafka.most = kept
    DeltaTable(str(lake.lake.path("bronze_events"))).update({DIGEST: "null", SIZE: "null"}, predicate="offset = 4")
    assert ("altered", "bronze", AT, why) in found(lake)


def test_a_small_record_that_was_left_out_is_named(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    own = {"value": "null", SIZE: str(len(SMALL)), DIGEST: f"'{hashlib.sha256(SMALL).hexdigest()}'"}
    DeltaTable(str(lake.lake.path("bronze_events"))).update(own, predicate="offset = 6")
    wrong = found(lake)
    assert ("misplaced", "silver", f"{TOPIC}/0@6", "belongs in quarantine_events: record_size") in wrong
    DeltaTable(str(lake.lake.path("silver_rummy_events"))).delete("_offset = 6")
    assert ("lost", "quarantine", f"{TOPIC}/0@6", "") in found(lake)


def test_a_tombstone_is_no_value_that_was_left_out(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    DeltaTable(str(lake.lake.path("bronze_events"))).update({SIZE: "1", DIGEST: "'ff'"}, predicate="offset = 5")
    assert ("altered", "bronze", f"{TOPIC}/0@5", SIZE) in found(lake)


def test_its_place_is_quarantine(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    DeltaTable(str(lake.lake.path("quarantine_events"))).delete("offset = 4")
    assert ("lost", "quarantine", AT, "") in found(lake)


def test_what_kafka_no_longer_has_is_compared_with_bronze(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    lake.kafka.first_kept = 7
    check(lake, 4, gold=1, records=7, offsets=7)
    DeltaTable(str(lake.lake.path("quarantine_events"))).update({SIZE: "5"}, predicate="offset = 4")
    assert ("altered", "quarantine", AT, SIZE) in found(lake)


def test_a_producer_knows_its_hash(tmp_path: Path) -> None:
    lake, lines = lake_of(tmp_path / "lake"), tmp_path / "acks"
    own = {"topic": TOPIC, "partition": 0, "offset": 4, "sha256": hashlib.sha256(GIANT).hexdigest()}
    lines.write_text(json.dumps(own) + "\n")
    assert lake.audit(acks=lines).faults() == {}
    lines.write_text(json.dumps(own | {"sha256": hashlib.sha256(SMALL).hexdigest()}) + "\n")
    assert ("altered", "bronze", AT, "differs from the record that the broker acknowledged") in found(lake, acks=lines)
