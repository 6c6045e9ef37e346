"""Names each difference between two versions of a schema, field by field.

A field is the same field in both versions if it has the same number: that is how its bytes are read. Its name only
names its column. Differences are found along the paths of columns: in nested messages, maps, oneofs and enums, also in
files that the schema imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from spark_app.decode.numbering import index_within
from spark_app.decode.reference import load_files
from spark_app.decode.typemap import enum_names, is_json, is_map, map_fields, ordered_fields

Kind = Literal[
    "added",  # a field, an enum value or a message is new
    "removed",  # it is gone; its number may be reserved
    "rename",  # the number is there under another name
    "swap",  # two numbers have exchanged their names
    "renumber",  # the name is there under another number
    "reuse",  # the number belongs to another field: another name and type, or the old name is reserved
    "repeated",  # one value became a list
    "singular",  # a list became one value
    "narrow",  # fewer bits
    "widen",  # more bits
    "sign",  # signed became unsigned, or the other way
    "bool",  # an integer or enum became bool, or the other way
    "enum",  # an integer became an enum, or the other way; or another enum
    "bytes",  # text became bytes, or the other way
    "message",  # another message type
    "incompatible",  # the bytes of one type cannot be read as the other
    "presence",  # whether an unset field can be told from its default
    "oneof",  # the field has moved into, out of, or between oneofs
    "default",  # another default value
    "enum_rename",  # an enum value has another name
    "moved",  # the message has another full name, with the same fields
]
Severity = Literal["info", "warning", "danger"]

HARMLESS: frozenset[Kind] = frozenset({"added", "widen", "oneof", "moved"})
DANGEROUS: frozenset[Kind] = frozenset({"swap", "reuse", "repeated", "singular", "bytes", "message", "incompatible"})


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        message: full name of the message whose rows have the column.
        path: names of the fields from the message to the changed one, with dots between them, as the new version spells
            them; for a removed one as the old version did. The parts of a map are `key` and `value`. "" = the message.
        numbers: the numbers of these fields.
        old, new: the field or enum value as a .proto file declares it; "" = there is none.
    """

    kind: Kind
    message: str
    path: str
    numbers: tuple[int, ...]
    old: str
    new: str

    @property
    def severity(self) -> Severity:
        """How much a reader of the column has to care."""
        return "info" if self.kind in HARMLESS else "danger" if self.kind in DANGEROUS else "warning"


def changes_between(old: bytes, new: bytes) -> list[Change]:
    """The differences between two versions of a schema, given as serialized FileDescriptorSets whose last file is the
    schema's own, in the order of the new version's messages and their field numbers."""
    before, after = _messages(old), _messages(new)
    found: list[Change] = []
    for name, message in after.items():
        if name in before:
            found += _Walk(name).compare(before[name], message, (), (), ())
    gone = [message for name, message in before.items() if name not in after]
    for message in (message for name, message in after.items() if name not in before):
        origin = next((one for one in gone if _same_fields(one, message)), None)
        gone = [one for one in gone if one is not origin]
        kind: Kind = "added" if origin is None else "moved"
        found.append(Change(kind, message.full_name, "", (), origin.full_name if origin else "", message.full_name))
    return found + [Change("removed", message.full_name, "", (), message.full_name, "") for message in gone]


def _messages(descriptor_set: bytes) -> dict[str, Descriptor]:
    """Full name -> message, of the schema's own file; map entries are not messages of their own."""
    found = list(load_files(descriptor_set)[1])
    for message in found:
        found += [inner for _, inner in index_within(message, False)]
    return {message.full_name: message for message in found}


def _same_fields(old: Descriptor, new: Descriptor) -> bool:
    return bool(old.fields) and [_declared(f) for f in ordered_fields(old)] == [
        _declared(f) for f in ordered_fields(new)
    ]


