"""Random files in every dialect of Protobuf, random messages of them, and payloads as other encoders would write them.

A file has four messages, M, P, Q and S. In a tame file a message holds only those after it, in proto3, which is what
ptars reads; in a wild one anything goes that a compiler accepts: groups, required fields, closed enums, declared
defaults, messages within themselves, JSON messages, names that differ only by case.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    OneofDescriptorProto,
)
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st

from spark_app.audit.expected import NotUtf8, TimestampOutOfRange, expected
from spark_app.model.catalog import Decodable
from spark_app.model.causes import Cause
from spark_app.protobuf.schemas.descriptors import digest

SCALARS = [n for n in range(1, 19) if n not in (10, 11, 14)]  # FieldDescriptor.TYPE_*: all but group, message, enum
KEYS = [n for n in SCALARS if n not in (1, 2, 12)]  # no double, float or bytes
TAME = ["Timestamp", "Duration", "StringValue", "Int64Value", "UInt64Value", "BoolValue", "DoubleValue", "BytesValue"]
WILD = [*TAME, "Struct", "Value", "ListValue", "Any", "Empty", "FieldMask", "FloatValue", "UInt32Value"]
IMPORTS = [timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, any_pb2, empty_pb2, field_mask_pb2]
NUMBERS = [*range(1, 18), 2047, 2048, 18_999, 20_000, 2**29 - 1]
MESSAGES = ["M", "P", "Q", "S"]
ENUM = [("E0", 0), ("E1", 1), ("E2", -7), ("E3", 2**31 - 1), ("A1", 1), ("A0", 0)]
CLOSED = [("C5", 5), ("C0", 0), ("C1", -1)]  # the first one, which is the default, is not 0
UNKNOWN_ENUM = [3, -(2**31)]
DEEPEST = 6  # levels of random messages
PLAIN, OPTIONAL, REQUIRED, REPEATED, MAP, ONEOF = "plain", "optional", "required", "repeated", "map", "oneof"

Kind = tuple[str, Any]  # ("scalar", type number), ("enum", its name), ("message", full name)


def _kinds(dialect: str, known: list[str], messages: list[str]) -> st.SearchStrategy[Kind]:
    enums = ["E"] if dialect == "proto3" else ["E", "C"]
    names = [f".google.protobuf.{name}" for name in known] + [f".r.{name}" for name in messages] * 2
    return st.one_of(
        st.tuples(st.just("scalar"), st.sampled_from(SCALARS)),
        st.tuples(st.just("enum"), st.sampled_from(enums)),
        st.tuples(st.just("message"), st.sampled_from(names)),
    )


@st.composite
def decodables(draw: st.DrawFn, tame: bool = False) -> Decodable:
    """A schema of random messages, as the app would have compiled it."""
    tame = tame or draw(st.booleans())
    dialect = "proto3" if tame else draw(st.sampled_from(["proto2", "proto3", "editions"]))
    file = FileDescriptorProto(name="r.proto", package="r", syntax=dialect)
    if dialect == "editions":
        file.edition = EDITION_2023
    file.dependency.extend(module.DESCRIPTOR.name for module in IMPORTS)
    file.enum_type.append(_enum("E", ENUM))
    if dialect != "proto3":
        closed = file.enum_type.add()
        closed.CopyFrom(_enum("C", CLOSED))
        if dialect == "editions":
            closed.options.features.enum_type = FeatureSet.CLOSED
    labels = st.sampled_from([PLAIN, PLAIN, OPTIONAL, REQUIRED, REPEATED, MAP, ONEOF])
    for place, name in enumerate(MESSAGES):
        inner = MESSAGES[place + 1 :] if tame else MESSAGES
        kinds = _kinds(dialect, TAME if tame else WILD, inner)
        specs = st.tuples(kinds, labels, st.sampled_from(KEYS), st.integers(0, 255))
        fields = draw(st.lists(specs, min_size=0 if name == "S" else 1, max_size=6))
        order = draw(st.permutations(NUMBERS))
        file.message_type.append(_Maker(dialect, tame, name).message(fields, order))
    files = FileDescriptorSet()
    for module in IMPORTS:
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    data = files.SerializeToString(deterministic=True)
    return Decodable(1, data, digest(data))


def _enum(name: str, values: list[tuple[str, int]]) -> EnumDescriptorProto:
    enum = EnumDescriptorProto(name=name, value=[EnumValueDescriptorProto(name=n, number=v) for n, v in values])
    if len({number for _, number in values}) < len(values):
        enum.options.allow_alias = True
    return enum


class _Maker:
    """Makes one message of a dialect. `dice` is a number below 256 that decides the details of a field."""

    def __init__(self, dialect: str, tame: bool, name: str):
        self.dialect, self.tame, self.name = dialect, tame, name

    def message(self, fields: list[tuple[Kind, str, int, int]], numbers: list[int]) -> DescriptorProto:
        message = DescriptorProto(name=self.name)
        if any(label == ONEOF for _, label, _, _ in fields):
            message.oneof_decl.append(OneofDescriptorProto(name="choice"))
        for place, (kind, label, key, dice) in enumerate(fields):
            field = _field(f"f{place}", kind, numbers[place])
            if label == MAP:
                self._make_map(message, field, key)
            else:
                self._name(field, message, place, dice)
                self._label(field, label)
                self._detail(field, kind, label, dice)
            message.field.append(field)
        for field, (_, label, _, _) in zip(message.field, fields, strict=True):
            if label == OPTIONAL and self.dialect == "proto3":  # its way: a oneof of its own, after the real ones
                field.oneof_index = len(message.oneof_decl)
                field.proto3_optional = True
                message.oneof_decl.append(OneofDescriptorProto(name=f"_{field.name}"))
        return message

    def _make_map(self, message: DescriptorProto, field: FieldDescriptorProto, key: int) -> None:
        entry = message.nested_type.add(name=f"{field.name.upper()}Entry")
        entry.options.map_entry = True
        entry.field.append(_field("key", ("scalar", key), 1))
        value = entry.field.add()
        value.CopyFrom(field)
        value.name, value.number = "value", 2
        field.ClearField("options")
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".r.{self.name}.{entry.name}"
        field.label = FieldDescriptorProto.LABEL_REPEATED

    def _name(self, field: FieldDescriptorProto, message: DescriptorProto, place: int, dice: int) -> None:
        if dice % 16 == 1:
            field.name = f"_oFFset{place}" if dice > 128 or place else "_offset"
        elif not self.tame and dice % 4 == 1 and place and message.field[place - 1].name == f"f{place - 1}":
            field.name = f"F{place - 1}"

    def _label(self, field: FieldDescriptorProto, label: str) -> None:
        if label == REPEATED:
            field.label = FieldDescriptorProto.LABEL_REPEATED
        elif label == ONEOF:
            field.oneof_index = 0
        elif label == REQUIRED and self.dialect == "proto2":
            field.label = FieldDescriptorProto.LABEL_REQUIRED

    def _detail(self, field: FieldDescriptorProto, kind: Kind, label: str, dice: int) -> None:
        if self.dialect == "proto3":
            return
        features = field.options.features if self.dialect == "editions" else None
        if kind[0] == "message":
            if dice % 2 and kind[1].startswith(".r."):
                if features is None:
                    field.type = FieldDescriptorProto.TYPE_GROUP
                else:
                    features.message_encoding = FeatureSet.DELIMITED
            return
        implicit = features is not None and label == PLAIN and kind != ("enum", "C")
        if features is not None and label == REQUIRED:
            features.field_presence = FeatureSet.LEGACY_REQUIRED
        elif features is not None and implicit and dice % 3:
            features.field_presence = FeatureSet.IMPLICIT
            return
        if features is not None and field.type == FieldDescriptorProto.TYPE_STRING and dice % 5 == 0:
            features.utf8_validation = FeatureSet.NONE
        if label == REPEATED:
            if features is None and field.type not in (9, 12):
                field.options.packed = bool(dice % 2)
            elif features is not None and dice % 2 and field.type not in (9, 12):
                features.repeated_field_encoding = FeatureSet.EXPANDED
        elif dice % 4 == 0:
            field.default_value = _declared(kind)


def _declared(kind: Kind) -> str:
    if kind[0] == "enum":
        return "E1" if kind[1] == "E" else "C1"
    special = {FieldDescriptor.TYPE_BOOL: "true", FieldDescriptor.TYPE_DOUBLE: "nan", FieldDescriptor.TYPE_FLOAT: "1.5"}
    return special.get(kind[1], "7")


def _field(name: str, kind: Kind, number: int) -> FieldDescriptorProto:
    what, detail = kind
    field = FieldDescriptorProto(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if what == "scalar":
        field.type = detail
    elif what == "enum":
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, f".r.{detail}"
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, detail
    return field


def fill(message: Message, dice: random.Random, depth: int = 0) -> Message:
    """Set some fields to values that like the edges of their types; the deeper, the fewer."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        return _fill_any(message, dice, depth)
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.25 + 0.1 * depth:
            continue
        if field.message_type is not None and depth >= DEEPEST:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field, dice, depth)
        elif field.is_repeated:
            for _ in range(dice.randrange(4)):
                _append(getattr(message, field.name), field, dice, depth)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), dice, depth + 1)
        else:
            setattr(message, field.name, value_of(field, dice))
    return message


