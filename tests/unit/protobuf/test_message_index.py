"""Messages behind a map have two indexes, one to each kind of writer: which the lake takes is a rule, never a guess.

`cases/message_indexes.json` has what Confluent's serializers wrote, and what the registry then answers.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from spark_app.audit.verdict import MISPLACED
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Decodable, DecodeOptions, Form, Numbering
from spark_app.model.causes import Cause
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.decode import decoder_for
from spark_app.protobuf.decode.decoder import why_none
from spark_app.protobuf.keys import read_keys
from spark_app.protobuf.schemas.descriptors import digest
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import Registry
from spark_app.protobuf.schemas.resolution import Resolved, resolve
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of, subjects_of
from spark_app.recovery import doctor
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Settings
from spark_app.tables.fixed_settings import check_fixed_settings, numbering_of, record_numbering
from tests.chaos.units import open_lake
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import CAPS, PROTO3, catalog_of, compile_text, message_class

CASES = {
    case["writer"]: case for case in json.loads((Path(__file__).parents[2] / "cases/message_indexes.json").read_text())
}
RULE_OF: dict[str, Numbering] = {
    "Java": "registered",
    "Java, normalize.schemas": "registered",
    "Java, use.latest.version": "registered",
    "Python": "registered",
    "Python, normalize.schemas": "descriptor",
    "JavaScript": "without_map_entries",
}
PLACED, CANCELLED = "shop.Order.Placed", "shop.Order.Cancelled"
MAPS = CASES["Java, normalize.schemas"]["text"]
BY_MESSAGE = {"event": {"route_by": "message"}}


def registry(answers: Answers, **settings: Any) -> Registry:
    return Registry(RegistrySettings(url=answers.url, **settings), CAPS)


def confluent(answers: Answers, writer: str, schema_id: int = 1) -> None:
    """Answers as Confluent's registry does, in either form."""
    case, path = CASES[writer], f"/schemas/ids/{schema_id}"
    answers[path] = (200, {"schemaType": "PROTOBUF", "schema": case["text"]})
    answers[f"{path}?format=serialized"] = (200, {"schemaType": "PROTOBUF", "schema": case["serialized"]})


def decodable(resolved: Resolved, numbering: Numbering | None) -> Decodable:
    return Decodable(1, resolved.descriptor_set, digest(resolved.descriptor_set), resolved.form, numbering)


def orders(form: Form | None, numbering: Numbering | None, text: str = MAPS) -> Decodable:
    return replace(compile_text(text), form=form, numbering=numbering)


def message(schema: Decodable, *index: int) -> str | None:
    decoder = decoder_for(schema, index)
    return decoder and decoder.full_name


def lake_of(root: Path, writer: str, answers: Answers, rule: str, **decode: Any) -> SmallLake:
    """A lake with that rule, which has met the writer's schema."""
    confluent(answers, writer)
    decode = {"message_index": rule} | decode
    return SmallLake(root, decodable(resolve(registry(answers), 1, CAPS), None), **BY_MESSAGE, decode=decode)


def landed(lake: SmallLake, table: str) -> list[dict[str, Any]]:
    rows = pl.read_delta(str(lake.lake.path(table))) if lake.lake.path(table).exists() else pl.DataFrame()
    return rows.drop([name for name in rows.columns if name[0] == "_" and name != "_offset"]).to_dicts()


def quarantined(lake: SmallLake) -> list[tuple[int, str, str]]:
    if not lake.lake.path("quarantine_events").exists():
        return []
    return sorted(pl.read_delta(str(lake.lake.path("quarantine_events"))).select("offset", "cause", "detail").rows())


@pytest.mark.parametrize("form", ["text", "serialized"])
@pytest.mark.parametrize("writer", CASES)
def test_each_message_of_each_writer_lands_in_its_own_table(
    answers: Answers, tmp_path: Path, writer: str, form: str
) -> None:
    confluent(answers, writer)
    resolved = resolve(registry(answers, format=form), 1, CAPS)
    decode = {"message_index": RULE_OF[writer]}
    lake = SmallLake(tmp_path, decodable(resolved, None), **BY_MESSAGE, decode=decode)
    lake.take(batch_of([bytes.fromhex(CASES[writer]["values"][name]) for name in (PLACED, CANCELLED)]))
    event = {"game_name": "uno", "gamer_id": "g1", "amount": 5}
    assert landed(lake, "silver_placed_events") == [event | {"_offset": 0}]
    assert landed(lake, "silver_cancelled_events") == [event | {"reason": "late", "_offset": 1}]
    assert quarantined(lake) == []
    assert lake.audit().faults() == {}


