"""What a topic may carry besides events of one type in the usual frame, through the whole pass."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.model.catalog import Catalog, Decodable, DecodeOptions, SchemaKey
from spark_app.model.reports import Report
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf import framing
from spark_app.tables.route import By, Routing
from spark_app.units.worker import task
from tests.support.frames import batch_of, frame, headers_of
from tests.support.protos import PROTO3, catalog_of, compile_text, message_class, renamed
from tests.unit.units.test_task import places, plan_for, read_back

GUID = str(uuid.UUID(int=5))
SHOP = """package shop; message Placed { string country = 1; int64 total = 2; }
message Shipped { string country = 1; string total = 2; message Parcel { string country = 1; bytes id = 2; } }
message Beat {} message Twin { string COUNTRY = 1; string country = 2; }"""
ONE = compile_text(PROTO3 + SHOP, schema_id=1)
BY_GUID = compile_text(PROTO3 + SHOP, schema_id=GUID)
PLACED, SHIPPED, PARCEL, BEAT = (0,), (1,), (1, 0), (2,)


def shop(name: str, **fields: Any) -> bytes:
    message: bytes = message_class(ONE, f"shop.{name}")(**fields).SerializeToString()
    return message


def routing(
    admitted: Mapping[str, str], messages: Mapping[str, tuple[str, ...]], by: By = "field", field: str = "country"
) -> Routing:
    return Routing(field, admitted, frozenset(), True, by, messages)


GERMANY = routing({"de": "de"}, {"de": ("shop.Placed",)})


def run(folder: Path, batch: pa.RecordBatch, catalog: Catalog, **plan: Any) -> tuple[Report, dict[str, pa.Table]]:
    report = task.run(iter([batch]), plan_for(folder, **{"routing": GERMANY} | plan), catalog, "00000-0")
    return report, read_back(folder, report)


def test_schemas_named_by_guid_in_the_frame_or_in_a_header(tmp_path: Path) -> None:
    values = [frame(GUID, shop("Placed", country="de", total=1)), shop("Placed", country="de", total=2), b"", None]
    headers = [None, *([[("trace", b"x"), (framing.VALUE_HEADER, frame(GUID, b""))]] * 3)]
    batch = batch_of(values, headers=headers_of(headers))
    report, tables = run(tmp_path, batch, catalog_of(BY_GUID))
    rows = tables["silver_de_events"].sort_by("_offset")
    assert rows.select(["total", "_schema_id", "_schema_guid", "_offset"]).to_pylist() == [
        {"total": 1, "_schema_id": None, "_schema_guid": GUID, "_offset": 0},
        {"total": 2, "_schema_id": None, "_schema_guid": GUID, "_offset": 1},
    ]
    assert tables["bronze_events"]["schema_guid"].to_pylist() == [GUID, GUID, GUID, None]
    assert (report.quarantine, report.tombstones) == ({"route_missing": 1}, 1)
    again, second = run(
        tmp_path / "again",
        tables["bronze_events"].combine_chunks().to_batches()[0],
        catalog_of(BY_GUID),
        write_bronze=False,
    )
    assert again.balance() == report.balance()
    assert second["silver_de_events"].equals(tables["silver_de_events"])


def test_a_guid_that_was_never_met_is_new_and_then_waits(tmp_path: Path) -> None:
    batch = batch_of([frame(GUID, b"x")] * 2)
    assert run(tmp_path / "a", batch, catalog_of(ONE))[0].new_ids == {GUID: 2}
    report, tables = run(tmp_path / "b", batch, catalog_of(ONE), defer_new=True)
    assert report.deferred == 2
    assert tables["deferred_events"]["waits_for"].to_pylist() == [GUID] * 2


def test_records_without_a_frame_have_the_schema_of_the_settings(tmp_path: Path) -> None:
    values = [
        shop("Placed", country="de", total=1),
        frame(1, shop("Placed", country="de", total=2)),
        b"",
        b"\0\0",
        b"{",
    ]
    report, tables = run(tmp_path, batch_of(values), catalog_of(ONE), unframed=(1, PLACED))
    assert sorted(tables["silver_de_events"]["total"].to_pylist()) == [1, 2]
    assert report.quarantine == {"route_missing": 1, "frame_short": 1, "decode_payload": 1}
    assert tables["bronze_events"]["schema_id"].to_pylist() == [1, 1, 1, None, 1]


def test_keys_are_decoded_beside_their_values(tmp_path: Path) -> None:
    keys = compile_text(PROTO3 + "message Key { int64 id = 1; message Part { bool b = 1; } }", schema_id=2)
    whole, part = message_class(keys, "Key"), message_class(keys, "Key.Part")
    value = frame(1, shop("Placed", country="de"))
    given = [
        frame(2, whole(id=5).SerializeToString()),
        frame(2, part(b=True).SerializeToString(), (0, 0)),
        frame(2, b"\xff"),
        frame(1, b"\xff"),
        b"plain",
        None,
        frame(7, b""),
        frame(2**31 + 1, b""),
    ]
    batch = batch_of([value] * len(given), key=pa.array(given, pa.binary()))
    report, tables = run(tmp_path, batch, catalog_of(ONE, keys), framed_keys=True, defer_new=True)
    rows = tables["silver_de_events"].sort_by("_offset")
    texts = [text and json.loads(text) for text in rows["_key"].to_pylist()]
    assert texts == [{"id": "5"}, {"b": True}, None, None, None, None, None]
    assert places(tables)["t", 0, 6] == "deferred_events"
    assert tables["deferred_events"]["waits_for"].to_pylist() == ["7"]
    assert tables["bronze_events"]["schema_id"].to_pylist() == [1] * 8
    assert report.balance() == (8, 8)
    assert "_key" not in run(tmp_path / "off", batch, catalog_of(ONE))[1]["silver_de_events"].column_names


def test_the_key_of_a_record_that_has_no_value_to_wait_makes_no_schema_known(tmp_path: Path) -> None:
    batch = batch_of([None, b"{"], key=pa.array([frame(7, b"")] * 2, pa.binary()))
    report, _ = run(tmp_path, batch, catalog_of(ONE), framed_keys=True)
    assert (report.new_ids, report.tombstones, report.quarantine) == ({}, 1, {"frame_magic": 1})


def test_message_types_have_tables_of_their_own_with_types_of_their_own(tmp_path: Path) -> None:
    values = [
        frame(1, shop("Placed", country="de", total=5), PLACED),
        frame(1, shop("Shipped", country="de", total="five"), SHIPPED),
        frame(1, message_class(ONE, "shop.Shipped.Parcel")(id=b"\1").SerializeToString(), PARCEL),
        frame(1, b"", BEAT),
        frame(1, b"\xff", BEAT),
    ]
    names = ["shop.Placed", "shop.Shipped", "shop.Shipped.Parcel", "shop.Beat"]
    admitted = {name: name.rpartition(".")[2].lower() for name in names}
    plan = {"routing": routing(admitted, {short: (name,) for name, short in admitted.items()}, "message")}
    report, tables = run(tmp_path, batch_of(values), catalog_of(ONE), **plan)
    assert tables["silver_placed_events"]["total"].to_pylist() == [5]
    assert tables["silver_shipped_events"]["total"].to_pylist() == ["five"]
    assert tables["silver_parcel_events"]["id"].to_pylist() == [b"\1"]
    assert tables["silver_beat_events"]["_offset"].to_pylist() == [3]
    assert report.quarantine == {"decode_payload": 1}
    unknown, _ = run(tmp_path / "new", batch_of(values), catalog_of(ONE), routing=routing({}, {}, "message"))
    assert unknown.new_values == {name: {name: 1} for name in names}


def test_a_message_type_without_a_good_record_has_no_table(tmp_path: Path) -> None:
    batch = batch_of([frame(1, b"\xff", BEAT)] * 2)
    report, _ = run(tmp_path, batch, catalog_of(ONE), routing=routing({}, {}, "message"))
    assert (report.new_values, report.quarantine) == ({}, {"decode_payload": 2})


def test_after_settling_a_value_or_message_type_that_is_still_new_waits(tmp_path: Path) -> None:
    values = [
        frame(1, shop("Placed", country="de"), PLACED),
        frame(1, shop("Shipped", country="de"), SHIPPED),
        frame(1, shop("Placed", country="fr"), PLACED),
    ]
    report, tables = run(tmp_path, batch_of(values), catalog_of(ONE), defer_new=True)
    assert (report.silver, report.deferred, report.new_values) == ({"de": 1}, 2, {})
    assert report.balance() == (3, 3)
    assert tables["deferred_events"]["waits_for"].to_pylist() == [None, None]


def test_message_types_in_one_table_share_its_columns(tmp_path: Path) -> None:
    """The first one's types count, or those that the table has already."""
    values = [
        frame(1, shop("Placed", country="de", total=5), PLACED),
        frame(1, shop("Shipped", country="de", total="7"), SHIPPED),
        frame(1, shop("Shipped", country="de", total="five"), SHIPPED),
    ]
    both = routing({"de": "de"}, {"de": ("shop.Placed", "shop.Shipped")})
    report, tables = run(tmp_path / "first", batch_of(values), catalog_of(ONE), routing=both)
    assert tables["silver_de_events"].schema.field("total").type == pa.int64()
    assert report.quarantine["decode_type"] == 2
    fixed = replace(both, fixed={"de": pa.schema([("total", pa.string()), ("_topic", pa.string())])})
    report, tables = run(tmp_path / "fixed", batch_of(values), catalog_of(ONE), routing=fixed)
    assert sorted(tables["silver_de_events"]["total"].to_pylist()) == ["5", "7", "five"]
    assert report.quarantine == {}


