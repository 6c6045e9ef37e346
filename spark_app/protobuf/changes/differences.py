"""Names each difference between two versions of a schema, field by field.

A field is the same field in both versions if it has the same number: that is how its bytes are read. Its name only
names its column. Differences are found along the paths of columns: in nested messages, maps, oneofs and enums, also in
files that the schema imports.

The reasons: docs/decisions/schema-changes.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_app.model.record_schemas import RESERVED
from spark_app.model.schema_changes import Kind
from spark_app.protobuf.changes.declarations import FieldKey, declared, oneof_of, reserved, reserved_names, type_name
from spark_app.protobuf.columns.decimals import declared_type
from spark_app.protobuf.columns.types import (
    column_names,
    column_type,
    enum_names,
    is_map,
    map_fields,
    ordered_fields,
    table_type,
    value_type,
)
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import index_within


@dataclass(frozen=True)
class Column:
    """Where the values of a field are.

    Attributes:
        path: the names of the column and of the struct fields inside it; `key` and `value` are the parts of a map.
        type: the type by this version alone.
        decoded: the type of the values before they are fitted to a table.
    """

    path: tuple[str, ...]
    type: pa.DataType
    decoded: pa.DataType


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        message: full name of the message whose rows have the column, in the new version; of a message that is gone its
            old name.
        was: its full name in the old version; "" = it is new.
        path: names of the fields from the message to the changed one, with dots between them, as the new version spells
            them; for a removed one as the old version did. The parts of a map are `key` and `value`. "" = the message.
        old, new: the field, enum value or message as a .proto file declares it; "" = there is none.
        before: the column of the field in the old version; if another number has its name now, the column that had its
            new name. None = there is none.
        after: the column of the field in the new version; None = it has no such field.
        key: the message that declares the field in the new version, and the field's number; None = it has none.
    """

    kind: Kind
    message: str
    was: str
    path: str
    old: str
    new: str
    before: Column | None = None
    after: Column | None = None
    key: FieldKey | None = None


@dataclass(frozen=True)
class Version:
    """A version of a schema, as serialized FileDescriptorSets whose last file is the schema's own.

    Attributes:
        registered: with the names of the fields.
        decoded: with the names of their columns, see `declarations.with_names`.
    """

    registered: bytes
    decoded: bytes


def differences(old: Version, new: Version) -> list[Change]:
    """The differences between two versions of a schema, in the order of the new version's messages and their field
    numbers.

    A message that others of its file contain in both versions is compared along the columns of these, and not once
    more by itself.
    """
    pools = [load_files(data) for data in (old.registered, new.registered, old.decoded, new.decoded)]  # own descriptors
    before, after, old_columns, new_columns = (messages_of(own) for _, own in pools)
    outer = {*_outermost(before), *_outermost(after)}
    gone = _Gone(message for name, message in before.items() if name not in after)
    found: list[Change] = []
    for name, message in after.items():
        if name not in outer:
            continue
        origin = before.get(name) or gone.take(message)
        if origin is None:
            found.append(Change("message_added", name, "", "", "", name))
            continue
        if origin.full_name != name:
            found.append(Change("moved", name, origin.full_name, "", origin.full_name, name))
        sides = _Side(origin, old_columns[origin.full_name]), _Side(message, new_columns[name])
        found += _Walk(origin.full_name, name).messages(*sides, ())
    return found + [Change("message_removed", name, name, "", name, "") for name in gone.left if name in outer]


def messages_of(own: Iterable[Descriptor]) -> dict[str, Descriptor]:
    """Full name -> message, of the schema's own file; map entries are not messages of their own."""
    found = list(own)
    for message in found:
        found += [inner for _, inner in index_within(message, False)]
    return {message.full_name: message for message in found}


def _outermost(messages: Mapping[str, Descriptor]) -> list[str]:
    """Full names of the messages that no other one contains; of those that contain each other the first."""
    contained = {name: _contained(message) for name, message in messages.items()}
    inner = {name for names in contained.values() for name in names}
    outermost, seen = [], set[str]()
    for name in sorted(messages, key=inner.__contains__):
        if name in seen:
            continue
        outermost.append(name)
        left = [name]
        while left:
            one = left.pop()
            seen.add(one)
            left += [each for each in contained.get(one, ()) if each not in seen]
    return outermost


