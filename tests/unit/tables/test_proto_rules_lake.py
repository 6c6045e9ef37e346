"""Rules in the .proto in whole lakes: what becomes of rows, which rules they meet, and that the audit agrees."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spark_app.app.text import outcome_lines
from spark_app.lake.lake import Lake
from spark_app.model.definitions import MAX_EXPECTATIONS, Expectation
from spark_app.model.errors import UsageError
from spark_app.recovery.backtest import backtest
from spark_app.settings.models import Settings
from spark_app.tables.definitions import number as number_rules
from spark_app.tables.expectations.in_force import MOST_NAMED, ExpectationsInForce
from spark_app.tables.expectations.proto_rules import find_rules
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.rule_cases import NESTED, quoted
from tests.support.rules import ENUM, FIELD, IMPORTS, fill
from tests.unit.audit.test_audit_expectations import discrepancies, faults
from tests.unit.tables.test_expectations import rows
from tests.unit.tables.test_pauses import PausableLake

UNO = "silver_uno_events"
HEAD = f"{PROTO3} {IMPORTS}"
BET = "string game_name = 1; string gamer_id = 2 [(buf.validate.field).string.min_len = 1];"
FIRST = compile_text(f"{HEAD} message Bet {{ {BET} int64 bet = 3 [{FIELD}.int64.gt = 0]; }}", schema_id=7)
LATER = compile_text(
    f"{HEAD} message Bet {{ {BET} int64 bet = 3 [{FIELD}.int64.gt = 10]; int64 most = 4 [{FIELD}.int64.gte = 1]; }}",
    schema_id=8,
)
PLAIN = compile_text(
    f"{PROTO3} message Bet {{ string game_name = 1; string gamer_id = 2; int64 bet = 3; }}", schema_id=9
)


def bet(decodable: Any, gamer: str, amount: int, **more: Any) -> bytes:
    kind = message_class(decodable, "Bet")
    return frame(decodable.key, kind(game_name="uno", gamer_id=gamer, bet=amount, **more).SerializeToString())


def lake_of(root: Path, action: str, *decodables: Any, **sections: Any) -> SmallLake:
    return SmallLake(root, *(decodables or (FIRST, LATER, PLAIN)), schemas={"proto_rules": action}, **sections)


SENT = [bet(FIRST, "a", 1), bet(FIRST, "", 1), bet(FIRST, "b", 0), bet(FIRST, "", 0), bet(PLAIN, "", -5)]


@pytest.mark.parametrize("action", ["off", "warn", "drop", "quarantine"])
def test_each_action(tmp_path: Path, action: str) -> None:
    lake = lake_of(tmp_path, action)
    report = lake.take(batch_of(SENT))
    kept = action in ("off", "warn")
    assert report.silver == {"uno": 5 if kept else 2}
    counted = {} if action == "off" else {"uno": {"proto.bet": [2, 2], "proto.gamer_id": [2, 2]}}
    assert report.expectations == counted
    assert faults(lake) == {}
    if action == "off":
        assert not lake.lake.storage.exists(Lake.definitions)
        return
    assert rows(lake, UNO, "_offset", "_definition")[0] == (0, 1)
    assert rows(lake, UNO, "_offset", "_definition")[-1] == (4, None)  # its schema has no rules
    if not kept:
        table = "dropped_events" if action == "drop" else "quarantine_events"
        assert rows(lake, table, "offset", "rules", "definition") == [
            (1, ["proto.gamer_id"], 1),
            (2, ["proto.bet"], 1),
            (3, ["proto.gamer_id", "proto.bet"], 1),
        ]


def test_each_row_meets_the_rules_of_its_own_schema_and_those_of_the_settings(tmp_path: Path) -> None:
    known = {"known": {"check": "gamer_id <> 'x'", "action": "drop"}}
    lake = lake_of(tmp_path, "quarantine", expectations=known)
    sent = [bet(FIRST, "a", 5), bet(LATER, "a", 5, most=1), bet(LATER, "a", 11, most=1), bet(LATER, "x", 11, most=1)]
    sent += [bet(LATER, "x", 11), bet(PLAIN, "x", 0), bet(PLAIN, "a", 0)]
    lake.take(batch_of(sent))
    definitions = rows(lake, UNO, "_offset", "_definition")
    assert [offset for offset, _ in definitions] == [0, 2, 6]
    assert len({number for _, number in definitions}) == 3
    assert rows(lake, "quarantine_events", "offset", "rules") == [(1, ["proto.bet"]), (4, ["known", "proto.most"])]
    assert rows(lake, "dropped_events", "offset", "rules") == [(3, ["known"]), (5, ["known"])]
    assert faults(lake) == {}
    again = ExpectationsInForce(lake.lake, lake.settings, lake.opened.resolver.ledger, lake.opened.admission)
    assert again.definitions == lake.opened.expectations.definitions  # of a process that starts later


def test_a_schema_that_arrives_later_brings_its_rules(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "drop", FIRST)
    lake.take(batch_of([bet(FIRST, "a", 5), bet(FIRST, "a", 0)]))
    lake.learn(LATER)
    lake.take(batch_of([bet(LATER, "a", 5, most=1), bet(LATER, "a", 11, most=1), bet(FIRST, "a", 5)], first=2))
    assert rows(lake, UNO, "_offset") == [(0,), (3,), (4,)]
    assert faults(lake) == {}


def test_other_settings_change_later_rows_alone(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "off")
    lake.take(batch_of([bet(FIRST, "", 0)]))
    for number, action in enumerate(("drop", "warn", "off", "drop"), 1):
        changed = lake.settings.model_copy(
            update={"schemas": lake.settings.schemas.model_copy(update={"proto_rules": action})}
        )
        lake.units._expectations = ExpectationsInForce(
            lake.lake, changed, lake.opened.resolver.ledger, lake.opened.admission
        )
        lake.take(batch_of([bet(FIRST, "", 0)], first=number))
    assert rows(lake, UNO, "_offset", "_definition") == [(0, None), (2, 3), (3, None)]
    assert rows(lake, "dropped_events", "offset", "definition") == [(1, 1), (4, 1)]
    assert faults(lake) == {}


def test_a_table_of_several_messages(tmp_path: Path) -> None:
    """Two of them are in one schema, so a row's schema does not say which rules it met."""
    text = f"""{HEAD} message Bet {{ {BET} int64 bet = 3 [{FIELD}.int64.gt = 0]; }}
        message Win {{ {BET} int64 bet = 3 [{FIELD}.int64.lt = 0]; string note = 4 [{FIELD}.string.max_len = 2]; }}"""
    schema = compile_text(text, schema_id=7)
    lake = lake_of(tmp_path, "drop", schema)

    def send(name: str, index: int, amount: int) -> bytes:
        value = message_class(schema, name)(game_name="uno", gamer_id="a", bet=amount)
        return frame(7, value.SerializeToString(), (index,))

    lake.take(batch_of([send("Bet", 0, 5), send("Bet", 0, -5), send("Win", 1, 5), send("Win", 1, -5)]))
    assert rows(lake, UNO, "_offset") == [(0,), (3,)]
    assert faults(lake) == {}
    found = backtest(lake.settings)
    assert (found.tables[UNO].expectations, found.tables[UNO].unclear) == ({}, 4)
    assert f"not checked by rules in the .proto: 4 rows of {UNO}, of unclear messages" in outcome_lines(found)