def test_a_message_type_whose_columns_would_clash_is_quarantined(tmp_path: Path) -> None:
    other = compile_text(PROTO3 + "package shop; message Odd { string country = 1; int64 TOTAL = 2; }", schema_id=2)
    odd = message_class(other, "shop.Odd")(country="de", TOTAL=1).SerializeToString()
    both = routing({"de": "de"}, {"de": ("shop.Placed", "shop.Odd")})
    values = [frame(1, shop("Placed", country="de", total=5)), frame(2, odd)]
    report, tables = run(tmp_path, batch_of(values), catalog_of(ONE, other), routing=both)
    assert (report.silver, report.quarantine) == ({"de": 1}, {"decode_type": 1})
    assert "only by case" in tables["quarantine_events"]["detail"][0].as_py()


OUTER = compile_text(
    PROTO3 + "message Outer { string game = 1; int32 schema_id = 2; bytes payload = 3; string sent_by = 4; }",
    schema_id=10,
)
UNO = compile_text(PROTO3 + "message Uno { int64 score = 1; }", schema_id=11)
POKER = compile_text(PROTO3 + "message Poker { string score = 1; }", schema_id=12)
WRAPPED = {
    "wrapper": Wrapper("payload", "schema_id"),
    "routing": routing(
        {"uno": "uno", "poker": "poker"}, {"uno": ("Outer/Uno",), "poker": ("Outer/Poker",)}, field="game"
    ),
}