def _fill_any(message: Any, dice: random.Random, depth: int) -> Message:
    name = dice.choice(["r.P", "r.S", "google.protobuf.Timestamp", "google.protobuf.Value", "nobody.Knows", ""])
    message.type_url = f"type.googleapis.com/{name}" if name else ""
    message.value = b"\x08\x05"
    pool = message.DESCRIPTOR.file.pool
    with contextlib.suppress(KeyError):  # of a type that the files do not have, too
        inner = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.value = fill(inner, dice, depth + 2).SerializePartialToString()
    return message


def _fill_map(entries: Any, field: FieldDescriptor, dice: random.Random, depth: int) -> None:
    assert field.message_type is not None
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(dice.randrange(4)):
        if value.message_type is None:
            entries[value_of(key, dice)] = value_of(value, dice)
        else:
            fill(entries[value_of(key, dice)], dice, depth + 1)


def _append(values: Any, field: FieldDescriptor, dice: random.Random, depth: int) -> None:
    if field.message_type is None:
        values.append(value_of(field, dice))
    else:
        fill(values.add(), dice, depth + 1)


def value_of(field: FieldDescriptor, dice: random.Random) -> Any:
    kind = field.cpp_type
    if field.name == "seconds" and dice.random() < 0.8:
        return dice.randrange(-62_135_596_800, 253_402_300_800)
    if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64):
        top = 2 ** (31 if kind == FieldDescriptor.CPPTYPE_INT32 else 63)
        return dice.choice([0, 1, -1, top - 1, -top, dice.randrange(-top, top)])
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        top = 2 ** (32 if kind == FieldDescriptor.CPPTYPE_UINT32 else 64)
        return dice.choice([0, 1, top - 1, dice.randrange(top)])
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return dice.choice([0.0, -0.0, 1.5, -1e-40, float("inf"), float("nan"), 3.4e38])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        return dice.choice(numbers if field.enum_type.is_closed else numbers + UNKNOWN_ENUM)
    text = dice.choice(["", "a", "é", "\0", "😀" * 3, "x" * 300])
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text