@pytest.mark.parametrize("writer", ["Java", "Java, normalize.schemas", "Python", "Python, normalize.schemas"])
def test_entries_count_where_the_schema_is_registered_as_a_descriptor(answers: Answers, writer: str) -> None:
    confluent(answers, writer)
    schema = decodable(resolve(registry(answers), 1, CAPS), "registered")
    assert schema.form == ("text" if "normalize" in writer else "descriptor")
    expected = [PLACED, CANCELLED, None] if schema.form == "text" else [None, PLACED, CANCELLED]
    assert [message(schema, 0, number) for number in range(3)] == expected


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("writer", ["JavaScript", "Python, normalize.schemas"])
def test_what_another_numbering_would_read_is_quarantined_and_names_the_setting(
    answers: Answers, tmp_path: Path, writer: str, strict: bool
) -> None:
    """JavaScript's Placed names the map entry, its Cancelled has a field that Placed lacks; Python's Cancelled names
    nothing, its Placed could be a Cancelled as well."""
    lake = lake_of(tmp_path, writer, answers, "", strict=strict)
    lake.take(batch_of([bytes.fromhex(CASES[writer]["values"][name]) for name in (PLACED, CANCELLED)]))
    found = quarantined(lake)
    assert [offset for offset, _, _ in found] == ([0, 1] if writer == "JavaScript" else [1])
    assert {cause for _, cause, _ in found} == {"schema_index"}
    assert all('decode.message_index is "registered"' in detail for _, _, detail in found)
    assert landed(lake, "silver_placed_events") == []
    assert lake.audit().faults() == {}


PROTO2 = (
    MAPS.replace("proto3", "proto2").replace("string g", "optional string g").replace("int64 a", "optional int64 a")
)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("text", [MAPS, PROTO2.replace("string r", "optional string r")], ids=["fast", "slow"])
def test_only_payloads_that_the_other_message_explains_better_are_doubted(text: str, strict: bool) -> None:
    """[0, 1] is Cancelled by its text, Placed to who counts the entry, and the other way round."""
    schema = orders("descriptor", "registered", text)
    assert message(schema, 0, 1) == PLACED
    kinds = {name: message_class(schema, name) for name in (PLACED, CANCELLED)}
    payloads = [
        kinds[PLACED](game_name="uno", amount=1).SerializeToString(),
        kinds[CANCELLED](game_name="uno", reason="late").SerializeToString(),
        b"\x0a\x05",  # torn: neither reads it
        kinds[PLACED](amount=2).SerializeToString() + b"\x4a\x01x",  # a field that neither has
        b"",
    ] * 300
    decoder = decoder_for(schema, (0, 1), DecodeOptions(strict=strict))
    assert decoder is not None
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    causes = {row: cause for row, cause, _ in decoded.rejects}
    expected = [None, Cause.SCHEMA_INDEX, Cause.DECODE_PAYLOAD, None, None] * 300
    assert [causes.get(row) for row in range(len(payloads))] == expected
    assert decoded.rows.tolist() == [row for row, cause in enumerate(expected) if cause is None]
    assert decoded.table["amount"].to_pylist()[:3] in ([1, 2, 0], [1, 2, None])


def test_what_the_configured_message_refuses_and_another_reads_is_doubted() -> None:
    text = MAPS.replace("string reason = 4", "string reason = 4; int32 code = 5").replace(
        "int64 amount = 3; }\n", "int64 amount = 3; string code = 5; }\n"
    )
    schema = orders("descriptor", "registered", text)
    payload = message_class(schema, CANCELLED)(code=7).SerializeToString()
    decoder = decoder_for(schema, (0, 1))
    assert decoder is not None
    assert decoder.full_name == PLACED
    assert [cause for _, cause, _ in decoder.decode(pa.array([payload], pa.binary())).rejects] == [Cause.SCHEMA_INDEX]


def test_messages_that_have_one_index_are_not_looked_at_twice() -> None:
    for text in (PROTO3 + "message A { map<string, int64> m = 1; message B {} }", MAPS):
        decoder = decoder_for(orders("text", "registered", text), (0,))
        assert decoder is not None
        assert decoder._doubt is None
    before = MAPS.replace("map<string, int64> items = 1;", "").replace(
        "reason = 4; }\n", "reason = 4; }\nmap<int32, int32> m = 1;\n"
    )
    for number, name in enumerate((PLACED, CANCELLED)):
        decoder = decoder_for(orders(None, "registered", before), (0, number))
        assert decoder is not None
        assert decoder.full_name == name
        assert decoder._doubt is None