class _Walk:
    """Compares the fields below one message."""

    def __init__(self, message: str):
        self._message = message

    def compare(
        self,
        old: Descriptor,
        new: Descriptor,
        names: tuple[str, ...],
        numbers: tuple[int, ...],
        above: tuple[tuple[str, str], ...],
    ) -> Iterator[Change]:
        """
        Args:
            names, numbers: of the fields that lead to the two messages.
            above: full names of the pairs of messages that contain them: recursion ends at a pair that was there.
        """
        inside = (*above, (old.full_name, new.full_name))
        before, after = dict(old.fields_by_number), dict(new.fields_by_number)
        for number in sorted(before.keys() | after.keys()):
            one, other = before.get(number), after.get(number)
            path = (*names, (other or one).name), (*numbers, number)  # type: ignore[union-attr]
            if one is None or other is None:
                yield self._come_or_gone(one, other, old, new, *path)
                continue
            yield from self._paired(one, other, old, new, *path)
            yield from self._within(one, other, *path, inside)

    def _come_or_gone(
        self,
        one: FieldDescriptor | None,
        other: FieldDescriptor | None,
        old: Descriptor,
        new: Descriptor,
        names: tuple[str, ...],
        numbers: tuple[int, ...],
    ) -> Change:
        if other is None:
            assert one is not None
            return self._change("removed", names, numbers, _declared(one), _reserved(new, one))
        before = old.fields_by_name.get(other.name)
        kind: Kind = "added" if before is None else "renumber"
        return self._change(kind, names, numbers, "" if before is None else _declared(before), _declared(other))

    def _paired(
        self,
        one: FieldDescriptor,
        other: FieldDescriptor,
        old: Descriptor,
        new: Descriptor,
        names: tuple[str, ...],
        numbers: tuple[int, ...],
    ) -> Iterator[Change]:
        """The differences of a field that has the same number in both versions."""
        types = list(_type_changes(one, other))
        found: list[Kind] = types
        if one.name != other.name:
            if one.name in new.fields_by_name:
                named: Kind = "swap" if other.name in old.fields_by_name else "reuse"
            else:
                named = "reuse" if set(types) - {"widen"} or one.name in _reserved_names(new) else "rename"
            found = [named] if named == "reuse" else [named, *types]
        if not types:
            found = [*found, *_manners(one, other)]
        for kind in found:
            yield self._change(kind, names, numbers, _declared(one), _declared(other))

    def _within(
        self,
        one: FieldDescriptor,
        other: FieldDescriptor,
        names: tuple[str, ...],
        numbers: tuple[int, ...],
        above: tuple[tuple[str, str], ...],
    ) -> Iterator[Change]:
        """The differences inside a field: of its map's parts, its message or its enum."""
        if is_map(one) and is_map(other):
            for part, before, after in zip(("key", "value"), map_fields(one), map_fields(other), strict=True):
                path = (*names, part), (*numbers, after.number)
                for kind in _type_changes(before, after):
                    yield self._change(kind, *path, _declared(before), _declared(after))
                yield from self._within(before, after, *path, above)
        elif one.enum_type is not None and other.enum_type is not None:
            yield from self._values(one.enum_type, other.enum_type, names, numbers)
        elif one.message_type is not None and other.message_type is not None and not is_map(one) and not is_map(other):
            pair = (one.message_type.full_name, other.message_type.full_name)
            if pair not in above and not _is_text(one.message_type, other.message_type, above):
                yield from self.compare(one.message_type, other.message_type, names, numbers, above)

    def _values(
        self, old: EnumDescriptor, new: EnumDescriptor, names: tuple[str, ...], numbers: tuple[int, ...]
    ) -> Iterator[Change]:
        """Differences of enum values. A value without a name in the schema becomes its number in the column."""
        before, after = enum_names(old), enum_names(new)
        for number in sorted(before.keys() | after.keys()):
            one, other = before.get(number), after.get(number)
            if one != other:
                kind: Kind = "added" if one is None else "removed" if other is None else "enum_rename"
                told = (f"{name} = {number}" if name else "" for name in (one, other))
                yield self._change(kind, names, numbers, *told)

    def _change(self, kind: Kind, names: tuple[str, ...], numbers: tuple[int, ...], old: str, new: str) -> Change:
        return Change(kind, self._message, ".".join(names), numbers, old, new)


def _is_text(old: Descriptor, new: Descriptor, above: tuple[tuple[str, str], ...]) -> bool:
    """Whether both messages become JSON text, which has no columns."""
    olds, news = (tuple(pair[side] for pair in above) for side in (0, 1))
    return is_json(old, olds) and is_json(new, news)


