"""Columns of silver by expressions: what lands, and what the audit proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.app.text import outcome_lines
from spark_app.audit.check_silver import OTHER_KEY
from spark_app.lake.files.hmac_key import fingerprint_of
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.recovery.backtest import backtest
from tests.support.clear_text import places_of
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import (
    EVENTS,
    GROWN,
    KEY,
    MASKED,
    POKER,
    UNO,
    columns,
    event,
    faults,
    hashed,
    key_file,
    lake_of,
    rows,
)
from tests.support.protos import PROTO3, compile_text, message_class


def test_rows_get_the_columns_of_their_table(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(
        batch_of(
            [
                event("uno", "a", latency_ms=10, device_id="phone-1", ssn="1-2"),
                event("uno", "b", latency_ms=90),
                event("poker", "a", device_id="tablet", ssn="3-4"),
                event("uno", "a"),
            ]
        )
    )
    assert rows(lake, UNO, "_offset", "gamer_id", "device", "fast", "latency_ms") == [
        (0, hashed("a"), "phon***", True, 10),
        (1, hashed("b"), "***", False, 90),
        (3, hashed("a"), "***", None, None),
    ]
    assert rows(lake, POKER, "gamer_id", "device", "device_id") == [(hashed("a"), "tabl***", "tablet")]
    assert columns(lake, UNO)[:7] == ["game_name", "gamer_id", "latency_ms", "large", "home", "device", "fast"]
    assert not {"ssn", "fast"} & set(columns(lake, POKER))
    assert faults(lake) == {}


def test_other_engines_find_rows_by_projected_columns(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(batch_of([event("uno", str(n % 5), latency_ms=n) for n in range(100)]))
    path = str(lake.lake.path(UNO))
    frame = pl.scan_delta(path).filter((pl.col("gamer_id") == hashed("3")) & pl.col("fast")).collect()
    assert sorted(frame["latency_ms"]) == list(range(3, 50, 5))
    uno = DeltaTable(path).to_pyarrow_table()
    assert uno.num_rows == 100
    [(count,)] = duckdb.sql(f"SELECT count(*) FROM uno WHERE gamer_id = '{hashed('3')}' AND NOT fast").fetchall()
    assert count == 10


def test_every_row_is_proven_by_its_own_definition(tmp_path: Path) -> None:
    plain = SmallLake(tmp_path / "lake", EVENTS, GROWN)
    plain.take(batch_of([event("uno", "a", ssn="1", latency_ms=1)]))
    lakes: list[dict[str, Any]] = [MASKED, {"columns": {"gamer_id": "upper(gamer_id)"}}, {}, MASKED]
    for first, silver in enumerate(lakes, 1):
        lake = lake_of(tmp_path / "lake", silver)
        lake.ends, lake.kafka = plain.ends, plain.kafka
        lake.take(batch_of([event("uno", "a", ssn="1", latency_ms=1)], first=first))
    assert rows(lake, UNO, "gamer_id", "ssn", "fast", "_definition") == [
        ("a", "1", None, None),
        (hashed("a"), None, True, 1),
        ("A", "1", None, 2),
        ("a", "1", None, None),
        (hashed("a"), None, True, 1),
    ]
    assert faults(lake) == {}


def test_a_definition_has_the_fingerprint_of_the_key_alone(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(batch_of([event("uno", "a"), event("poker", "b")]))
    stored = read_durable(lake.lake.storage, Lake.definitions) or {}
    general = {"columns": MASKED["columns"], "drop": ["ssn"], "hmac_key": fingerprint_of(KEY), "rules": []}
    own = {**MASKED["columns"], "fast": "latency_ms < 50"}
    assert sorted(stored.values(), key=lambda one: len(one["drop"])) == [
        general, general | {"columns": own, "drop": ["device_id", "ssn"]},
    ]  # fmt: skip
    assert KEY not in b"".join(path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file())


def test_a_new_version_of_the_message_goes_on(tmp_path: Path) -> None:
    silver = {"columns": {"place": "home", "land": "upper(country)"}, "drop": ["home"]}
    lake = lake_of(tmp_path / "lake", silver)
    lake.take(batch_of([event("uno", "a", home={"city": "x", "street": "y"})]))
    lake.take(batch_of([event("uno", "a", GROWN, home={"city": "x", "zip": "9"}, country="fr")], first=1))
    lake.take(batch_of([event("uno", "a", home={"city": "z"})], first=2))
    assert rows(lake, UNO, "place", "land") == [
        ({"city": "x", "street": "y", "zip": None}, None),
        ({"city": "x", "street": "", "zip": "9"}, "FR"),
        ({"city": "z", "street": "", "zip": None}, None),
    ]
    assert "home" not in columns(lake, UNO)
    assert faults(lake) == {}


def test_a_column_of_all_tables_is_left_out_where_nothing_is_there_for_it(tmp_path: Path) -> None:
    other = compile_text(PROTO3 + "message Deal { string game_name = 1; string hand = 2; }", schema_id=9)
    silver: dict[str, Any] = {
        "columns": {"gamer_id": "hmac(gamer_id)", "hand": "coalesce(device_id, '*')", "kind": "'deal'"}
    }
    silver["tables"] = {"deals": {"columns": {"pace": "latency_ms + 1"}}}
    silver |= {"hmac_key_file": key_file(tmp_path)}
    lake = SmallLake(tmp_path / "lake", EVENTS, other, silver=silver)
    deal = message_class(other, "Deal")(game_name="deals", hand="ace")
    lake.take(batch_of([frame(9, deal.SerializeToString()), event("uno", "a", device_id="d")]))
    lake.units.check_expectations()
    assert not {"gamer_id"} & set(columns(lake, "silver_deals_events"))
    assert rows(lake, "silver_deals_events", "hand", "kind", "pace") == [("*", "deal", None)]  # never in clear text
    assert rows(lake, UNO, "gamer_id", "hand", "kind") == [(hashed("a"), "d", "deal")]
    assert faults(lake) == {}


def test_expectations_see_the_row_as_it_was_sent(tmp_path: Path) -> None:
    rules = {
        "known": {"check": "gamer_id IN ('a', 'b')", "action": "quarantine"},
        "phone": {"check": "device_id LIKE 'phone%'", "action": "warn", "tables": ["uno"]},
        "numbered": {"check": "ssn <> ''", "action": "drop"},
    }
    lake = lake_of(tmp_path / "lake", expectations=rules)
    report = lake.take(
        batch_of([event("uno", "a", ssn="1", device_id="phone"), event("uno", "c", ssn="1"), event("uno", "b")])
    )
    assert rows(lake, UNO, "_offset", "gamer_id") == [(0, hashed("a"))]
    assert (report.quarantine, report.dropped) == ({"expect_failed": 1}, 1)
    assert faults(lake) == {}


def test_expressions_do_not_see_each_other(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"device_id": "ssn", "ssn": "device_id", "both": "device_id || ssn"}})
    lake.take(batch_of([event("uno", "a", device_id="D", ssn="S")]))
    assert rows(lake, UNO, "device_id", "ssn", "both") == [("S", "D", "DS")]
    assert faults(lake) == {}


def test_case_does_not_count_in_names(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"GAMER_ID": "upper(Gamer_Id)"}, "drop": ["SSN"]})
    lake.take(batch_of([event("uno", "a", ssn="1")]))
    assert rows(lake, UNO, "GAMER_ID") == [("A",)]
    assert not {"gamer_id", "ssn"} & set(columns(lake, UNO))
    assert faults(lake) == {}


def test_another_key_makes_another_definition_and_is_not_proven(tmp_path: Path) -> None:
    first = lake_of(tmp_path / "lake")
    first.take(batch_of([event("uno", "a")]))
    second = lake_of(tmp_path / "lake", key=b"another key of at least 16 bytes")
    second.ends, second.kafka = first.ends, first.kafka
    second.take(batch_of([event("uno", "a")], first=1))
    second.take(batch_of([event("uno", "a")], first=2))
    [(one, _), (two, _), (three, _)] = rows(second, UNO, "_definition", "_offset")
    assert two == three != one
    verdict = second.audit()
    assert faults(second) == {}
    assert verdict.notes[OTHER_KEY] == 1


def test_a_key_that_changes_while_the_app_runs_is_in_force_at_once(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(batch_of([event("uno", "a")]))
    other = b"another key of at least 16 bytes"
    key_file(tmp_path / "secrets", other)
    lake.take(batch_of([event("uno", "a")], first=1))
    assert rows(lake, UNO, "gamer_id", "_definition") == [(hashed("a"), 1), (hashed("a", other), 2)]
    assert faults(lake) == {}


DAMAGES: dict[str, tuple[str, Any]] = {
    "clear text instead of a hash": ("gamer_id", pa.array(["a"])),
    "another mask": ("device", pa.array(["phone***"])),
    "no value": ("fast", pa.nulls(1, pa.bool_())),
    "a dropped column": ("ssn", pa.array(["1-2"])),
    "no definition": ("_definition", pa.nulls(1, pa.int64())),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_audit_finds_a_damaged_column(tmp_path: Path, damage: str) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.take(batch_of([event("uno", "a", latency_ms=10, device_id="phone-1", ssn="1-2")]))
    path = str(lake.lake.path(UNO))
    name, values = DAMAGES[damage]
    table = DeltaTable(path).to_pyarrow_table()
    table = table.drop_columns([name] if name in table.column_names else []).append_column(name, values)
    write_deltalake(path, table, mode="overwrite", schema_mode="overwrite")
    assert faults(lake) == {("altered", UNO): 1}


def test_the_audit_finds_a_row_that_an_expectation_keeps_out(tmp_path: Path) -> None:
    rules = {"known": {"check": "gamer_id <> 'a'", "action": "quarantine"}}
    lake = lake_of(tmp_path / "lake", expectations=rules)
    lake.take(batch_of([event("uno", "b")]))
    file = lake.lake.storage.get(Lake.definitions)
    lake.lake.storage.replace(Lake.definitions, file.replace(b"gamer_id <> 'a'", b"gamer_id <> 'b'"))
    assert faults(lake) == {("misplaced", UNO): 1}


def test_a_backtest_decodes_rows_whose_columns_silver_has_changed(tmp_path: Path) -> None:
    rules = {
        "known": {"check": "gamer_id <> 'a'", "action": "warn"},
        "quick": {"check": "latency_ms < 5", "action": "warn"},
    }
    lake = lake_of(tmp_path / "lake", expectations=rules)
    lake.take(
        batch_of([event("uno", "ab"[n % 2], latency_ms=n) for n in range(10)] + [event("poker", "a", latency_ms=1)])
    )
    outcomes = backtest(lake.settings)
    uno, poker = outcomes.tables[UNO], outcomes.tables[POKER]
    assert (uno.silver, uno.bronze, uno.expectations["known"].failed, uno.expectations["quick"].failed) == (10, 0, 5, 5)
    assert (poker.silver, poker.expectations["known"].failed, uno.changed) == (1, 1, ["gamer_id"])
    only = backtest(lake.settings, ["quick"]).tables[UNO]
    assert (only.silver, only.expectations["quick"].failed, only.changed) == (10, 5, [])
    assert outcomes.to_json()["tables"][UNO]["changed"] == ["gamer_id"]
    assert any("decoded from bronze: silver changes gamer_id" in line for line in outcome_lines(outcomes))


def test_rows_of_several_message_types_keep_their_columns(tmp_path: Path) -> None:
    other = compile_text(
        PROTO3 + "message Deal { string game_name = 1; string gamer_id = 2; string device_id = 3; int64 pot = 4; }",
        schema_id=9,
    )
    silver = {"hmac_key_file": key_file(tmp_path)} | MASKED
    message = message_class(other, "Deal")(game_name="uno", gamer_id="z", device_id="q", pot=4)
    sent = [event("uno", "a", device_id="phone", ssn="1"), frame(9, message.SerializeToString())]
    before = lake = SmallLake(tmp_path / "lake", EVENTS, other, silver=silver)
    lake.take(batch_of(sent))
    for first in (2, 4):
        lake = SmallLake(tmp_path / "lake", EVENTS, other, silver=silver)
        lake.ends, lake.kafka = before.ends, before.kafka
        lake.take(batch_of(sent, first=first))
    pair = [(hashed("a"), "phon***", None), (hashed("z"), "q***", 4)]
    assert rows(lake, UNO, "gamer_id", "device", "pot") == pair * 3
    assert faults(lake) == {}


def test_a_column_of_a_former_projection_keeps_its_type(tmp_path: Path) -> None:
    """Without the projection, a message field of that name that does not fit is quarantined, as after any change."""
    lake = lake_of(tmp_path / "lake", {"columns": {"country": "latency_ms"}})
    lake.take(batch_of([event("uno", "a", latency_ms=5)]))
    later = SmallLake(tmp_path / "lake", EVENTS)
    later.ends, later.kafka = lake.ends, lake.kafka
    later.take(batch_of([event("uno", "a")], first=1))
    later.learn(GROWN)
    report = later.take(batch_of([event("uno", "a", GROWN, country="fr"), event("uno", "a")], first=2))
    assert (report.quarantine, report.silver) == ({"decode_type": 1}, {"uno": 1})
    assert rows(later, UNO, "country") == [(5,), (None,), (None,)]


def test_an_expression_that_later_has_no_type_leaves_null(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`x` is a number in another message while the table lacks it, and then a text in the table's own."""
    numbers = compile_text(PROTO3 + "message Other { string game_name = 1; int64 x = 2; }", schema_id=9)
    fields = "string game_name = 1; string gamer_id = 2; repeated string x = 3;"
    texts = compile_text(f"{PROTO3} message Event {{ {fields} }}", schema_id=10)
    own = {"uno": {"columns": {"twice": "x + 1", "gamer_id": "left(gamer_id, 1) || repeat('*', x)"}}}
    lake = SmallLake(tmp_path / "lake", EVENTS, numbers, silver={"tables": own})
    lake.take(batch_of([event("uno", "abc")]))
    lake.units.check_expectations()
    lake.learn(texts)
    kind = message_class(texts, "Event")
    lake.take(batch_of([frame(10, kind(game_name="uno", gamer_id="abc", x=["q"]).SerializeToString())], first=1))
    assert rows(lake, UNO, "twice", "gamer_id", "_definition") == [(None, None, 1), (None, None, 2)]
    said = capfd.readouterr().err
    assert "a column of silver is NULL from now on" in said
    assert "column=twice" in said
    assert faults(lake) == {}
    with pytest.raises(ConfigurationError, match=r"silver\.tables\.uno\.columns\."):
        lake.units.check_expectations()