def wrap(game: str, schema_id: int, payload: bytes | None) -> bytes:
    outer = message_class(OUTER, "Outer")(game=game, schema_id=schema_id, sent_by="me")
    if payload is not None:
        outer.payload = payload
    return frame(10, outer.SerializeToString())


def inner(decodable: Decodable, name: str, **fields: Any) -> bytes:
    payload: bytes = message_class(decodable, name)(**fields).SerializeToString()
    return payload


def test_wrapped_events_land_by_their_own_schema(tmp_path: Path) -> None:
    values = [
        wrap("uno", 11, inner(UNO, "Uno", score=5)),
        wrap("poker", 12, inner(POKER, "Poker", score="full house")),
        wrap("uno", 0, frame(11, inner(UNO, "Uno", score=6))),
        wrap("uno", 11, b""),
        wrap("uno", 0, inner(UNO, "Uno", score=7)),
        wrap("uno", 11, b"\xff\xff"),
        wrap("uno", 99, inner(UNO, "Uno", score=8)),
        wrap("../x", 11, inner(UNO, "Uno", score=9)),
        frame(10, b"\xff"),
    ]
    report, tables = run(tmp_path, batch_of(values), catalog_of(OUTER, UNO, POKER), **WRAPPED, defer_new=True)
    uno = tables["silver_uno_events"].sort_by("_offset").to_pylist()
    assert [(row["score"], row["_schema_id"], row["_offset"]) for row in uno] == [(5, 11, 0), (6, 11, 2), (0, 11, 3)]
    assert [row["_wrapper"] for row in uno] == [{"game": "uno", "sent_by": "me"}] * 3
    assert tables["silver_poker_events"]["score"].to_pylist() == ["full house"]
    assert tables["bronze_events"]["schema_id"].to_pylist() == [10] * 9
    assert tables["deferred_events"]["waits_for"].to_pylist() == ["99"]
    due = {4: "frame_wrapper", 5: "decode_payload", 7: "route_name", 8: "decode_payload"}
    assert {identity[2]: place for identity, place in places(tables).items() if identity[2] in due} == due
    assert report.balance() == (9, 9)