def test_the_type_of_a_column_does_not_matter(tmp_path: Path) -> None:
    """The message is judged, and not the row."""
    was = compile_text(
        f"{PROTO3} message Bet {{ string game_name = 1; string gamer_id = 2; string bet = 3; }}", schema_id=6
    )
    lake = lake_of(tmp_path, "drop", was, FIRST)
    text = message_class(was, "Bet")(game_name="uno", gamer_id="a", bet="x").SerializeToString()
    lake.take(batch_of([frame(6, text), bet(FIRST, "a", -5), bet(FIRST, "", 5)]))
    assert rows(lake, UNO, "_offset", "bet") == [(0, "x")]
    assert rows(lake, "dropped_events", "offset", "rules") == [(1, ["proto.bet"]), (2, ["proto.gamer_id"])]
    assert faults(lake) == {}


def test_wrapped_events(tmp_path: Path) -> None:
    outer = compile_text(
        f"{HEAD} message Outer {{ string game_name = 1 [{FIELD}.string.max_len = 1]; bytes payload = 2; }}", schema_id=5
    )
    lake = lake_of(tmp_path, "drop", outer, FIRST, wrapper={"payload": "payload"})
    kind = message_class(outer, "Outer")
    sent = [bet(FIRST, "a", 5), bet(FIRST, "a", -5)]
    wrapped = [frame(5, kind(game_name="uno", payload=value).SerializeToString()) for value in sent]
    lake.take(batch_of(wrapped))
    assert rows(lake, UNO, "_offset") == [(0,)]
    assert faults(lake) == {}