def test_a_form_that_is_not_known_is_no_guess() -> None:
    schema = orders(None, "registered")
    assert [message(schema, 0, number) for number in range(3)] == [None, None, None]
    assert "the form in which the schema was registered is unknown" in why_none(schema, (0, 1))
    assert message(schema, 0) == "shop.Order"


def test_deeper_messages_follow_the_numbering_at_each_level() -> None:
    text = PROTO3 + (
        "message A { map<string, B> m = 1; message B { map<int32, int32> n = 1; message C { int32 x = 1; } } }"
    )
    assert message(orders("text", "registered", text), 0, 0, 0) == "A.B.C"
    assert message(orders("text", "descriptor", text), 0, 1, 1) == "A.B.C"
    assert message(orders("descriptor", "without_map_entries", text), 0, 0, 0) == "A.B.C"


def test_a_key_of_another_message_is_no_key() -> None:
    schema = orders("descriptor", "registered")
    kinds = {name: message_class(schema, name) for name in (PLACED, CANCELLED)}
    keys = [
        frame(1, kinds[PLACED](amount=1).SerializeToString(), (0, 1)),
        frame(1, kinds[CANCELLED](reason="x").SerializeToString(), (0, 1)),
    ]
    batch = batch_of([b"", b""], key=pa.array(keys, pa.binary()))
    assert [text and json.loads(text) for text in read_keys(batch, catalog_of(schema)).texts.to_pylist()] == [
        {"amount": "1"},
        None,
    ]


def test_a_bare_message_is_found_by_its_name_under_each_numbering(tmp_path: Path) -> None:
    for number, (numbering, expected) in enumerate({"registered": (0, 1), "descriptor": (0, 2)}.items()):
        ledger = Ledger(open_lake(tmp_path / str(number)), numbering)  # type: ignore[arg-type]
        ledger.add_decodable(1, orders("text", None).descriptor_set, 0.0, "text")
        assert ledger.index_of(1, CANCELLED) == expected
        assert message(ledger.catalog().decodable[1], *expected) == CANCELLED


# The rule of a lake


def settings_of(root: Path, rule: str = "") -> Settings:
    return Settings(lake={"path": str(root)}, decode={"message_index": rule})  # type: ignore[arg-type]


def old_lake(root: Path) -> Lake:
    """A lake as an earlier release left it: no rule, and a ledger that does not say how schemas were registered."""
    lake = SmallLake(root, replace(compile_text(MAPS), form=None), **BY_MESSAGE)
    kinds = {name: message_class(compile_text(MAPS), name) for name in (PLACED, CANCELLED)}
    path = lake.lake.path(lake.lake.state) / "rules.json"
    rules = json.loads(path.read_text())
    assert rules.pop("decode.message_index") == "registered"
    path.write_text(json.dumps(rules))
    ledger = lake.lake.path(lake.lake.schemas) / "ledger.json"
    entries = json.loads(ledger.read_text())
    assert [entry.pop("form") for entry in entries] == [None]
    ledger.write_text(json.dumps(entries))
    again = SmallLake(root, **BY_MESSAGE)
    values = [
        frame(1, kinds[PLACED](game_name="uno", gamer_id="g", amount=5).SerializeToString(), (0, 1)),
        frame(1, kinds[CANCELLED](game_name="uno", gamer_id="g", reason="x").SerializeToString(), (0, 2)),
        frame(1, kinds[CANCELLED](game_name="uno", gamer_id="g", reason="x").SerializeToString(), (0, 1)),
    ]
    again.take(batch_of(values))
    assert [row["_offset"] for row in landed(again, "silver_placed_events")] == [0, 2]
    assert [row["_offset"] for row in landed(again, "silver_cancelled_events")] == [1]
    assert again.audit().faults() == {}
    return again.lake


def test_an_existing_lake_goes_on_as_it_did(tmp_path: Path) -> None:
    """Entries count where protoc puts them, and nothing is doubted."""
    lake = old_lake(tmp_path)
    assert numbering_of(lake) is None
    assert "decode.message_index" not in json.loads((lake.path(lake.state) / "rules.json").read_text())