def test_games_that_call_their_event_the_same_have_types_of_their_own(tmp_path: Path) -> None:
    """Their subjects know nothing of each other."""
    texts = ["int64 score = 1;", "string score = 1;", "int64 SCORE = 1;", "optional string note = 2; string score = 1;"]
    games = [compile_text(f"{PROTO3} message Event {{ {t} }}", schema_id=20 + n) for n, t in enumerate(texts)]
    catalog = catalog_of(OUTER, *games)
    types = [catalog.type_of(20 + n, "Event") for n in range(4)]
    assert types == ["Event", "Event#2", "Event#3", "Event#2"]
    names = ["chess", "go", "dice", "go"]
    messages = {name: (f"Outer/{kind}",) for name, kind in zip(names, types, strict=True)}
    plan = WRAPPED | {"routing": routing({name: name for name in names}, messages, field="game")}
    values = [wrap(name, 20 + n, b"") for n, name in enumerate(names)]
    report, tables = run(tmp_path, batch_of(values), catalog, **plan)
    assert report.quarantine == {}
    kinds = {name: tables[f"silver_{name}_events"].schema for name in names}
    assert [kinds[name].field("score").type for name in ("chess", "go")] == [pa.int64(), pa.string()]
    assert ("SCORE" in kinds["dice"].names, "note" in kinds["go"].names) == (True, True)


@pytest.mark.parametrize("defaults", [True, False])
def test_a_wrapped_event_may_be_empty(tmp_path: Path, defaults: bool) -> None:
    options = DecodeOptions(defaults=defaults)
    report, tables = run(tmp_path, batch_of([wrap("uno", 11, b"")]), catalog_of(OUTER, UNO), **WRAPPED, options=options)
    assert report.quarantine == {}
    assert tables["silver_uno_events"]["score"].to_pylist() == [0 if defaults else None]


def test_wrapped_schemas_that_were_never_met_are_new(tmp_path: Path) -> None:
    report, _ = run(tmp_path, batch_of([wrap("uno", 11, b"")] * 3), catalog_of(OUTER), **WRAPPED)
    assert (report.new_ids, report.balance()) == ({"11": 3}, (3, 0))


def test_a_wrappers_schema_id_beyond_all_ids_harms_no_other_record(tmp_path: Path) -> None:
    """Neither does it pass for a smaller one: both once had the same place in a sorted key."""
    text = "message Outer { string game = 1; int64 schema_id = 2; bytes payload = 3; string sent_by = 4; }"
    outer = compile_text(PROTO3 + text, schema_id=10)
    ids = [11 + 2**56, 11, 2**31, 2**63 - 1, -1]
    wrappers = [message_class(outer, "Outer")(game="uno", schema_id=i, payload=b"") for i in ids]
    values = [frame(10, wrapper.SerializeToString()) for wrapper in wrappers]
    report, tables = run(tmp_path, batch_of(values), catalog_of(outer, UNO), **WRAPPED)
    assert (report.silver, report.quarantine) == ({"uno": 1}, {"frame_wrapper": 4})
    assert tables["silver_uno_events"]["_offset"].to_pylist() == [1]