@pytest.mark.parametrize("defaults", [True, False])
@pytest.mark.parametrize("action", ["drop", "quarantine"])
def test_messages_in_messages(tmp_path: Path, action: str, defaults: bool) -> None:
    text = NESTED.replace("message M {", "message M { string game_name = 99 [(buf.validate.field).required = true];", 1)
    schema, dice = compile_text(f"{HEAD} {text} {ENUM}", schema_id=7), random.Random(3)
    kind, sent = message_class(schema, "M"), []
    for number in range(60):
        message = kind()
        if number % 3:
            fill(message, dice)
        else:
            message.group.l.append(1)
            message.w.value = 6
        message.game_name = "uno"
        sent.append(frame(7, message.SerializeToString()))
    lake = lake_of(tmp_path, action, schema, decode={"defaults": defaults}, event={"key": "game_name"})
    report = lake.take(batch_of(sent))
    assert report.dropped + sum(report.quarantine.values()) > 30
    assert discrepancies(lake) == []
    definition = lake.opened.expectations.definitions.by_origin["uno"][7, "M"]
    assert 50 < len(definition.expectations) <= MAX_EXPECTATIONS  # neighbours are joined


def test_a_pause_ends_when_a_person_decides(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, {}, schemas={"proto_rules": "pause"})
    lake.learn(FIRST, LATER, PLAIN)
    lake.send(bet(FIRST, "a", 1), bet(FIRST, "a", 0), bet(LATER, "a", 20, most=1))
    assert lake.opened.paused.pauses["uno"].rule == "proto.bet"
    assert faults(lake) == {}
    lake.send(bet(LATER, "b", 20, most=1), bet(PLAIN, "b", 0))
    assert lake.drain() == 0
    lake.resume("uno", "quarantine")
    assert lake.drain() == 1
    assert [offset for offset, *_ in rows(lake, UNO, "_offset")] == [0, 2, 3, 4]
    assert rows(lake, "quarantine_events", "offset", "rules") == [(1, ["proto.bet"])]
    assert (faults(lake), lake.opened.paused.pauses) == ({}, {})


def test_a_backtest_checks_each_row_by_its_schema(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "off")
    lake.take(batch_of([*SENT, bet(LATER, "a", 5, most=1), bet(LATER, "a", 50)]))
    on = lake.settings.model_copy(update={"schemas": lake.settings.schemas.model_copy(update={"proto_rules": "drop"})})
    found = backtest(on).to_json()["tables"][UNO]
    assert (found["silver"], found["rules"].keys()) == (7, {"proto.gamer_id", "proto.bet", "proto.most"})
    assert {name: (one["passed"], one["failed"]) for name, one in found["rules"].items()} == {
        "proto.gamer_id": (4, 2), "proto.bet": (3, 3), "proto.most": (1, 1)
    }  # fmt: skip
    assert list(backtest(on, ["proto.most"]).tables[UNO].expectations) == ["proto.most"]
    with pytest.raises(UsageError, match=r"did you mean proto\.most"):
        backtest(on, ["proto.mast"])
    assert not lake.lake.storage.exists(Lake.definitions)


HOSTILE = [
    "'); DROP TABLE x; --",
    "''",
    "\\",
    "\\x41",
    "\0",
    "\u202e",
    "{",
    "[" * 90,
    '"',
    "$$",
    "--",
    "/*",
    "é",
    "x" * 900,
]


