"""What tests of the rules in the .proto share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tests.support.protos import PROTO3

OPTIONS = "buf/validate/validate.proto"


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