def test_a_column_can_be_hidden_before_its_first_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    silver = {"drop": ["Country"]}
    lake = SmallLake(tmp_path / "lake", EVENTS, silver=silver)
    lake.units.check_expectations()
    lake.take(batch_of([event("uno", "a")]))
    lake.units.check_expectations()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "in no schema yet" in line]
    assert 'setting=silver.drop reason="no column has the name Country' in line
    before, lake = lake, SmallLake(tmp_path / "lake", EVENTS, GROWN, silver=silver)
    lake.ends, lake.kafka = before.ends, before.kafka
    lake.units.check_expectations()
    lake.take(batch_of([event("uno", "b", GROWN, country="DE")], first=1))
    assert "no column has" not in capfd.readouterr().err
    assert "picture" in columns(lake, UNO)
    assert "country" not in columns(lake, UNO)
    assert faults(lake) == {}


def test_a_table_without_projections_gets_no_definition(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS, silver={"tables": {"uno": {"drop": ["ssn"]}}})
    lake.take(batch_of([event("uno", "a"), event("poker", "a", ssn="1")]))
    assert "_definition" not in columns(lake, POKER)
    assert rows(lake, POKER, "ssn") == [("1",)]
    assert faults(lake) == {}


def test_keys_and_wrappers_are_hidden_too(tmp_path: Path) -> None:
    silver = {"columns": {"_key": "hmac(_key)", "sender": "hmac(_wrapper.sent_by)"}, "drop": ["_wrapper", "ssn"]}
    silver |= {"hmac_key_file": key_file(tmp_path)}
    outer = compile_text(
        PROTO3 + "message Outer { bytes payload = 1; string sent_by = 2; string game_name = 3; }", schema_id=10
    )
    sections: dict[str, Any] = {"wrapper": {"payload": "payload"}, "decode": {"framed_keys": True}, "silver": silver}
    lake = SmallLake(tmp_path / "lake", EVENTS, outer, **sections)
    kind = message_class(outer, "Outer")
    sent = [kind(payload=event("uno", gamer), sent_by="me", game_name="uno").SerializeToString() for gamer in "ab"]
    keys = pa.array([event("uno", "the key"), None], pa.binary())
    lake.take(batch_of([frame(10, one) for one in sent], key=keys))
    lake.units.check_expectations()
    assert rows(lake, UNO, "gamer_id", "sender") == [("a", hashed("me")), ("b", hashed("me"))]
    [(first,), (second,)] = rows(lake, UNO, "_key")
    assert (len(first), second) == (64, None)
    assert "_wrapper" not in columns(lake, UNO)
    assert faults(lake) == {}
    assert places_of(tmp_path / "lake", "the key") == set()