@pytest.mark.parametrize("kind", ["const", "prefix", "suffix", "contains", "not_contains"])
def test_values_of_a_schema_are_never_sql(tmp_path: Path, kind: str) -> None:
    rules = [f"{{ignore: IGNORE_IF_ZERO_VALUE, string: {{{kind}: {quoted(value)}}}}}" for value in HOSTILE]
    fields = [f"string f{n} = {n + 5} [{FIELD} = {rule}];" for n, rule in enumerate(rules)]
    schema = compile_text(f"{HEAD} message Bet {{ string game_name = 1; {' '.join(fields)} }}", schema_id=7)
    lake = lake_of(tmp_path, "quarantine", schema, event={"key": "game_name"})
    values = {f"f{n}": value for n, value in enumerate(HOSTILE)}
    sent = [
        message_class(schema, "Bet")(game_name="uno", **one) for one in ({}, values, dict.fromkeys(values, "other"))
    ]
    report = lake.take(batch_of([frame(7, one.SerializeToString()) for one in sent]))
    good, bad = ([2], [1]) if kind == "not_contains" else ([1], [2])
    assert rows(lake, UNO, "_offset") == [(0,), *((one,) for one in good)]
    [(offset, failed)] = rows(lake, "quarantine_events", "offset", "rules")
    assert (offset, sorted(failed)) == (bad[0], sorted(f"proto.f{n}" for n in range(len(HOSTILE))))
    assert report.expectations["uno"].keys() == {f"proto.f{n}" for n in range(len(HOSTILE))}
    assert faults(lake) == {}


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(a{1000}){1000}", "[z-a]", "(?=a)", "\\1", "*"])
def test_a_pattern_that_is_none_is_named(tmp_path: Path, pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    schema = compile_text(
        f"{HEAD} message Bet {{ {BET} string note = 3 [{FIELD}.string.pattern = {quoted(pattern)}]; }}"
    )
    lake = lake_of(tmp_path, "drop", schema)
    value = message_class(schema, "Bet")(game_name="uno", gamer_id="a", note="x")
    report = lake.take(batch_of([frame(1, value.SerializeToString())]))
    assert report.expectations == {"uno": {"proto.gamer_id": [1, 0]}}
    said = "".join(capfd.readouterr())
    assert said.count("a rule in the .proto is not checked") == 1
    assert "field=note" in said


def test_a_pattern_takes_time_in_proportion_to_the_text(tmp_path: Path) -> None:
    schema = compile_text(f"{HEAD} message Bet {{ {BET} string note = 3 [{FIELD}.string.pattern = '^(a+)+$']; }}")
    lake = lake_of(tmp_path, "drop", schema)
    value = message_class(schema, "Bet")(game_name="uno", gamer_id="a", note="a" * 1_000_000 + "b")
    assert lake.take(batch_of([frame(1, value.SerializeToString())])).dropped == 1


@pytest.mark.nightly
def test_ten_thousand_rules(tmp_path: Path) -> None:
    rules = f"{FIELD}.int64 = {{gt: 1, lt: 900, not_in: [7], in: [5, 7, 8]}}, {FIELD}.required = true"
    fields = " ".join(f"int64 f{n} = {n + 10} [{rules}];" for n in range(1900))
    schema = compile_text(f"{HEAD} message Bet {{ string game_name = 1; {fields} }}", schema_id=7)
    lake = lake_of(tmp_path, "quarantine", schema, event={"key": "game_name"})
    kind, right = message_class(schema, "Bet"), {f"f{n}": 5 for n in range(1900)}
    sent = [kind(game_name="uno", **right), kind(game_name="uno", **(right | {"f0": 7, "f100": 2}))]
    lake.take(batch_of([frame(7, one.SerializeToString()) for one in sent]))
    assert rows(lake, UNO, "_offset") == [(0,)]
    [(names,)] = rows(lake, "quarantine_events", "rules")
    assert len(names) == 2
    assert names[0].startswith("proto.f0..f")
    found = find_rules(schema.descriptor_set, "Bet", MAX_EXPECTATIONS)
    assert len(found.checks) <= MAX_EXPECTATIONS
    assert {one.reason for one in found.left_out} <= {"the message has too many rules for one table"}
    assert faults(lake) == {}


def test_options_with_the_number_of_other_owners_are_no_rules(tmp_path: Path) -> None:
    own = """syntax = "proto2"; import "google/protobuf/descriptor.proto"; package o;
        extend google.protobuf.FieldOptions { optional string r = 1159; }"""
    fields = 'string game_name = 1; string gamer_id = 2 [(o.r) = "x"]; int64 bet = 3;'
    text = f'{PROTO3} import "own.proto"; message Bet {{ {fields} }}'
    lake = lake_of(tmp_path, "drop", compile_text(text, {"own.proto": own}, schema_id=7))
    assert lake.take(batch_of([bet(FIRST, "", 0)])).silver == {"uno": 1}


def test_unreadable_rules_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A registered file may call itself buf.validate, and give the number to something else."""
    own = """syntax = "proto2"; import "google/protobuf/descriptor.proto"; package buf.validate;
        extend google.protobuf.FieldOptions { optional string field = 1159; }"""
    fields = f'string game_name = 1; int64 bet = 3 [{FIELD} = "\\xc3\\xa9"];'
    text = f'{PROTO3} import "buf/validate/validate.proto"; message Bet {{ {fields} }}'
    lake = lake_of(tmp_path, "drop", compile_text(text, {"buf/validate/validate.proto": own}, schema_id=7))
    assert lake.take(batch_of([bet(FIRST, "", 0)])).silver == {"uno": 1}
    assert "its rules cannot be read" in "".join(capfd.readouterr())


def test_the_log_names_a_limited_number_of_rules_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fields = " ".join(
        f"google.protobuf.Timestamp f{n} = {n + 10} [{FIELD}.timestamp.lt_now = true];" for n in range(MOST_NAMED + 5)
    )
    lake = lake_of(
        tmp_path, "drop", compile_text(f"{HEAD} message Bet {{ {BET} int64 bet = 3; {fields} }}", schema_id=7)
    )
    for first in range(3):
        lake.take(batch_of([bet(FIRST, "a", 1)], first=first))
    said = "".join(capfd.readouterr())
    assert said.count("a rule in the .proto is not checked") == MOST_NAMED
    assert said.count("more rules in the .proto are not checked") == 1


@pytest.mark.parametrize("action", ["drop", "quarantine"])
def test_expressions_in_cel(tmp_path: Path, action: str) -> None:
    """A rule that ends in an error keeps its row out, and the error is the detail."""
    cel = """{id: 'fair', expression: '100 / this.bet > 1 ? "" : "too much"'}"""
    body = f"option (buf.validate.message).cel = {cel}; {BET} int64 bet = 3;"
    schema = compile_text(f"{HEAD} message Bet {{ {body} }}", schema_id=7)
    lake = lake_of(tmp_path, action, schema)
    report = lake.take(batch_of([bet(schema, "a", 5), bet(schema, "a", 80), bet(schema, "a", 0), bet(schema, "", 5)]))
    assert report.expectations == {"uno": {"proto.gamer_id": [2, 2], "proto.Bet": [2, 2]}}
    table = "quarantine_events" if action == "quarantine" else "dropped_events"
    both = ["proto.gamer_id", "proto.Bet"]
    assert rows(lake, table, "offset", "rules") == [(1, ["proto.Bet"]), (2, both), (3, ["proto.gamer_id"])]
    if action == "quarantine":
        details = dict(rows(lake, table, "offset", "detail"))
        assert details[1] == "fails proto.Bet"
        assert "divide by zero" in details[2]
    assert faults(lake) == {}
    found = backtest(lake.settings).tables[UNO].expectations
    assert {name: (one.checked, one.failed) for name, one in found.items()} == {
        "proto.gamer_id": (4, 2), "proto.Bet": (4, 2)
    }  # fmt: skip


def test_a_lake_with_translated_rules_goes_on(tmp_path: Path) -> None:
    """Before, a rule was an expression over columns: its rows stay as they were, and are proven by it."""
    lake = lake_of(tmp_path, "drop", FIRST)
    old = [
        Expectation("proto.gamer_id", '(length("gamer_id") >= 1)', "drop"),
        Expectation("proto.bet", '("bet" > 0)', "drop"),
    ]
    definition = number_rules(lake.lake, tuple(old))
    now = lake.opened.expectations._by_origin
    lake.opened.expectations._by_origin = {"uno": {(7, "Bet"): definition}}
    lake.opened.expectations.renew = lambda: lake.opened.expectations.definitions  # type: ignore[method-assign]
    lake.take(batch_of([bet(FIRST, "a", 5), bet(FIRST, "a", 0)]))
    lake.opened.expectations._by_origin = now
    lake.reopen()
    lake.take(batch_of([bet(FIRST, "a", 5), bet(FIRST, "a", 0)], first=2))
    assert len({one for _, one in rows(lake, UNO, "_offset", "_definition")}) == 2
    assert [one for (one,) in rows(lake, "dropped_events", "offset")] == [1, 3]
    assert faults(lake) == {}


def test_a_wrong_value_of_the_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="proto_rules"):
        Settings(schemas={"proto_rules": "on"})  # type: ignore[arg-type]


def test_rules_see_rows_as_they_were_sent(tmp_path: Path) -> None:
    silver = {"columns": {"gamer_id": "sha256(gamer_id)", "double_bet": "bet * 2"}, "drop": ["bet"]}
    lake = lake_of(tmp_path, "quarantine", silver=silver)
    lake.take(batch_of([*SENT, bet(LATER, "a", 50, most=1)]))
    assert [(offset, twice) for offset, twice in rows(lake, UNO, "_offset", "double_bet")] == [
        (0, 2),
        (4, -10),
        (5, 100),
    ]
    assert len({number for _, number in rows(lake, UNO, "_offset", "_definition")}) == 3
    assert [offset for offset, _ in rows(lake, "quarantine_events", "offset", "rules")] == [1, 2, 3]
    assert faults(lake) == {}
    found = backtest(lake.settings).tables[UNO]
    assert {name: (one.checked, one.failed) for name, one in found.expectations.items()} == {
        "proto.gamer_id": (5, 2), "proto.bet": (5, 2), "proto.most": (1, 0)
    }  # fmt: skip