def test_versions_of_a_wrapper_may_differ_in_what_they_keep(tmp_path: Path) -> None:
    bare = compile_text(PROTO3 + "message Outer { int32 schema_id = 2; bytes payload = 3; }", schema_id=9)
    event = compile_text(PROTO3 + "message Event { string game = 1; }", schema_id=13)
    payload = inner(event, "Event", game="uno")
    first = frame(9, message_class(bare, "Outer")(schema_id=13, payload=payload).SerializeToString())
    plan = WRAPPED | {"routing": routing({"uno": "uno"}, {"uno": ("Outer/Event",)}, field="game")}
    batch = batch_of([first, wrap("uno", 13, payload)])
    _, tables = run(tmp_path, batch, catalog_of(bare, OUTER, event), **plan)
    kept = tables["silver_uno_events"].sort_by("_offset")["_wrapper"].to_pylist()
    assert kept == [None, {"game": "uno", "sent_by": "me"}]


def test_a_wrapped_message_without_fields_has_what_its_wrapper_says(tmp_path: Path) -> None:
    beat = compile_text(PROTO3 + "message Beat {}", schema_id=14)
    plan = WRAPPED | {"routing": routing({"uno": "uno"}, {"uno": ("Outer/Beat",)}, field="game")}
    _, tables = run(tmp_path, batch_of([wrap("uno", 14, b"")] * 2), catalog_of(OUTER, beat), **plan)
    assert tables["silver_uno_events"]["_wrapper"].to_pylist() == [{"game": "uno", "sent_by": "me"}] * 2


def test_wrapper_types_whose_fields_would_clash_do_not_share_a_table(tmp_path: Path) -> None:
    text = "message Other { string GAME = 1; int32 schema_id = 2; bytes payload = 3; }"
    other = compile_text(PROTO3 + text, schema_id=20)
    both = routing({"Uno": "uno"}, {"uno": ("Outer/Uno", "Other/Uno")}, "message")
    wrapper = message_class(other, "Other")(GAME="uno", schema_id=11)
    values = [wrap("uno", 11, b""), frame(20, wrapper.SerializeToString())]
    report, tables = run(tmp_path, batch_of(values), catalog_of(OUTER, other, UNO), **WRAPPED | {"routing": both})
    assert (report.silver, report.quarantine) == ({"uno": 1}, {"decode_type": 1})
    assert tables["silver_uno_events"]["_wrapper"].to_pylist() == [{"game": "uno", "sent_by": "me"}]


def test_a_message_that_is_no_wrapper_is_quarantined(tmp_path: Path) -> None:
    values = [frame(11, inner(UNO, "Uno", score=5)), frame(1, b"", BEAT)]
    report, _ = run(tmp_path, batch_of(values), catalog_of(UNO, ONE), **WRAPPED)
    assert report.quarantine == {"frame_wrapper": 2}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("defaults", [True, False])
def test_decode_options_reach_the_decoder(tmp_path: Path, strict: bool, defaults: bool) -> None:
    values = [frame(1, shop("Placed", country="de")), frame(1, b"\xff")]
    options = DecodeOptions(strict, defaults)
    report, tables = run(tmp_path, batch_of(values), catalog_of(ONE), options=options)
    assert tables["silver_de_events"]["total"].to_pylist() == [0 if defaults else None]
    assert report.quarantine == {"decode_payload": 1}


SCORES = {
    kind: compile_text(f"{PROTO3} package x; message Event {{ {kind} score = 1; }}")
    for kind in ("int64", "string", "double")
}


@pytest.mark.nightly
def test_245_wrapped_games_have_a_table_and_a_schema_each(tmp_path: Path) -> None:
    games = [f"game{number}" for number in range(245)]
    schemas: dict[SchemaKey, Decodable] = {}
    values, tables, messages = [], {}, {}
    for number, game in enumerate(games, 100):
        kind = ("int64", "string", "double")[number % 3]
        schemas[number] = renamed(SCORES[kind], number, game)
        score: Any = {"int64": number, "string": str(number), "double": number / 2}[kind]
        values += [wrap(game, number, inner(schemas[number], f"{game}.Event", score=score))] * 2
        tables[game], messages[game] = game, (f"Outer/{game}.Event",)
    plan = WRAPPED | {"routing": routing(tables, messages, field="game")}
    report, found = run(tmp_path, batch_of(values), catalog_of(OUTER, *schemas.values()), **plan)
    assert report.silver == dict.fromkeys(games, 2)
    assert len(found) == 246
    assert [found[f"silver_{game}_events"]["score"][0].as_py() for game in games[:3]] == ["100", 50.5, 102]