def test_doctor_names_the_schemas_of_an_existing_lake_that_a_numbering_is_about(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    found = [problem for problem in doctor.examine(lake, lake_settings(lake)) if "message indexes" in problem.what]
    assert [(problem.fatal, problem.what.endswith("in the schemas 1")) for problem in found] == [(False, True)]
    record_numbering(lake, settings_of(lake.root, "descriptor"))
    assert not [f for f in doctor.examine(lake, lake_settings(lake)) if "message indexes" in f.what]


def lake_settings(lake: Lake, rule: str = "") -> Settings:
    return Settings(
        lake={"path": str(lake.root)},  # type: ignore[arg-type]
        decode={"message_index": rule},  # type: ignore[arg-type]
        event={"route_by": "message"},  # type: ignore[arg-type]
        kafka={"brokers": "127.0.0.1:1"},  # type: ignore[arg-type]
    )


def test_audit_finds_rows_that_another_numbering_has_placed(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    entries = json.loads((lake.path(lake.schemas) / "ledger.json").read_text())
    (lake.path(lake.schemas) / "ledger.json").write_text(json.dumps([entry | {"form": "text"} for entry in entries]))
    again = SmallLake(lake.root, **BY_MESSAGE, decode={"message_index": "descriptor"})
    again.kafka.batches = [batch_of(read_values(lake))]
    verdict = again.audit()
    assert dict(verdict.counts) == {(MISPLACED, "silver_placed_events"): 1}
    assert [wrong.what for wrong in verdict.named[MISPLACED]] == ["t/0@2"]


def read_values(lake: Lake) -> list[bytes]:
    return pl.read_delta(str(lake.path("bronze_events"))).sort("offset")["value"].to_list()


@pytest.mark.parametrize("given", ["", "registered", "descriptor", "without_map_entries"])
def test_a_lake_keeps_its_numbering_whether_or_not_it_is_given_again(tmp_path: Path, given: str) -> None:
    lake = open_lake(tmp_path)
    check_fixed_settings(lake, settings_of(tmp_path, given))
    kept = given or "registered"
    for again in ("", kept):
        check_fixed_settings(lake, settings_of(tmp_path, again))
        assert record_numbering(lake, settings_of(tmp_path, again)) == kept
    other = "descriptor" if kept != "descriptor" else "registered"
    with pytest.raises(ConfigurationError, match=r"decode\.message_index.*doctor --repair"):
        check_fixed_settings(lake, settings_of(tmp_path, other))
    assert numbering_of(lake) == kept


def test_doctor_changes_the_numbering_on_purpose_only(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    record_numbering(lake, lake_settings(lake, "registered"))
    given = lake_settings(lake, "descriptor")
    [problem] = [found for found in doctor.examine(lake, given) if "decode.message_index" in found.what]
    assert numbering_of(lake) == "registered"
    assert problem.repair is not None
    assert "rules" in problem.repair()
    assert numbering_of(lake) == "descriptor"
    check_fixed_settings(lake, given)


def desk(answers: Answers, lake: Lake, numbering: Numbering) -> SchemaResolver:
    settings = Settings(registry=RegistrySettings(url=answers.url))
    registry = Registry(settings.registry, limits_of(settings.schemas))
    return SchemaResolver(Ledger(lake, numbering), registry, settings.schemas, subjects_of(settings))


@pytest.mark.parametrize("writer", ["Java", "Java, normalize.schemas"])
def test_a_lake_that_gets_a_numbering_fetches_how_its_schemas_were_registered(
    answers: Answers, tmp_path: Path, writer: str
) -> None:
    """Its ledger keeps the order, which decides about columns."""
    confluent(answers, writer)
    lake = open_lake(tmp_path)
    ledger = Ledger(lake, None)
    ledger.add_decodable(1, compile_text(MAPS).descriptor_set, 0.0)
    ledger.add_decodable(2, compile_text(PROTO3 + "message M { int32 x = 1; }").descriptor_set, 0.0)
    ledger.save()
    of_rule = desk(answers, lake, "registered")
    assert message(of_rule.ledger.catalog().decodable[1], 0, 1) is None
    of_rule.fetch_missing_forms()
    again = Ledger(lake, "registered")
    assert list(again.entries) == [1, 2]
    assert message(again.catalog().decodable[1], 0, 1) == (PLACED if writer == "Java" else CANCELLED)
    assert set(answers.asked) == {"/schemas/ids/1"}


def test_one_line_says_that_schemas_depend_on_their_writers(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confluent(answers, "Java")
    answers.schema(2, PROTO3 + "message A { map<string, int64> m = 1; }")
    answers.schema(3, MAPS)
    of_rule = desk(answers, open_lake(tmp_path), "registered")
    of_rule.resolve_new([1, 2, 3])
    lines = [line for line in capsys.readouterr().err.splitlines() if "depends on the writer" in line]
    assert len(lines) == 1
    assert "schema=1" in lines[0]
