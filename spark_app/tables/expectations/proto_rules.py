"""Translates the rules of protovalidate in a message to checks of the columns that the message becomes.

A check is true for exactly the rows whose message has no violation of the rule. Each field, oneof or list of fields
with rules has one check, which is named after its path: `proto.player.level`. A rule that has no exact expression is
left out and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_app.lake.delta.merged_columns import grows
from spark_app.model.record_schemas import RESERVED
from spark_app.protobuf.columns.types import WRAPPERS, column_names, is_json, is_map, map_fields, table_type
from spark_app.protobuf.schemas.rule_options import (
    RulesUnreadable,
    field_rules,
    has_unknown,
    message_rules,
    oneof_rules,
)
from spark_app.tables.expectations.field_presence import (
    IF_ZERO,
    TIMES,
    is_empty,
    is_set,
    is_zero_known,
    present,
    with_presence,
)
from spark_app.tables.expectations.literals import identifier, literal
from spark_app.tables.expectations.value_rules import NUMBERS, conditions

PREFIX = "proto."  # no rule of the settings has a dot in its name
LONGEST_NAME = 200  # characters
UNSPECIFIED, ALWAYS = 0, 3  # buf.validate.Ignore, with IF_ZERO
CEL = "CEL is not evaluated"
UNKNOWN = "it is no standard rule of the bundled version of protovalidate"
IN_JSON = "the message is JSON text in the table"

KINDS: Mapping[int, str] = {
    getattr(FieldDescriptor, f"TYPE_{kind.upper()}"): kind for kind in (*NUMBERS, "bool", "string", "bytes", "enum")
}
OTHERS = {"google.protobuf.Any": "any", "google.protobuf.FieldMask": "field_mask"}


@dataclass(frozen=True)
class LeftOut:
    """A rule that is not evaluated: the path of its field, its name such as `string.uri`, and the reason."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True)