def _contained(message: Descriptor) -> set[str]:
    """Full names of the other messages that are types of the message's fields."""
    values = [map_fields(field)[1] if is_map(field) else field for field in message.fields]
    return {value.message_type.full_name for value in values if value.message_type is not None} - {message.full_name}


class _Gone:
    """Messages of the old version whose full names the new one does not have.

    Attributes:
        left: full name -> message, of those that are none of the new version under another name.
    """

    def __init__(self, messages: Iterable[Descriptor]):
        self.left = {message.full_name: message for message in messages}
        self._alike: dict[object, list[str]] = defaultdict(list)
        for name, message in self.left.items():
            self._alike[message.name].append(name)
            self._alike[_fields(message)].append(name)

    def take(self, message: Descriptor) -> Descriptor | None:
        """The only one that has the name of this message elsewhere, or else its fields."""
        for alike in (message.name, _fields(message)):
            found = [name for name in self._alike.get(alike, ()) if name in self.left]
            if len(found) == 1:
                return self.left.pop(found[0])
        return None


def _fields(message: Descriptor) -> tuple[str, ...]:
    return tuple(declared(field) for field in ordered_fields(message))


@dataclass(frozen=True)
class _Field:
    """A field of one version, or a part of its map.

    Attributes:
        named: the same with the name of its column.
        above: full names of the messages that contain it.
        key: of the field, also for a part of its map.
    """

    field: FieldDescriptor
    named: FieldDescriptor
    column: Column
    above: tuple[str, ...]
    key: FieldKey

    def parts(self) -> tuple[_Field, _Field]:
        """The key and the value of a map."""
        keys, values = zip(map_fields(self.field), map_fields(self.named), strict=True)
        path, kind, decoded = self.column.path, self.column.type, self.column.decoded
        return (
            _Field(*keys, Column((*path, "key"), kind.key_type, decoded.key_type), self.above, self.key),
            _Field(*values, Column((*path, "value"), kind.item_type, decoded.item_type), self.above, self.key),
        )

    @property
    def is_struct(self) -> bool:
        return self.field.message_type is not None and pa.types.is_struct(value_type(self.field, self.above))

    def inside(self) -> _Side:
        """The message that it contains."""
        assert self.field.message_type is not None
        assert self.named.message_type is not None
        return _Side(self.field.message_type, self.named.message_type, self.column.path, self.above)


class _Side:
    """A message of one version, the same with the names of its columns, where these are, and the full names of the
    messages that contain it."""

    def __init__(self, message: Descriptor, named: Descriptor, path: tuple[str, ...] = (), above: tuple[str, ...] = ()):
        self.message = message
        self.inside = (*above, message.full_name)
        names = column_names(named, frozenset() if path else RESERVED)
        self.fields = {f.number: self._field(f, named, (*path, names[f.number])) for f in message.fields}

    def _field(self, field: FieldDescriptor, named: Descriptor, path: tuple[str, ...]) -> _Field:
        twin = named.fields_by_number[field.number]
        key = self.message.full_name, field.number
        return _Field(field, twin, self._column(path, twin), self.inside, key)

    def _column(self, path: tuple[str, ...], field: FieldDescriptor) -> Column:
        return Column(path, table_type(field, self.inside), column_type(field, self.inside))

    def named(self, name: str) -> _Field | None:
        found = self.message.fields_by_name.get(name)
        return self.fields[found.number] if found is not None else None


