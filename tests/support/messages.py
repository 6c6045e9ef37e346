"""Random proto3 files and messages, and what a message must land as, told by Google's classes alone.

A file has three messages: M holds fields of any kind, among them of P and Q; P may hold Q. `expected` knows nothing of
the app's decoder.
"""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    OneofDescriptorProto,
)
from google.protobuf.message import Message
from hypothesis import strategies as st

from spark_app.records import Decodable
from spark_app.schemas.descriptors import digest

SCALARS = [n for n in range(1, 19) if n not in (10, 11, 14)]  # FieldDescriptor.TYPE_*: all but group, message, enum
KEYS = [n for n in SCALARS if n not in (1, 2, 12)]  # no double, float or bytes
KNOWN = ["Timestamp", "Duration", "StringValue", "Int64Value", "UInt64Value", "BoolValue", "DoubleValue", "BytesValue"]
IMPORTS = [timestamp_pb2, duration_pb2, wrappers_pb2]
NUMBERS = [*range(1, 18), 2047, 2048, 18_999, 20_000, 2**29 - 1]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Kind = tuple[str, Any]  # ("scalar", type number), ("enum", None), ("message", full name)


class NoTime(ValueError):
    """The message holds a timestamp or duration beyond the calendar."""


def kinds(messages: list[str]) -> st.SearchStrategy[Kind]:
    names = [f".google.protobuf.{name}" for name in KNOWN] + [f".r.{name}" for name in messages]
    return st.one_of(
        st.tuples(st.just("scalar"), st.sampled_from(SCALARS)),
        st.tuples(st.just("enum"), st.none()),
        st.tuples(st.just("message"), st.sampled_from(names)),
    )


LABELS = st.sampled_from(["plain", "optional", "repeated", "map", "oneof"])


@st.composite
def decodables(draw: st.DrawFn) -> Decodable:
    """A schema of random messages, as the app would have compiled it."""
    file = FileDescriptorProto(name="r.proto", package="r", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in IMPORTS)
    numbers = [EnumValueDescriptorProto(name=f"E{i}", number=n) for i, n in enumerate((0, 1, -7, 2**31 - 1))]
    file.enum_type.append(EnumDescriptorProto(name="E", value=numbers))
    for name, inner, least in (("M", ["P", "Q"], 1), ("P", ["Q"], 1), ("Q", [], 0)):
        fields = draw(st.lists(st.tuples(kinds(inner), LABELS, st.sampled_from(KEYS)), min_size=least, max_size=6))
        order = draw(st.permutations(NUMBERS))
        file.message_type.append(_message(name, fields, order))
    files = FileDescriptorSet()
    for module in IMPORTS:
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    data = files.SerializeToString(deterministic=True)
    return Decodable(1, data, digest(data))


