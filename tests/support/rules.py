"""What tests of the rules in the .proto share."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

OPTIONS = "buf/validate/validate.proto"


IMPORTS = " ".join(
    f'import "{name}";'
    for name in (OPTIONS, *(f"google/protobuf/{file}.proto" for file in ("timestamp", "duration", "wrappers", "any")))
)
ENUM = "enum E { option allow_alias = true; E0 = 0; E1 = 1; A1 = 1; E2 = 2; N7 = -7; MAX = 2147483647; }"
FIELD = "(buf.validate.field)"


def fill(message: Any, dice: random.Random, depth: int = 0) -> None:
    """Set random fields of a message to random values that suit their types."""
    for field in message.DESCRIPTOR.fields:
        in_oneof = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
        if dice.random() > (0.25 if in_oneof else 0.7 if depth < 3 else 0.4):
            continue
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entries = getattr(message, field.name)
            value = kind.fields_by_name["value"]
            for _ in range(dice.randint(0, 3)):
                key = _any(kind.fields_by_name["key"], dice)
                if value.message_type is not None:
                    _fill_one(entries[key], dice, depth)
                else:
                    entries[key] = _any(value, dice)
        elif field.is_repeated:
            for _ in range(dice.randint(0, 3)):
                if kind is not None:
                    _fill_one(getattr(message, field.name).add(), dice, depth)
                else:
                    getattr(message, field.name).append(_any(field, dice))
        elif kind is not None:
            _fill_one(getattr(message, field.name), dice, depth)
        else:
            setattr(message, field.name, _any(field, dice))


def _fill_one(message: Any, dice: random.Random, depth: int) -> None:
    message.SetInParent()
    name = message.DESCRIPTOR.name
    if name in ("Timestamp", "Duration"):
        message.seconds, message.nanos = dice.choice([(0, 0), (5, 0), (6, 1000)])
    elif name != "Any":
        fill(message, dice, depth + 1)


def _any(field: FieldDescriptor, dice: random.Random) -> Any:
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