# Type -> how its bytes are read, whether it has a sign, and its bits.
T = FieldDescriptor
INTEGERS: dict[int, tuple[str, bool, int]] = {
    T.TYPE_INT32: ("varint", True, 32),
    T.TYPE_INT64: ("varint", True, 64),
    T.TYPE_UINT32: ("varint", False, 32),
    T.TYPE_UINT64: ("varint", False, 64),
    T.TYPE_SINT32: ("zigzag", True, 32),
    T.TYPE_SINT64: ("zigzag", True, 64),
    T.TYPE_FIXED32: ("4 bytes", False, 32),
    T.TYPE_SFIXED32: ("4 bytes", True, 32),
    T.TYPE_FIXED64: ("8 bytes", False, 64),
    T.TYPE_SFIXED64: ("8 bytes", True, 64),
}
TEXTS = {T.TYPE_STRING, T.TYPE_BYTES}


def _type_changes(one: FieldDescriptor, other: FieldDescriptor) -> Iterator[Kind]:
    """How the type of a field differs."""
    if is_map(one) != is_map(other):
        yield "incompatible"
    elif is_map(one):
        return  # its parts are compared by themselves
    else:
        if one.is_repeated != other.is_repeated:
            yield "repeated" if other.is_repeated else "singular"
        yield from _value_changes(one, other)


def _value_changes(one: FieldDescriptor, other: FieldDescriptor) -> Iterator[Kind]:
    """How the type of one value differs."""
    kinds = {one.type, other.type}
    if one.type == other.type:
        if _type_name(one) != _type_name(other):
            yield "message" if one.enum_type is None else "enum"
    elif kinds <= INTEGERS.keys():
        (way, signed, bits), (new_way, new_signed, new_bits) = INTEGERS[one.type], INTEGERS[other.type]
        if way != new_way:
            yield "incompatible"
            return
        if signed != new_signed:
            yield "sign"
        if bits != new_bits:
            yield "widen" if new_bits > bits else "narrow"
    elif kinds == TEXTS:
        yield "bytes"
    elif T.TYPE_BOOL in kinds and _are_varints(kinds):
        yield "bool"
    elif T.TYPE_ENUM in kinds and _are_varints(kinds):
        yield "enum"
    else:
        yield "incompatible"


def _are_varints(kinds: set[int]) -> bool:
    return all(kind in (T.TYPE_BOOL, T.TYPE_ENUM) or INTEGERS.get(kind, ("",))[0] == "varint" for kind in kinds)


def _manners(one: FieldDescriptor, other: FieldDescriptor) -> Iterator[Kind]:
    """Differences between fields of the same type."""
    if _oneof(one) != _oneof(other):
        yield "oneof"
    elif one.has_presence != other.has_presence or one.is_required != other.is_required:
        yield "presence"
    if one.has_default_value and other.has_default_value and one.default_value != other.default_value:
        yield "default"


def _oneof(field: FieldDescriptor) -> str | None:
    """The oneof that a file declares for the field; None without. A proto3 `optional` has a hidden one."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{field.name}"):
        return None
    return str(oneof.name)


def _reserved_names(message: Descriptor) -> set[str]:
    return set(_proto(message).reserved_name)


def _reserved(message: Descriptor, field: FieldDescriptor) -> str:
    """How the message reserves a removed field; "" = not at all."""
    proto = _proto(message)
    if any(part.start <= field.number < part.end for part in proto.reserved_range):
        return f"reserved {field.number}"
    return f'reserved "{field.name}"' if field.name in proto.reserved_name else ""


def _proto(message: Descriptor) -> DescriptorProto:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return proto


def _declared(field: FieldDescriptor) -> str:
    """The field as a .proto file declares it, without options."""
    return f"{_label(field)}{_type_name(field)} {field.name} = {field.number}"


def _label(field: FieldDescriptor) -> str:
    if is_map(field):
        return ""
    if field.is_repeated:
        return "repeated "
    if field.is_required:
        return "required "
    is_optional = field.has_presence and field.message_type is None and _oneof(field) is None
    return "optional " if is_optional else ""


NAMES = {getattr(T, name): name.removeprefix("TYPE_").lower() for name in dir(T) if name.startswith("TYPE_")}


def _type_name(field: FieldDescriptor) -> str:
    if is_map(field):
        key, value = map_fields(field)
        return f"map<{_type_name(key)}, {_type_name(value)}>"
    kind = field.message_type or field.enum_type
    return kind.full_name if kind is not None else NAMES[field.type]