def _message(name: str, fields: list[tuple[Kind, str, int]], numbers: list[int]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    if any(label == "oneof" for _, label, _ in fields):
        message.oneof_decl.append(OneofDescriptorProto(name="choice"))
    for position, (kind, label, key) in enumerate(fields):
        field = _field(f"f{position}", kind, numbers[position])
        if label == "map":
            _make_map(message, name, field, key)
        elif label == "repeated":
            field.label = FieldDescriptorProto.LABEL_REPEATED
        elif label == "oneof":
            field.oneof_index = 0
        message.field.append(field)
    for field, (_, label, _) in zip(message.field, fields, strict=True):
        if label == "optional":  # proto3's way: a oneof of its own, after the real ones
            field.oneof_index = len(message.oneof_decl)
            field.proto3_optional = True
            message.oneof_decl.append(OneofDescriptorProto(name=f"_{field.name}"))
    return message


def _field(name: str, kind: Kind, number: int) -> FieldDescriptorProto:
    what, detail = kind
    field = FieldDescriptorProto(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if what == "scalar":
        field.type = detail
    elif what == "enum":
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, ".r.E"
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, detail
    return field


def _make_map(message: DescriptorProto, owner: str, field: FieldDescriptorProto, key: int) -> None:
    entry = message.nested_type.add(name=f"{field.name.upper()}Entry")
    entry.options.map_entry = True
    entry.field.append(_field("key", ("scalar", key), 1))
    value = entry.field.add()
    value.CopyFrom(field)
    value.name, value.number = "value", 2
    field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".r.{owner}.{entry.name}"
    field.label = FieldDescriptorProto.LABEL_REPEATED


def fill(message: Message, dice: random.Random) -> Message:
    """Set some fields to values that like the edges of their types."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.25:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field, dice)
        elif field.is_repeated:
            for _ in range(dice.randrange(4)):
                _append(getattr(message, field.name), field, dice)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), dice)
        else:
            setattr(message, field.name, value_of(field, dice))
    return message


def _fill_map(entries: Any, field: FieldDescriptor, dice: random.Random) -> None:
    assert field.message_type is not None
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(dice.randrange(4)):
        if value.message_type is None:
            entries[value_of(key, dice)] = value_of(value, dice)
        else:
            fill(entries[value_of(key, dice)], dice)


def _append(values: Any, field: FieldDescriptor, dice: random.Random) -> None:
    if field.message_type is None:
        values.append(value_of(field, dice))
    else:
        fill(values.add(), dice)


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
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice([0, 1, -7, 2**31 - 1, 3, -(2**31)])
    text = dice.choice(["", "a", "é", "\0", "😀" * 3, "x" * 300])
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text


def distort(payload: bytes, other: bytes, dice: random.Random) -> bytes:
    """The payload as some other encoder, or a broken one, might have written it."""
    choice = dice.randrange(7)
    if choice == 0:
        return payload + other  # fields twice, messages and maps merged
    if choice == 1:
        return payload + b"\xf2\x3f\x01x"  # an unknown field
    if choice == 2 and payload:
        return payload[: dice.randrange(len(payload))]
    if choice == 3 and payload:
        place = dice.randrange(len(payload))
        return payload[:place] + bytes([dice.randrange(256)]) + payload[place + 1 :]
    return payload


def expected(message: Message) -> dict[str, Any]:
    """The row that the message must become, in the form that `plain` gives.

    Raises:
        NoTime: it cannot land.
    """
    return {field.name: _field_of(message, field) for field in message.DESCRIPTOR.fields}


def _field_of(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kinds = [field.message_type.fields_by_name[name] for name in ("key", "value")]
        return sorted(
            ([_one(part, kind) for part, kind in zip(item, kinds, strict=True)] for item in value.items()), key=repr
        )
    if field.is_repeated:
        return [_one(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    kind = field.message_type
    if kind is None:
        return _scalar(value, field)
    if kind.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return _time(value, kind)
    if kind.file.name == "google/protobuf/wrappers.proto":
        return _scalar(value.value, kind.fields_by_name["value"])
    return expected(value) if kind.fields else True


def _scalar(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if isinstance(value, float):
        return repr(value)
    unsigned = field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
    return Decimal(value) if unsigned else value


def _time(value: Any, kind: Descriptor) -> Any:
    """Nanoseconds are cut towards zero."""
    micros = value.seconds * 1_000_000 + (abs(value.nanos) // 1000) * (1 if value.nanos >= 0 else -1)
    if kind.name == "Duration":
        if abs(micros) > 315_576_000_000_999_999:
            raise NoTime
        return micros
    try:
        return EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise NoTime from None


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow's `to_pylist`, its maps sorted, its floats as text: NaN equals NaN, and -0.0 is not 0.0."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return sorted(([plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value), key=repr)
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {name: plain(item, kind.field(name).type) for name, item in value.items()}
    return repr(value) if isinstance(value, float) else value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: plain(value, table.schema.field(name).type) for name, value in row.items()} for row in table.to_pylist()
    ]


def pool_of(decodable: Decodable) -> descriptor_pool.DescriptorPool:
    """A pool of the test's own."""
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(decodable.descriptor_set).file:
        pool.Add(file)
    return pool