class _Walk:
    """Compares the fields below one message."""

    def __init__(self, was: str, message: str):
        self._was = was
        self._message = message

    def messages(self, old: _Side, new: _Side, names: tuple[str, ...]) -> Iterator[Change]:
        """`names`: of the fields that lead to the two messages."""
        for number in sorted(old.fields.keys() | new.fields.keys()):
            one, other = old.fields.get(number), new.fields.get(number)
            if other is None:
                assert one is not None
                if new.named(one.field.name) is None:  # else the field that has its name now says so
                    yield self._removed(one, new, names)
            elif one is not None and one.field.name == other.field.name:
                yield from self._same(one, other, (*names, other.field.name))
            else:
                yield from self._named_anew(one, other, old, new, names)

    def _removed(self, one: _Field, new: _Side, names: tuple[str, ...]) -> Change:
        after = reserved(new.message, one.field)
        return self._change("removed", (*names, one.field.name), one, None, declared(one.field), after)

    def _named_anew(
        self, one: _Field | None, other: _Field, old: _Side, new: _Side, names: tuple[str, ...]
    ) -> Iterator[Change]:
        """The differences of a number that had no name, or another one."""
        name, owner = other.field.name, old.named(other.field.name)
        path = (*names, name)
        if one is None:
            kind: Kind = "added" if owner is None else "renumber"
            yield self._change(kind, path, owner, other, declared(owner.field) if owner else "", declared(other.field))
            return
        stays = new.named(one.field.name) is not None
        if owner is not None and stays:
            kind = "swap"
        elif owner is not None:
            yield self._removed(one, new, names)
            kind, one = "renumber", owner
        else:
            another = stays or one.field.name in reserved_names(new.message)
            kind = "reuse" if another or set(_type_changes(one, other)) - {"widen"} else "rename"
        before = one if not stays else owner
        yield self._change(kind, path, before, other, declared(one.field), declared(other.field))
        if kind == "rename" and one.column.path == other.column.path:
            yield from self._inside(one, other, path)

    def _same(self, one: _Field, other: _Field, path: tuple[str, ...]) -> Iterator[Change]:
        """The differences of a field that has the same number and the same name in both versions."""
        types = list(_type_changes(one, other))
        moved = one.column.path[-1] != other.column.path[-1]
        for kind in types or (["column"] if moved else _manners(one.field, other.field)):
            yield self._change(kind, path, one, other, declared(one.field), declared(other.field))
        if not moved:
            yield from self._inside(one, other, path)

    def _inside(self, one: _Field, other: _Field, path: tuple[str, ...]) -> Iterator[Change]:
        """The differences of what two fields contain that have one column."""
        if is_map(one.field) and is_map(other.field):
            for before, after in zip(one.parts(), other.parts(), strict=True):
                yield from self._same(before, after, (*path, after.field.name))
        elif one.field.enum_type is not None and other.field.enum_type is not None:
            yield from self._values(one, other, path)
        elif one.is_struct and other.is_struct:
            yield from self.messages(one.inside(), other.inside(), path)

    def _values(self, one: _Field, other: _Field, path: tuple[str, ...]) -> Iterator[Change]:
        """Differences of enum values."""
        before, after = (enum_names(f.field.enum_type) for f in (one, other))  # type: ignore[arg-type]
        for number in sorted(before.keys() | after.keys()):
            old, new = before.get(number), after.get(number)
            if old != new:
                kind: Kind = "enum_added" if old is None else "enum_removed" if new is None else "enum_rename"
                declarations = (f"{name} = {number}" if name else "" for name in (old, new))
                yield self._change(kind, path, one, other, *declarations)

    def _change(
        self, kind: Kind, path: tuple[str, ...], one: _Field | None, other: _Field | None, old: str, new: str
    ) -> Change:
        before, after = (found.column if found else None for found in (one, other))
        key = other.key if other else None
        return Change(kind, self._message, self._was, ".".join(path), old, new, before, after, key)


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


def _type_changes(one: _Field, other: _Field) -> Iterator[Kind]:
    """How the type of a field differs."""
    if is_map(one.field) != is_map(other.field):
        yield "incompatible"
    elif is_map(one.field):
        return  # its parts are compared by themselves
    else:
        if one.field.is_repeated != other.field.is_repeated:
            yield "repeated" if other.field.is_repeated else "singular"
        values = list(_value_changes(one.field, other.field))
        yield from values
        if not values and one.is_struct != other.is_struct:
            yield "shape"
        elif not values and declared_type(one.field) != declared_type(other.field):
            yield "decimal"


def _value_changes(one: FieldDescriptor, other: FieldDescriptor) -> Iterator[Kind]:
    """How the type of one value differs."""
    kinds = {one.type, other.type}
    if one.type == other.type:
        if type_name(one) != type_name(other):
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
    if oneof_of(one) != oneof_of(other):
        yield "oneof"
    if one.has_presence != other.has_presence:
        yield "presence" if other.has_presence else "no_presence"
    if one.is_required != other.is_required:
        yield "required"
    if one.has_default_value and other.has_default_value and one.default_value != other.default_value:
        yield "default"
