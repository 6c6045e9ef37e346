"""The type mapping: Protobuf field to the Arrow type of its column, as it is decoded and as a table has it.

A compatible change of a field never changes the type of its column: all integers up to 64 bits are LONG (uint64 is
DECIMAL(20,0)), float is DOUBLE, and an enum becomes its name. All columns are nullable.

The reasons: docs/decisions/column-types.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.columns import decimals

TIMESTAMP = pa.timestamp("us", "UTC")
DEEPEST = 15  # levels of nested messages that become structs; deeper messages become JSON text

SCALARS: Mapping[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float64(),
    FieldDescriptor.TYPE_INT32: pa.int64(),
    FieldDescriptor.TYPE_SINT32: pa.int64(),
    FieldDescriptor.TYPE_SFIXED32: pa.int64(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}

WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
ONE_VALUE = WRAPPERS | {"google.protobuf.Timestamp", "google.protobuf.Duration"}  # messages that become one value
JSON_MESSAGES = frozenset(f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue"))


def arrow_schema(message: Descriptor) -> pa.Schema:
    """The columns of a message in a table, in field number order."""
    columns = zip(ordered_fields(message), decoded_schema(message), strict=True)
    return pa.schema([column.with_type(_with_decimals(field, column.type)) for field, column in columns])


def table_type(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    """The type of a field's column in a table; `above` as for `column_type`."""
    return _with_decimals(field, column_type(field, above))


def _with_decimals(field: FieldDescriptor, kind: pa.DataType) -> pa.DataType:
    """The type of a decoded field with the DECIMALs that it, or a field inside, declares."""
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _value_with_decimals(field, map_fields(field)[1], kind.item_type))
    if field.is_repeated:
        return pa.list_(_value_with_decimals(field, field, kind.value_type))
    return _value_with_decimals(field, field, kind)


def _value_with_decimals(declaring: FieldDescriptor, field: FieldDescriptor, kind: pa.DataType) -> pa.DataType:
    """As `_with_decimals` for one value; `declaring` is the field of the message, which for a map is another one."""
    message = field.message_type
    if message is None or not pa.types.is_struct(kind):
        return kind
    if message.full_name == decimals.MESSAGE and kind == decimals.DECODED:
        return decimals.declared_type(declaring) or kind
    inner = zip(ordered_fields(message), kind, strict=True)
    return pa.struct([column.with_type(_with_decimals(one, column.type)) for one, column in inner])


def decoded_schema(message: Descriptor) -> pa.Schema:
    """The columns of decoded messages, in field number order. `protobuf/columns/fit` makes them those of a table."""
    names = column_names(message, RESERVED)
    above = (message.full_name,)
    return pa.schema([pa.field(names[f.number], column_type(f, above)) for f in ordered_fields(message)])


def column_names(message: Descriptor, reserved: frozenset[str] = frozenset()) -> dict[int, str]:
    """Field number -> column name, in number order. `reserved` are names, in lower case, that no field can have.

    For Delta, names that differ only by case are the same: of such fields the one with the lowest number keeps its
    name, the others get their number appended.
    """
    fields = ordered_fields(message)
    owners = {f.name.casefold(): f.number for f in reversed(fields)}
    used = reserved | owners.keys()
    names = {}
    for field in fields:
        name = field.name
        if owners[name.casefold()] != field.number or name.casefold() in reserved:
            while name.casefold() in used:
                name = f"{name}_{field.number}"
            used |= {name.casefold()}
        names[field.number] = name
    return names


def enum_names(enum: EnumDescriptor) -> dict[int, str]:
    """Number -> name; of several aliases the one that is declared first."""
    return {value.number: value.name for value in reversed(enum.values)}


def ordered_fields(message: Descriptor) -> list[FieldDescriptor]:
    return sorted(message.fields, key=lambda f: f.number)