def distort(payload: bytes, other: bytes, dice: random.Random) -> bytes:
    """The payload as some other encoder, or a broken one, might have written it."""
    choice = dice.randrange(10)
    place = dice.randrange(len(payload)) if payload else 0
    if choice == 0:
        return payload + other  # fields twice, messages and maps merged
    if choice == 1:
        return payload + b"\xf2\x3f\x01x"  # an unknown field
    if choice == 2:
        return payload[:place]
    if choice == 3 and payload:
        return payload[:place] + bytes([dice.randrange(256)]) + payload[place + 1 :]
    if choice == 4 and payload:
        return payload[:place] + bytes([payload[place] ^ 1 << dice.randrange(8)]) + payload[place + 1 :]
    if choice == 5 and payload and payload[place] < 0x80:
        return (
            payload[:place] + bytes([payload[place] | 0x80, 0]) + payload[place + 1 :]
        )  # a varint longer than it must
    return payload


def payloads_of(kind: type[Message], dice: random.Random, count: int) -> list[bytes]:
    """Payloads of a message type, most of them whole; required fields may be missing."""
    return [fill(kind(), dice).SerializePartialToString(deterministic=dice.random() < 0.7) for _ in range(count)]


def pool_of(decodable: Decodable) -> descriptor_pool.DescriptorPool:
    """A pool of the test's own."""
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(decodable.descriptor_set).file:
        pool.Add(file)
    return pool


def row_or_cause(kind: type[Message], payload: bytes, defaults: bool = True) -> object:
    """The row according to Google's parser, or the cause for which the payload is quarantined."""
    try:
        return expected(kind.FromString(payload), defaults)
    except (DecodeError, NotUtf8):
        return Cause.DECODE_PAYLOAD
    except TimestampOutOfRange:
        return Cause.DECODE_RANGE
