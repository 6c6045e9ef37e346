"""Which columns of silver the settings may ask for, and which key `hmac()` takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.lake.files.hmac_key import fingerprint_of, read_key
from spark_app.model.errors import ConfigurationError
from spark_app.model.record_schemas import RESERVED
from spark_app.settings import config
from spark_app.settings.silver import KEPT
from spark_app.tables.sql.types import FLAT, null_of
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN, KEY, UNO, columns, event, faults, hashed, key_file, lake_of, rows
from tests.support.protos import PROTO3, compile_text, message_class


def load(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return config.load(file)


def test_the_columns_of_a_file(tmp_path: Path) -> None:
    text = """
[silver]
drop = ["ssn"]
hmac_key_file = "/run/secrets/hmac"
[silver.columns]
gamer_id = "hmac(gamer_id)"
[silver.tables.uno]
drop = ["device_id"]
[silver.tables.uno.columns]
fast = "latency_ms < 50"
"""
    silver = load(tmp_path, text).silver
    assert (silver.columns, silver.drop) == ({"gamer_id": "hmac(gamer_id)"}, ("ssn",))
    assert silver.tables["uno"].columns == {"fast": "latency_ms < 50"}
    assert silver.drops("uno") == ["device_id", "ssn"]


def test_what_names_a_record_stays() -> None:
    assert RESERVED - {"_key", "_wrapper"} == KEPT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[silver]\ndrop = ["_offset"]', "silver: Value error, _offset names a record, and stays"),
        ('[silver.columns]\n_Definition = "1"', "silver: Value error, _Definition names a record"),
        ('[silver.columns]\na = "1"\nA = "2"', "silver: Value error, A is there twice"),
        ('[silver]\ndrop = ["a"]\n[silver.columns]\na = "1"', "silver: Value error, a is there twice"),
        ('[silver]\ndrop = ["a b"]', "silver.drop.0: String should match"),
        ('[silver.columns]\n"a-b" = "1"', "silver.columns: String should match"),
        ('[silver.tables.uno]\ndrop = ["game_name"]', "silver.tables.uno.drop: game_name names the table"),
        ('[silver.columns]\nGame_Name = "upper(game_name)"', "silver.columns: game_name names the table"),
        ('[silver.tables.uno]\ncolumn = ["a"]', "silver.tables.uno.column: no such setting"),
        ("[silver.columns]\na = 1", "silver.columns.a: Input should be a valid string"),
    ],
)
def test_refused_by_the_file_alone(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    assert said in str(refused.value)


def test_the_routing_field_may_go_where_it_names_no_table(tmp_path: Path) -> None:
    text = '[event]\nroute_by = "message"\n[silver]\ndrop = ["game_name"]'
    assert load(tmp_path, text).silver.drop == ("game_name",)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"columns": {"x": "gamer"}}, "silver.columns.x: no column has the name gamer; did you mean gamer_id"),
    ({"columns": {"x": "(SELECT 1)"}}, "silver.columns.x: a subquery is not allowed"),
    ({"columns": {"x": "now()"}}, "silver.columns.x: now() does not always give the same"),
    ({"columns": {"x": "sum(latency_ms)"}}, "silver.columns.x: sum() is computed over many rows"),
    ({"columns": {"x": "getvariable('inner pad')"}}, "silver.columns.x: getvariable()"),
    ({"columns": {"x": "sha257(gamer_id)"}}, "silver.columns.x: there is no function sha257()"),
    ({"columns": {"x": "upper(latency_ms)"}}, "silver.columns.x: No function matches"),
    ({"columns": {"x": "hmac(home)"}}, "silver.columns.x: Macro hmac() does not support"),
    ({"columns": {"x": "hmac(latency_ms::DOUBLE)"}}, "silver.columns.x: Macro hmac() does not support"),
    ({"columns": {"x": "hmac()"}}, "silver.columns.x: "),
    ({"columns": {"x": "a.hmac(gamer_id)"}}, "silver.columns.x: hmac() has a dot before its name"),
    ({"columns": {"x": "NULL"}}, "silver.columns.x: has the type \"NULL\", which no column can have"),
    ({"columns": {"x": "INTERVAL 1 DAY"}}, "silver.columns.x: has the type INTERVAL"),
    ({"columns": {"x": "TIME '10:00'"}}, "silver.columns.x: has the type TIME"),
    ({"columns": {"x": "{'a b': 1}"}}, "silver.columns.x: has the type STRUCT"),
    ({"columns": {"x": "[]"}}, "silver.columns.x: has the type"),
    ({"tables": {"uno": {"columns": {"x": "row(1, 2)"}}}}, "silver.tables.uno.columns.x: has the type TUPLE"),
    ({"tables": {"other": {"columns": {"x": "upper(latency_ms)"}}}}, "silver.tables.other.columns.x: No function"),
    ({"columns": {"ssn": "latency_ms"}}, "silver.columns.ssn: is of the type int64, but the table uno has string"),
    ({"columns": {"SSN": "upper(ssn)"}}, "silver.columns.SSN: the table uno has the column as ssn, and case does not"),
]  # fmt: skip


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with rows as they were sent."""
    root = tmp_path_factory.mktemp("taken") / "lake"
    SmallLake(root, EVENTS, GROWN).take(batch_of([event("uno", "a")]))
    return root


