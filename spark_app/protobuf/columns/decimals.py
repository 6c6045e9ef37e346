"""The columns of `confluent.type.Decimal`.

A decoded value is the struct of the message's fields, because each value has its own scale. A field may declare the
precision and scale of its values, with `confluent.field_meta`: then the column of a new table is a DECIMAL.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

MESSAGE = "confluent.type.Decimal"
DECODED = pa.struct([("value", pa.binary()), ("precision", pa.int64()), ("scale", pa.int64())])
MOST_DIGITS = 38
NUMBER = re.compile("[0-9]{1,2}")


def declared_type(field: FieldDescriptor) -> pa.DataType | None:
    """The DECIMAL that a field declares for its values; None if it declares none, or one that does not exist."""
    params = _params_of(field)
    precision, scale = (params.get(name, "") for name in ("precision", "scale"))
    if not (NUMBER.fullmatch(precision) and NUMBER.fullmatch(scale)):
        return None
    if not (1 <= int(precision) <= MOST_DIGITS and int(scale) <= int(precision)):
        return None
    return pa.decimal128(int(precision), int(scale))


def _params_of(field: FieldDescriptor) -> dict[str, str]:
    """The parameters of `confluent.field_meta`."""
    try:
        options: Any = _options_class().FromString(field.GetOptions().SerializePartialToString())
    except DecodeError:
        return {}
    return {entry.key: entry.value for entry in options.meta.params}


@functools.cache
def _options_class() -> type[Message]:
    """A class that reads field options, with only what is needed of Confluent's extension: numbers of fields never
    change their meaning."""
    file = FileDescriptorProto(name="options.proto", package="p", syntax="proto3")
    fields = {
        "Options": [("meta", 1088, "Meta")],
        "Meta": [("params", 2, "Param")],
        "Param": [("key", 1, ""), ("value", 2, "")],
    }
    for message, members in fields.items():
        made = file.message_type.add(name=message)
        for name, number, kind in members:
            one = made.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
            if kind:
                one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".p.{kind}"
            is_list = name == "params"
            one.label = FieldDescriptorProto.LABEL_REPEATED if is_list else FieldDescriptorProto.LABEL_OPTIONAL
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Options"))
