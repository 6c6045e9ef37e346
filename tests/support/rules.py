"""What tests of the rules in the .proto share."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from spark_app.model.catalog import Decodable, DecodeOptions
from spark_app.protobuf.decode import decoder_for
from spark_app.tables.expectations.checks import check_columns
from spark_app.tables.expectations.proto_rules import PREFIX, Translation, translate
from spark_app.tables.sql.engine import failures
from tests.support.protos import PROTO3, compile_text

OPTIONS = "buf/validate/validate.proto"


def compiled_options() -> bytes:
    """What `validate.fds` must be: the bundled .proto, compiled, without the options of its fields.

    To write it: python -c "from tests.support.rules import *; rule_options.COPY.write_bytes(compiled_options())"
    """
    text = f'{PROTO3} import "{OPTIONS}"; message M {{ string x = 1 [(buf.validate.field).required = true]; }}'
    files = FileDescriptorSet.FromString(compile_text(text).descriptor_set)
    [file] = [file for file in files.file if file.name == OPTIONS]
    for message in file.message_type:
        _clear_options(message)
    data: bytes = FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)
    return data


def _clear_options(message: DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("options")
    for nested in message.nested_type:
        _clear_options(nested)


IMPORTS = " ".join(
    f'import "{name}";'
    for name in (OPTIONS, *(f"google/protobuf/{file}.proto" for file in ("timestamp", "duration", "wrappers", "any")))
)
ENUM = "enum E { option allow_alias = true; E0 = 0; E1 = 1; A1 = 1; E2 = 2; N7 = -7; MAX = 2147483647; }"
FIELD = "(buf.validate.field)"


def text_of(kind: str, wrapper: str, rules: Sequence[str], of: str) -> str:
    """A schema whose message M has fields of a kind with these rules: each alone and on elements, some in every way in
    which a field can be declared."""
    fields = []
    for place, rule in enumerate(rules):
        fields += [
            f"{kind} # = [{FIELD}.{of} = {rule}];",
            f"repeated {kind} # = [{FIELD}.repeated.items.{of} = {rule}];",
        ]
        if len(rules) > 40 and place % 9:
            continue
        fields += [
            f"optional {kind} # = [{FIELD}.{of} = {rule}];",
            f"{kind} # = [{FIELD} = {{ignore: IGNORE_IF_ZERO_VALUE, {of}: {rule}}}];",
            f"optional {kind} # = [{FIELD} = {{required: true, {of}: {rule}}}];",
            f"{kind} # = [{FIELD} = {{required: true, {of}: {rule}}}];",
            f"{kind} # = [{FIELD} = {{required: true, ignore: IGNORE_IF_ZERO_VALUE, {of}: {rule}}}];",
            f"{kind} # = [{FIELD} = {{required: true, ignore: IGNORE_ALWAYS, {of}: {rule}}}];",
            f"repeated {kind} # = [{FIELD}.repeated.items = {{ignore: IGNORE_IF_ZERO_VALUE, {of}: {rule}}}];",
            f"map<string, {kind}> # = [{FIELD}.map.values.{of} = {rule}];",
        ]
        fields += [f"google.protobuf.{wrapper} # = [{FIELD}.{of} = {rule}];"] if wrapper else []
    body = "\n".join(one.replace("# =", f"f{n} = {n}", 1) for n, one in enumerate(fields, 1))
    return f"{PROTO3} {IMPORTS} message M {{\n{body}\n}} {ENUM}"


def fill(message: Any, dice: random.Random, values: Sequence[Any] = (), depth: int = 0) -> None:
    """Set random fields of a message to random values: of `values`, or of some that suit the type if there are none."""
    for field in message.DESCRIPTOR.fields:
        in_oneof = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
        if dice.random() > (0.25 if in_oneof else 0.7 if depth < 3 else 0.4):
            continue
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entries = getattr(message, field.name)
            value = kind.fields_by_name["value"]
            for _ in range(dice.randint(0, 3)):
                key = _any(kind.fields_by_name["key"], dice, ())
                if value.message_type is not None:
                    _fill_one(entries[key], dice, values, depth)
                else:
                    entries[key] = _any(value, dice, values)
        elif field.is_repeated:
            for _ in range(dice.randint(0, 3)):
                if kind is not None:
                    _fill_one(getattr(message, field.name).add(), dice, values, depth)
                else:
                    getattr(message, field.name).append(_any(field, dice, values))
        elif kind is not None:
            _fill_one(getattr(message, field.name), dice, values, depth)
        else:
            setattr(message, field.name, _any(field, dice, values))


def _fill_one(message: Any, dice: random.Random, values: Sequence[Any], depth: int) -> None:
    message.SetInParent()
    name = message.DESCRIPTOR.name
    if name in ("Timestamp", "Duration"):
        message.seconds, message.nanos = dice.choice(values or [(0, 0), (5, 0), (6, 1000)])
    elif values:
        message.value = dice.choice(values)
    elif name != "Any":
        fill(message, dice, (), depth + 1)


def _any(field: FieldDescriptor, dice: random.Random, values: Sequence[Any]) -> Any:
    if values:
        return dice.choice(values)
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        return dice.choice(numbers if field.enum_type.is_closed else [*numbers, 3, -99])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dice.choice([b"", b"a", b"ab"])
    return dice.choice(
        {
            FieldDescriptor.CPPTYPE_STRING: ["", "a", "ab", "x", "aa"],
            FieldDescriptor.CPPTYPE_BOOL: [True, False],
            FieldDescriptor.CPPTYPE_DOUBLE: [0.0, -0.0, 5.0, 6.0, float("nan")],
        }.get(field.cpp_type, [0, 1, 5, 6, 7])
    )


def failed_rules(
    decodable: Decodable, messages: Sequence[Message], defaults: bool
) -> tuple[list[set[str]], Translation]:
    """For each message the rules that its row fails, by the app's decoder and engine; and the translation."""
    decoder = decoder_for(decodable, (0,), DecodeOptions(True, defaults))
    assert decoder is not None
    payloads = [message.SerializePartialToString() for message in messages]
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    assert not decoded.rejects
    translation = translate(decoder.message, decoder.schema)
    failed: list[set[str]] = [set() for _ in messages]
    for begin in range(0, len(translation.checks), 62):
        some = translation.checks[begin : begin + 62]
        for name, check in some:
            check_columns(name, check, (), [decoder.schema])
        for row, mask in zip(failed, failures(decoded.table, [check for _, check in some]).tolist(), strict=True):
            row |= {name for bit, (name, _) in enumerate(some) if mask >> bit & 1}
    return failed, translation


def violated_rules(validator: Any, message: Message) -> set[str]:
    """The rules, by the names of the app, that a message violates according to protovalidate."""
    found = set()
    for violation in validator.collect_violations(message):
        path = [element.field_name for element in violation.proto.field.elements] if violation.proto.field else []
        if violation.proto.rule_id == "message.oneof":
            said = re.search("one of (.*) (can|must)", violation.proto.message)
            assert said is not None
            path.append(said[1].replace(" ", ""))
        found.add(PREFIX + ".".join(path))
    return found