@pytest.mark.parametrize(("silver", "said"), REFUSED)
def test_refused_by_the_columns_of_the_lake(taken: Path, silver: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        lake_of(taken, silver)
    assert said in str(refused.value)
    assert str(refused.value).count("\n") == 0
    assert len(str(refused.value)) < 300


def test_without_a_schema_only_the_expressions_are_checked(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", silver={"columns": {"x": "unknown"}, "drop": ["other"]})
    lake.units.check_expectations()
    worse = SmallLake(tmp_path / "worse", silver={"columns": {"x": "unknown +"}})
    with pytest.raises(ConfigurationError, match=r"silver\.columns\.x: is not one SQL expression"):
        worse.units.check_expectations()


def test_a_former_projection_of_another_type_is_named(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", {"columns": {"country": "latency_ms"}})
    lake.take(batch_of([event("uno", "a", latency_ms=5)]))
    with pytest.raises(ConfigurationError, match="country of uno is sent as string, but a projection of before"):
        lake_of(tmp_path / "lake", {})


KEYED = {"decode": {"framed_keys": True}}


@pytest.mark.parametrize(
    ("silver", "refused"),
    [
        ({"drop": ["ssn"]}, True),
        ({"columns": {"gamer_id": "hmac(gamer_id)"}}, True),
        ({"columns": {"fast": "latency_ms < 5"}}, False),
        ({"drop": ["ssn", "_key"]}, False),
        ({"drop": ["ssn"], "columns": {"_key": "hmac(_key)"}}, False),
        ({"drop": ["ssn"], "columns": {"_key": "_key"}}, False),
    ],
)
def test_decoded_keys_may_not_show_what_the_columns_hide(tmp_path: Path, silver: dict[str, Any], refused: bool) -> None:
    SmallLake(tmp_path / "lake", EVENTS, GROWN).take(batch_of([event("uno", "a")]))
    if refused:
        with pytest.raises(ConfigurationError, match=r"silver: uno hides \w+, but decode.framed_keys writes"):
            lake_of(tmp_path / "lake", silver, **KEYED)
    else:
        lake_of(tmp_path / "lake", silver, **KEYED)


def test_keys_are_dropped_from_a_new_table_that_hides(tmp_path: Path) -> None:
    """The first start without tables is refused by the messages that are known; later ones are only dropped."""
    silver = {"columns": {"gamer_id": "hmac(gamer_id)"}}
    with pytest.raises(ConfigurationError, match="silver: a table hides gamer_id, but"):
        SmallLake(
            tmp_path / "first", EVENTS, silver=silver | {"hmac_key_file": key_file(tmp_path)}, **KEYED
        ).units.check_expectations()
    keys = compile_text(PROTO3 + "message Key { string gamer_id = 1; }", schema_id=2)
    key = frame(2, message_class(keys, "Key")(gamer_id="SECRET").SerializeToString())
    lake = SmallLake(tmp_path / "lake", silver=silver | {"hmac_key_file": key_file(tmp_path)}, **KEYED)
    lake.units.check_expectations()
    lake.learn(EVENTS, keys)
    lake.take(batch_of([event("uno", "SECRET")], key=pa.array([key], pa.binary())))
    assert "_key" not in columns(lake, UNO)
    assert rows(lake, UNO, "gamer_id") == [(hashed("SECRET"),)]
    assert faults(lake) == {}


def test_a_key_is_the_content_of_a_file_without_one_newline(tmp_path: Path) -> None:
    assert read_key(key_file(tmp_path, KEY)) == KEY
    assert read_key(key_file(tmp_path, KEY + b"\n")) == KEY
    assert read_key(key_file(tmp_path, KEY + b"\n\n")) == KEY + b"\n"
    assert read_key(key_file(tmp_path, b"\xff" * 16)) == b"\xff" * 16


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_may_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path)
    os.chmod(path, mode)
    with pytest.raises(ConfigurationError, match=r"silver\.hmac_key_file: .* is open to other users; run chmod 600"):
        read_key(path)


def test_a_key_that_is_missing_or_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"silver\.hmac_key_file: cannot read .*No such file"):
        read_key(str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"silver\.hmac_key_file: cannot read .*directory"):
        read_key(str(tmp_path))
    with pytest.raises(ConfigurationError, match="has 15 bytes, and a key has at least 16"):
        read_key(key_file(tmp_path, b"0123456789abcde\n"))


def test_hmac_needs_the_setting(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS, silver={"columns": {"gamer_id": "hmac(gamer_id)"}})
    with pytest.raises(ConfigurationError, match=r"silver\.hmac_key_file: is empty, but an expression calls hmac"):
        lake.units.check_expectations()
    with pytest.raises(ConfigurationError, match=r"silver\.hmac_key_file"):
        lake.take(batch_of([event("uno", "a")]))
    assert not lake.lake.has_table("silver_uno_events")


def test_hmac_is_no_function_of_a_rule(tmp_path: Path) -> None:
    rules = {"hashed": {"check": "hmac(gamer_id) <> ''", "action": "warn"}}
    with pytest.raises(ConfigurationError, match=r"expectations\.hashed\.check: there is no function hmac\(\)"):
        lake_of(tmp_path / "lake", {}, expectations=rules)


def test_the_fingerprint_is_no_part_of_the_key() -> None:
    assert fingerprint_of(KEY) != fingerprint_of(KEY + b"x")
    assert len(fingerprint_of(KEY)) == 16


def test_each_type_has_a_null() -> None:
    assert {null_of(kind) for _, kind in FLAT.values()} == {f"CAST(NULL AS {sql})" for sql, _ in FLAT.values()}