class Translation:
    """
    Attributes:
        checks: (name of the rule, check) in the order of the fields.
        left_out: what no check says.
    """

    checks: tuple[tuple[str, str], ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where fields of a message are in a row.

    Attributes:
        path: the names of the fields that lead to the message.
        above: full names of the message and of those around it, outermost first.
        message: the expression of the message; "" = its fields are the columns.
        around: (before, after) a condition on the message, which make it a condition on the row; innermost first.
        lambdas: how many lists and maps lead to it.
    """

    path: tuple[str, ...]
    above: tuple[str, ...]
    message: str = ""
    around: tuple[tuple[str, str], ...] = ()
    lambdas: int = 0

    def column(self, name: str) -> str:
        return f"struct_extract({self.message}, {literal(name)})" if self.message else identifier(name)

    def check(self, condition: str) -> str:
        """The condition on the message as a check of the row: it has to be true wherever the message is set."""
        for before, after in self.around:
            condition = f"{before}{condition}{after}"
        return condition

    def struct(self, name: str, value: str, kind: Descriptor) -> _Place:
        around = ((f"({value} IS NULL OR ", ")"), *self.around)
        return replace(self, path=(*self.path, name), above=(*self.above, kind.full_name), message=value, around=around)

    def items(self, name: str, values: str) -> _Place:
        """The place of the elements of a list; they may be no messages."""
        item = f"item{self.lambdas + 1}"
        around = (_each(values, item), *self.around)
        return replace(self, path=(*self.path, name), message=item, around=around, lambdas=self.lambdas + 1)


def _each(values: str, item: str) -> tuple[str, str]:
    """(before, after) a condition on an element, which make it a condition on all elements of the list."""
    return f"(coalesce(len(list_filter({values}, lambda {item}: NOT coalesce(", ", false))), 0) = 0)"


def translate(message: Descriptor, columns: pa.Schema) -> Translation:
    """The checks of a message's rules.

    Args:
        columns: of the table. Of a column with another type than the message has, no rule is evaluated.
    """
    walk = _Walk(columns)
    walk.message(message, _Place((), (message.full_name,)))
    return Translation(tuple(walk.checks.items()), tuple(walk.left_out))


@dataclass
class _Walk:
    columns: pa.Schema
    checks: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def message(self, message: Descriptor, place: _Place) -> None:
        """Translate the rules of a message and of those inside."""
        names = column_names(message, frozenset() if place.message else RESERVED)
        rules = self._read(message_rules, message, place.path)
        groups = self._field_groups(message, rules, place)
        members = {name for group, _ in groups for name in group}
        for one in message.fields:
            self._field(one, names[one.number], place, one.name in members)
        for oneof in message.oneofs:
            rule = self._read(oneof_rules, oneof, (*place.path, oneof.name))
            if rule is not None and rule.required:
                some = " OR ".join(f"{place.column(names[one.number])} IS NOT NULL" for one in oneof.fields)
                self._add((*place.path, oneof.name), f"({some})", place)
        for group, required in groups:
            self._group([message.fields_by_name[name] for name in group], names, required, place)

    def _read(self, read: Any, owner: Any, path: Sequence[str]) -> Any:
        try:
            rules = read(owner)
        except RulesUnreadable as error:
            self._leave_out(path, "", str(error))
            return None
        if rules is not None and has_unknown(rules):
            self._leave_out(path, "", UNKNOWN)
        return rules

    def _leave_out(self, path: Sequence[str], rule: str, reason: str) -> None:
        self.left_out.append(LeftOut(".".join(path), rule, reason))

    def _leave_out_cel(self, rules: Any, path: Sequence[str]) -> None:
        for rule in (*rules.cel, *rules.cel_expression):
            self._leave_out(path, f"cel {getattr(rule, 'id', '') or rule}"[:LONGEST_NAME], CEL)

    def _add(self, path: Sequence[str], condition: str, place: _Place) -> None:
        name = PREFIX + ".".join(path)
        if len(name) > LONGEST_NAME:
            self._leave_out(path, "", f"its path has more than {LONGEST_NAME} characters")
        else:
            check = place.check(condition)
            self.checks[name] = f"{self.checks[name]} AND {check}" if name in self.checks else check

    def _field_groups(self, message: Descriptor, rules: Any, place: _Place) -> list[tuple[list[str], bool]]:
        """(names of fields, whether one has to be set) of the rules that at most one of some fields is set."""
        if rules is None:
            return []
        self._leave_out_cel(rules, place.path)
        groups = []
        for group in rules.oneof:
            names = list(group.fields)
            if not names or len(set(names)) < len(names) or not set(names) <= {*message.fields_by_name.keys()}:
                self._leave_out(place.path, "message.oneof", "it does not name fields of the message, each once")
            else:
                groups.append((names, group.required))
        return groups

    def _group(self, fields: Sequence[FieldDescriptor], names: dict[int, str], required: bool, place: _Place) -> None:
        path = (*place.path, ",".join(one.name for one in fields))
        others = [one.name for one in fields if not self._is_same_type(one, names[one.number], place)]
        if others:
            self._leave_out(path, "message.oneof", _other_type(others[0]))
            return
        are_set = (f"CASE WHEN {is_set(one, place.column(names[one.number]))} THEN 1 ELSE 0 END" for one in fields)
        self._add(path, f"({' + '.join(are_set)} {'=' if required else '<='} 1)", place)

    def _is_same_type(self, one: FieldDescriptor, column: str, place: _Place) -> bool:
        if place.message:
            return True  # otherwise the whole column would have another type
        index = self.columns.get_field_index(column)
        own = table_type(one, place.above)
        return index >= 0 and grows(own, self.columns.field(index).type)

    def _field(self, one: FieldDescriptor, column: str, place: _Place, in_group: bool) -> None:
        """Translate the rules of a field, and those of the messages that it holds."""
        path = (*place.path, one.name)
        rules = self._read(field_rules, one, path)
        ignore = UNSPECIFIED if rules is None else rules.ignore
        if ignore == ALWAYS:
            return
        if in_group and (rules is None or not rules.HasField("ignore")):
            ignore = IF_ZERO
        value = place.column(column)
        if not self._is_same_type(one, column, place):
            if rules is not None or _holds_rules(one):
                self._leave_out(path, "", _other_type(column))
            return
        if rules is not None:
            self._leave_out_cel(rules, path)
            found = list(self._conditions(one, rules, present(one, value), path, place))
            condition = with_presence(one, value, found, rules.required, ignore)
            if condition:
                self._add(path, condition, place)
        self._inside(one, rules, value, path, place)

    def _conditions(
        self, one: FieldDescriptor, rules: Any, value: str, path: Sequence[str], place: _Place
    ) -> Iterator[str]:
        """The conditions on the value of a field which is set."""
        kind = rules.WhichOneof("type")
        if kind is None:
            return
        if kind != _kind(one):
            self._leave_out(path, kind, "it does not suit the type of the field")
            return
        given = getattr(rules, kind)
        if kind == "repeated":
            yield from self._list(one, given, value, path, place)
        elif kind == "map":
            yield from self._map(one, given, value, path, place)
        else:
            yield from self._value(kind, given, value, one, path)

    def _value(self, kind: str, given: Any, value: str, one: FieldDescriptor, path: Sequence[str]) -> Iterator[str]:
        if has_unknown(given):
            self._leave_out(path, kind, UNKNOWN)
        for condition in conditions(kind, given, value, one.enum_type):
            if condition.check:
                yield condition.check
            else:
                self._leave_out(path, condition.rule, condition.reason)

    def _list(self, one: FieldDescriptor, given: Any, value: str, path: Sequence[str], place: _Place) -> Iterator[str]:
        if has_unknown(given):
            self._leave_out(path, "repeated", UNKNOWN)
        yield from _counts(given, f"coalesce(len({value}), 0)", "items")
        if given.unique:
            if one.message_type is not None:
                self._leave_out(path, "repeated.unique", "it does not suit the type of the field")
            elif one.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
                self._leave_out(path, "repeated.unique", "NaN is unlike itself")
            else:
                yield f"(len({value}) = len(list_distinct({value})))"
        if given.HasField("items"):
            yield from self._each(one, given.items, value, path, "items", place)

    def _map(self, one: FieldDescriptor, given: Any, value: str, path: Sequence[str], place: _Place) -> Iterator[str]:
        if has_unknown(given):
            self._leave_out(path, "map", UNKNOWN)
        yield from _counts(given, f"coalesce(cardinality({value}), 0)", "pairs")
        for part, inner in zip(("keys", "values"), map_fields(one), strict=True):
            if given.HasField(part):
                yield from self._each(inner, getattr(given, part), f"map_{part}({value})", path, part, place)

    def _each(
        self, one: FieldDescriptor, rules: Any, values: str, path: Sequence[str], part: str, place: _Place
    ) -> Iterator[str]:
        """The conditions on each element of a list, or on each key or value of a map."""
        self._leave_out_cel(rules, (*path, part))
        if has_unknown(rules):
            self._leave_out((*path, part), "", UNKNOWN)
        kind = rules.WhichOneof("type")
        if rules.ignore == ALWAYS or kind is None:
            return
        if kind != _kind_of_one(one):
            self._leave_out((*path, part), kind, "it does not suit the type of the field")
            return
        if rules.ignore == IF_ZERO and not is_zero_known(one):
            self._leave_out(
                (*path, part), kind, "protovalidate's libraries disagree about which value is the zero value"
            )
            return
        item = f"item{place.lambdas + 1}"
        condition = " AND ".join(self._value(kind, getattr(rules, kind), item, one, (*path, part)))
        if condition:
            before, after = _each(values, item)
            skipped = f"{is_empty(one, item)} OR " if rules.ignore == IF_ZERO else ""
            yield f"{before}({skipped}({condition})){after}"

    def _inside(self, one: FieldDescriptor, rules: Any, value: str, path: Sequence[str], place: _Place) -> None:
        """Translate the rules of the messages that a field holds."""
        part = "values" if is_map(one) else "items"
        if one.is_repeated and rules is not None and rules.WhichOneof("type") in ("repeated", "map"):
            ignore = getattr(rules.map if is_map(one) else rules.repeated, part).ignore
            if ignore == ALWAYS:
                return
            if ignore == IF_ZERO and _holds_rules(map_fields(one)[1] if is_map(one) else one):
                self._leave_out(path, f"{part}.ignore", "a row does not say whether a message has unknown fields")
                return
        inner = map_fields(one)[1] if is_map(one) else one
        kind = inner.message_type
        if kind is None or kind.full_name in WRAPPERS or kind.full_name in TIMES:
            return
        if is_json(kind, place.above):
            if _holds_rules(inner):
                self._leave_out(path, "", IN_JSON)
            return
        if not kind.fields:
            return
        if one.is_repeated:
            values = f"map_values({value})" if is_map(one) else value
            items = place.items(one.name, values)
            self.message(kind, replace(items, above=(*items.above, kind.full_name)))
        else:
            self.message(kind, place.struct(one.name, value, kind))


def _other_type(column: str) -> str:
    return f"the table's column {column} has another type"


def _kind(one: FieldDescriptor) -> str:
    return "map" if is_map(one) else "repeated" if one.is_repeated else _kind_of_one(one)


def _kind_of_one(one: FieldDescriptor) -> str:
    """The kind of rules that suit one value of a field; "" = none."""
    if one.message_type is None:
        return KINDS[one.type]
    name = one.message_type.full_name
    if name in WRAPPERS:
        return KINDS[one.message_type.fields_by_name["value"].type]
    return TIMES.get(name) or OTHERS.get(name, "")


def _counts(given: Any, size: str, of: str) -> Iterator[str]:
    if given.HasField(f"min_{of}"):
        yield f"({size} >= {literal(getattr(given, f'min_{of}'))})"
    if given.HasField(f"max_{of}"):
        yield f"({size} <= {literal(getattr(given, f'max_{of}'))})"


def _holds_rules(one: FieldDescriptor) -> bool:
    """Whether the messages that a field holds have rules, at any depth."""
    left = [one.message_type] if one.message_type is not None else []
    seen = {kind.full_name for kind in left}
    while left:
        kind = left.pop()
        try:
            owners = [message_rules(kind), *map(field_rules, kind.fields), *map(oneof_rules, kind.oneofs)]
        except RulesUnreadable:
            return True
        if any(rules is not None for rules in owners):
            return True
        inner = [f.message_type for f in kind.fields if f.message_type is not None]
        left += [kind for kind in inner if kind.full_name not in seen]
        seen |= {kind.full_name for kind in inner}
    return False
