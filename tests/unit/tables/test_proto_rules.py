# ruff: noqa: E501
"""Rules in the .proto: which rule of the app a violation is, what is left out, and what an error of a rule does."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from spark_app.model.definitions import MAX_CHARACTERS
from spark_app.tables.expectations.proto_rules import LONGEST_TEXT, MOST_CEL, LeftOut, find_rules, judge_of
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.rule_cases import EDITIONS, NESTED, PROTO2
from tests.support.rules import ENUM, FIELD, IMPORTS, fill


def judged(text: str, *values: dict[str, Any]) -> list[set[str]]:
    """The rules that messages M with these values violate; no judgement ends in an error."""
    schema = compile_text(text)
    kind = message_class(schema, "M")
    found, errors = judge_of(schema.descriptor_set, "M").violations(
        [kind(**one).SerializePartialToString() for one in values]
    )
    assert errors == {}
    return [set(names) for names in found.to_pylist()]


def of(body: str, more: str = "") -> str:
    return f"{PROTO3} {IMPORTS} message M {{ {body} }} {more} {ENUM}"


@pytest.mark.parametrize(
    ("body", "value", "rules"),
    [
        (f"string a = 1 [{FIELD}.string.min_len = 1]; int32 b = 2 [{FIELD}.int32.gt = 3];", {"b": 4}, {"a"}),
        (f"string a = 1 [{FIELD}.string.uri = true];", {"a": "no uri"}, {"a"}),
        (f"int32 a = 1 [{FIELD}.required = true]; string b = 2 [{FIELD}.string.email = true];", {"b": "x"}, {"a", "b"}),
        (f"repeated int32 a = 1 [{FIELD}.repeated = {{max_items: 1, items: {{int32: {{gt: 1}}}}}}];", {"a": [1]}, {"a"}),
        (f"map<string, int32> a = 1 [{FIELD}.map.keys.string.min_len = 2];", {"a": {"x": 1}}, {"a"}),
        ("map<string, P> a = 1;", {"a": {"x": {"x": 1}}}, {"a.x"}),
        ("repeated P a = 1; P b = 2;", {"a": [{"x": 9}, {"x": 1}], "b": {"x": 1}}, {"a.x", "b.x"}),
        (f"P a = 1 [{FIELD}.required = true];", {}, {"a"}),
        (f"P a = 1 [{FIELD}.ignore = IGNORE_ALWAYS]; P b = 2;", {"a": {"x": 1}, "b": {"x": 9}}, set()),
        ("Q a = 1;", {"a": {"x": 1}}, {"a"}),
        ("M a = 1; P p = 2; M b = 3;", {"a": {"a": {"p": {"x": 1}}}, "b": {"p": {"x": 9}}}, {"a"}),
        ("oneof o { option (buf.validate.oneof).required = true; int32 a = 1; int32 b = 2; }", {}, {"o"}),
        ("option (buf.validate.message).oneof = {fields: ['a', 'b']}; int32 a = 1; int32 b = 2;", {"a": 1, "b": 1}, {"a,b"}),
        (f"int32 a = 1 [{FIELD}.cel = {{id: 'x', expression: 'this > 1'}}];", {"a": 1}, {"a"}),
        (f"int32 a = 1 [{FIELD}.cel_expression = 'this > 1'];", {"a": 2}, set()),
        ("option (buf.validate.message).cel_expression = 'this.a > this.b'; int32 a = 1; int32 b = 2;", {"b": 1}, {"M"}),
        (f"google.protobuf.Int32Value a = 1 [{FIELD}.int32.gt = 3];", {"a": {"value": 1}}, {"a"}),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.lt.nanos = 1];", {"a": {"nanos": 1}}, {"a"}),
        (f"repeated double a = 1 [{FIELD}.repeated.unique = true];", {"a": [1.0, 1.0]}, {"a"}),
    ],
)  # fmt: skip
def test_a_violation_has_the_name_of_its_path(body: str, value: dict[str, Any], rules: set[str]) -> None:
    more = f"message P {{ int32 x = 1 [{FIELD}.int32.gt = 5]; }}"
    more += " message Q { option (buf.validate.message).cel_expression = 'this.x > 5'; int32 x = 1; }"
    text = of(body, more)
    assert judged(text, value) == [{f"proto.{rule}" for rule in rules}]
    found = find_rules(compile_text(text).descriptor_set, "M", 62)
    assert {f"proto.{rule}" for rule in rules} <= {name for name, _ in found.checks}
    assert found.left_out == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{PROTO3} {IMPORTS} {NESTED} {ENUM}",
        f'syntax = "proto2"; {IMPORTS} {PROTO2}',
        f'edition = "2023"; {IMPORTS} {EDITIONS} {ENUM}',
    ],
    ids=["proto3", "proto2", "editions"],
)
def test_each_violation_of_random_messages_is_a_rule(text: str) -> None:
    schema, dice = compile_text(text), random.Random(7)
    kind, judge = message_class(schema, "M"), judge_of(schema.descriptor_set, "M")
    messages = [kind() for _ in range(100)]
    for message in messages[1:]:
        fill(message, dice)
    found, _ = judge.violations([message.SerializePartialToString() for message in messages])
    violated = set().union(*found.to_pylist())
    assert violated <= set(judge.names)
    assert len(violated) > len(judge.names) * 0.7


OTHER = f"string other = 9 [{FIELD}.string.min_len = 1];"


@pytest.mark.parametrize(
    ("body", "path", "rule", "reason"),
    [
        (f"int32 a = 1 [{FIELD}.cel = {{id: 'x', expression: 'this >'}}];", "a", "", "Syntax error"),
        (f"int32 a = 1 [{FIELD}.cel_expression = 'this > now'];", "a", "cel this > now", "time"),
        (f"int32 a = 1 [{FIELD}.cel_expression = '{'!' * LONGEST_TEXT}true'];", "a", "cel " + "!" * 96, "characters"),
        (f"repeated int32 a = 1 [{FIELD}.cel = {{id: 'x', expression: '{'this.all(x, ' * 3}true)))'}}];", "a", "cel x", "loops"),
        ("option (buf.validate.message).cel_expression = 'this.b > 1'; int32 a = 1;", "", "", "no_such_field"),
        ("option (buf.validate.message).oneof = {fields: ['b']}; int32 a = 1;", "", "", "not found"),
        (f"int32 a = 1 [{FIELD}.string.min_len = 1];", "a", "", "expected rule"),
        (f"repeated int32 a = 1 [{FIELD}.int32.gt = 1];", "a", "", "expected rule"),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.lt_now = true];", "a", "timestamp.lt_now", "time"),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.within.seconds = 1];", "a", "timestamp.within", "time"),
        (f"repeated google.protobuf.Timestamp a = 1 [{FIELD}.repeated.items.timestamp.gt_now = true];", "a", "timestamp.gt_now", "time"),
        (f"string a = 1 [{FIELD}.string.pattern = '{'a' * 1001}'];", "a", "string.pattern", "1000 characters"),
        (f"string a = 1 [{FIELD}.string.pattern = '{'(a?){9,500}' * 5}'];", "a", "string.pattern", "repeats"),
        (f"string a = 1 [{FIELD}.string.pattern = '('];", "a", "", "missing )"),
        (f"P a = 1; message P {{ string x = 1 [{FIELD}.string.pattern = '(']; }}", "P.x", "", "missing )"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_named_and_takes_no_other_rule_with_it(
    body: str, path: str, rule: str, reason: str
) -> None:
    schema = compile_text(of(f"{OTHER} {body}"))
    found = find_rules(schema.descriptor_set, "M", 62)
    assert [(one.path, one.rule) for one in found.left_out] == [(path, rule)]
    assert reason in found.left_out[0].reason
    assert "proto.other" in dict(found.checks)
    assert judged(of(f"{OTHER} {body}"), {}) == [{"proto.other"}]


def test_expressions_of_a_message_are_limited() -> None:
    fields = " ".join(f"int32 f{n} = {n + 10} [{FIELD}.cel_expression = 'this > 1'];" for n in range(MOST_CEL + 5))
    found = find_rules(compile_text(of(fields)).descriptor_set, "M", 62)
    assert len(found.left_out) == 5
    assert {one.reason for one in found.left_out} == {f"the message has more than {MOST_CEL} expressions"}


def test_an_error_violates_all_rules_of_its_message_alone() -> None:
    schema = compile_text(of(f"{OTHER} int32 a = 1 [{FIELD}.cel_expression = '6 / this > 1'];"))
    kind, judge = message_class(schema, "M"), judge_of(schema.descriptor_set, "M")
    sent = [kind(a=value, other="x").SerializeToString() for value in (0, 2, 6)]
    found, errors = judge.violations(sent)
    assert [set(names) for names in found.to_pylist()] == [{"proto.a", "proto.other"}, set(), {"proto.a"}]
    assert list(errors) == [0]
    assert "divide by zero" in errors[0]


def test_bytes_that_are_no_text_are_an_error_of_a_pattern() -> None:
    schema = compile_text(of(f"bytes b = 1 [{FIELD}.bytes.pattern = '^a*$'];"))
    kind, judge = message_class(schema, "M"), judge_of(schema.descriptor_set, "M")
    found, errors = judge.violations([kind(b=value).SerializeToString() for value in (b"aa", b"ab", b"a\xff")])
    assert found.to_pylist() == [[], ["proto.b"], ["proto.b"]]
    assert list(errors) == [2]


def test_a_check_is_as_short_as_one_of_the_settings() -> None:
    long = "x" * 150
    fields = " ".join(f"int32 {long}{n} = {n + 10} [{FIELD}.int32.gt = 1];" for n in range(300))
    found = find_rules(compile_text(of(fields)).descriptor_set, "M", 5)
    assert len(found.checks) == 5
    assert max(len(check) for _, check in found.checks) <= MAX_CHARACTERS
    assert found.left_out[0] == LeftOut(f"{long}24", "", "the message has too many rules for one table")
    assert find_rules(compile_text(of(fields)).descriptor_set, "M", 0).checks == ()


def test_the_library_is_loaded_for_schemas_with_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protovalidate", None)
    plain = compile_text(f"{PROTO3} message M {{ int32 plain = 1; }}")
    assert judge_of(plain.descriptor_set, "M").violations([b"", b""])[0].to_pylist() == [[], []]