def column_type(field: FieldDescriptor, above: tuple[str, ...] = ()) -> pa.DataType:
    """The Arrow type of a field. `above` names the messages that contain it, outermost first."""
    if is_map(field):
        key, value = map_fields(field)
        return pa.map_(value_type(key, above), value_type(value, above))
    if field.is_repeated:
        return pa.list_(value_type(field, above))
    return value_type(field, above)


def value_type(field: FieldDescriptor, above: tuple[str, ...]) -> pa.DataType:
    """The Arrow type of one value of a field, whether or not the field is repeated."""
    message = field.message_type
    if message is None:
        return SCALARS[field.type]
    if message.full_name == "google.protobuf.Timestamp":
        return TIMESTAMP
    if message.full_name == "google.protobuf.Duration":
        return pa.int64()  # microseconds: Delta has no duration
    if message.full_name in WRAPPERS:
        return SCALARS[message.fields_by_name["value"].type]
    if is_json(message, above):
        return pa.string()
    if not message.fields:
        return pa.bool_()  # TRUE = the empty message is present; Parquet has no empty struct
    inside = (*above, message.full_name)
    names = column_names(message)
    return pa.struct([pa.field(names[f.number], column_type(f, inside)) for f in ordered_fields(message)])


def is_json(message: Descriptor, above: tuple[str, ...]) -> bool:
    """Whether a nested message becomes JSON text: it has no fixed shape, contains itself, or is nested too deeply."""
    return message.full_name in JSON_MESSAGES or message.full_name in above or len(above) >= DEEPEST


def is_map(field: FieldDescriptor) -> bool:
    entry = field.message_type
    return bool(entry is not None and field.is_repeated and entry.GetOptions().map_entry)


def map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    entry = field.message_type
    assert entry is not None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def has_maps(message: Descriptor) -> bool:
    """Whether the message has a map, at any depth. Each message type is checked only once, because below `DEEPEST` no
    limit bounds how often message types contain each other."""
    seen, left = {message.full_name}, [message]
    while left:
        fields = left.pop().fields
        if any(map(is_map, fields)):
            return True
        nested = {f.message_type.full_name: f.message_type for f in fields if f.message_type is not None}
        left += [kind for name, kind in nested.items() if name not in seen]
        seen |= nested.keys()
    return False


def suits_ptars(message: Descriptor, above: tuple[str, ...] = ()) -> bool:
    """Whether ptars decodes canonical payloads of this message exactly as Google's parser does.

    ptars drops groups, panics on editions and on the names of `clash_in`, ignores that an enum is closed, cannot write
    JSON text, and converts messages of google.type in its own way.
    """
    if message.full_name in above or not message.fields or is_json(message, above):
        return False
    if not above and clash_in([message.file]):
        return False
    if _syntax(message) != "proto3" or message.full_name.startswith("google.type."):
        return False
    inside = (*above, message.full_name)
    plain = WRAPPERS | {"google.protobuf.Timestamp", "google.protobuf.Duration"}
    nested = [f.message_type for f in message.fields if f.message_type is not None]
    return all(n.full_name in plain or suits_ptars(n, inside) for n in nested)


def clash_in(files: Iterable[FileDescriptor]) -> str | None:
    """Two fields of a message whose names are equal without case and underscores; None if no file, nor an import of
    one, has such."""
    left, seen = list(files), set[str]()
    while left:
        file = left.pop()
        if file.name in seen:
            continue
        seen.add(file.name)
        left += file.dependencies
        messages = list(file.message_types_by_name.values())
        while messages:
            message = messages.pop()
            messages += message.nested_types
            names: dict[str, str] = {}
            for field in message.fields:
                other = names.setdefault(field.name.replace("_", "").casefold(), field.name)
                if other != field.name:
                    return f"{other} and {field.name} of {message.full_name}"
    return None


def _syntax(message: Descriptor) -> str:
    proto = FileDescriptorProto()
    message.file.CopyToProto(proto)
    return proto.syntax or "proto2"
