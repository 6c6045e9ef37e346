"""Rules in the .proto give the verdict of protovalidate, for every field of random messages."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from spark_app.model.definitions import MAX_CHARACTERS
from spark_app.protobuf.schemas import rule_options
from spark_app.tables.expectations.proto_rules import LeftOut
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.rule_cases import EDITIONS, KINDS, NESTED, PROTO2
from tests.support.rules import ENUM, FIELD, IMPORTS, compiled_options, failed_rules, fill, text_of, violated_rules

MESSAGES = int(os.environ.get("PROTOLAKE_TEST_MESSAGES", "100"))


def compare(text: str, values: list[Any], left_out: int = 0) -> None:
    """Compare the failed rules of random messages M with the violated ones, with defaults and with NULL for them."""
    protovalidate = pytest.importorskip("protovalidate")
    schema, dice = compile_text(text), random.Random(7)
    kind = message_class(schema, "M")
    messages = [kind() for _ in range(MESSAGES)]
    for message in messages[1:]:
        fill(message, dice, values)
    # A validator remembers types by their names, and each schema has an M.
    validator = protovalidate.Validator()
    violated = [violated_rules(validator, message) for message in messages]
    for defaults in (True, False):
        failed, translation = failed_rules(schema, messages, defaults)
        assert len(translation.left_out) == left_out, translation.left_out
        unevaluated = {f"proto.{one.path.removesuffix('.items')}" for one in translation.left_out}
        unlike = [
            (message, rule, dict(translation.checks).get(rule))
            for message, ours, theirs in zip(messages, failed, violated, strict=True)
            for rule in (ours ^ theirs) - unevaluated
        ]
        assert unlike == []
        names = {name for name, _ in translation.checks}
        assert set().union(*failed) - names == set()
        assert len(set().union(*failed)) > len(names) * 0.8  # most rules had messages that fail them


SAME = (
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "uint32",
)  # other encodings of the same values


@pytest.mark.parametrize("of", [pytest.param(of, marks=pytest.mark.nightly) if of in SAME else of for of in KINDS])
def test_the_verdict_on_each_field_is_that_of_protovalidate(of: str) -> None:
    kind, wrapper, rules, values = KINDS[of]
    rules = [rule for rule in rules if of != "bytes" or "pattern" not in rule]
    compare(text_of(kind, wrapper, rules, "string" if of == "format" else of), values)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        (f"{PROTO3} {IMPORTS} {NESTED} {ENUM}", 0),
        (f'syntax = "proto2"; {IMPORTS} {PROTO2}', 3),
        (f'edition = "2023"; {IMPORTS} {EDITIONS} {ENUM}', 0),
    ],
    ids=["proto3", "proto2", "editions"],
)
def test_messages_in_messages_lists_maps_and_oneofs(text: str, left_out: int) -> None:
    compare(text, [], left_out)


def test_bytes_that_are_no_text_fail_a_pattern() -> None:
    """protovalidate ends with an error there."""
    schema = compile_text(f"{PROTO3} {IMPORTS} message M {{ bytes b = 1 [{FIELD}.bytes.pattern = '^a*$']; }}")
    messages = [message_class(schema, "M")(b=value) for value in (b"", b"aa", b"ab", b"a\xff", b"\0")]
    failed, _ = failed_rules(schema, messages, True)
    assert failed == [set(), set(), {"proto.b"}, {"proto.b"}, {"proto.b"}]


def left_out(body: str) -> tuple[list[str], list[LeftOut]]:
    """(names of the checks, what is left out) of a message with these fields."""
    schema = compile_text(f"{PROTO3} {IMPORTS} message M {{ {body} }} {ENUM}")
    _, translation = failed_rules(schema, [message_class(schema, "M")()], True)
    return [name for name, _ in translation.checks], list(translation.left_out)


@pytest.mark.parametrize(
    ("body", "path", "rule", "reason"),
    [
        (f"string a = 1 [{FIELD}.string.uri = true];", "a", "string.uri", "exactly"),
        (f"string a = 1 [{FIELD}.string.host_and_port = true];", "a", "string.host_and_port", "exactly"),
        (f"string a = 1 [{FIELD}.string.ip_prefix = true];", "a", "string.ip_prefix", "exactly"),
        (f"int32 a = 1 [{FIELD}.cel = {{id: 'x', expression: 'this > 1'}}];", "a", "cel x", "CEL"),
        (f"int32 a = 1 [{FIELD}.cel_expression = 'this > 1'];", "a", "cel this > 1", "CEL"),
        ("option (buf.validate.message).cel_expression = 'this.a > 1'; int32 a = 1;", "", "cel this.a > 1", "CEL"),
        ("option (buf.validate.message).oneof = {fields: ['b']}; int32 a = 1;", "", "message.oneof", "each once"),
        (f"int32 a = 1 [{FIELD}.string.min_len = 1];", "a", "string", "suit"),
        (f"repeated int32 a = 1 [{FIELD}.int32.gt = 1];", "a", "int32", "suit"),
        (f"repeated int32 a = 1 [{FIELD}.repeated.items.string.min_len = 1];", "a.items", "string", "suit"),
        (f"repeated double a = 1 [{FIELD}.repeated.unique = true];", "a", "repeated.unique", "NaN"),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.lt_now = true];", "a", "timestamp.lt_now", "time"),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.within.seconds = 1];", "a", "timestamp.within", "time"),
        (f"google.protobuf.Timestamp a = 1 [{FIELD}.timestamp.lt.nanos = 1];", "a", "timestamp.lt", "microseconds"),
        (f"google.protobuf.Any a = 1 [{FIELD}.any.in = 'x'];", "a", "any.in", "exactly"),
        (f"string a = 1 [{FIELD}.string.pattern = '{'a' * 1001}'];", "a", "string.pattern", "1001 characters"),
        (f"M a = 1; string b = 2 [{FIELD}.string.min_len = 0];", "a", "", "JSON"),
    ],
)
def test_what_has_no_exact_expression_is_named(body: str, path: str, rule: str, reason: str) -> None:
    names, left = left_out(body)
    assert names == (["proto.b"] if " b = 2" in body else [])
    assert [(one.path, one.rule) for one in left] == [(path, rule)]
    assert reason in left[0].reason


def test_a_rule_that_is_left_out_does_not_take_others_with_it() -> None:
    names, left = left_out(
        f"string a = 1 [{FIELD}.string = {{uri: true, min_len: 2}}, {FIELD}.cel_expression = 'true'];"
    )
    assert names == ["proto.a"]
    assert {one.rule for one in left} == {"string.uri", "cel true"}


def test_the_compiled_copy_of_the_options_is_that_of_the_text() -> None:
    assert rule_options.COPY.read_bytes() == compiled_options()


def test_a_check_is_as_short_as_one_of_the_settings() -> None:
    schema = compile_text(text_of(*KINDS["format"][:3], "string"))
    _, translation = failed_rules(schema, [message_class(schema, "M")()], True)
    assert max(len(check) for _, check in translation.checks) < MAX_CHARACTERS
