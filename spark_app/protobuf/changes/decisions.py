"""Decides which columns the fields of a schema fill, from the version before it in its subject, before a record of the
schema is decoded.

A field is the same field in two versions if its number is the same. The column of a field goes on from the version
beside it: from the one before it in its subject, or, for an older version that comes late, from the one after it. A
field that fills a new column gets the first name of `x`, `x_2`, `x_3` ... that no other field has, and that no known
version has used for another number or type. So no values of different kinds meet in a column.

The ledger has the decision as the descriptor set with which the records are decoded, so nothing decides it anew: redo,
replay, rebuild and audit use the ledger. If the ledger does not have the version before, this is resolved first, so the
order in which records arrive does not matter.

The reasons: docs/decisions/schema-changes.md.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from spark_app.model.catalog import SchemaKey
from spark_app.model.schema_changes import Kind, Policy
from spark_app.model.text import one_line
from spark_app.protobuf.changes.comparison import MOST_EARLIER, mark_readded
from spark_app.protobuf.changes.declarations import FieldKey, declared_names, reserved_names, type_name, with_names
from spark_app.protobuf.changes.differences import Change, Version, differences
from spark_app.protobuf.changes.outcomes import Judgement, difference
from spark_app.protobuf.columns.types import column_names, is_map, map_fields, ordered_fields, table_type
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import with_nested
from spark_app.protobuf.schemas.ledger import Entry, Ledger
from spark_app.protobuf.schemas.registry import Registry, Subjects
from spark_app.protobuf.schemas.well_known import is_well_known


class Use(NamedTuple):
    """A column, and a field that fills it.

    Attributes:
        declared: the type of the field, and of a message also what it becomes.
        column: the type of the column; of a struct only that it is one, because it may get more fields.
    """

    name: str
    number: int
    declared: str
    column: str


Uses = Mapping[str, Mapping[str, Collection[Use]]]  # message -> name in lower case -> its uses
PASSES = 15  # the deepest structs inside structs whose fields get other names
STRENGTH: tuple[Policy | None, ...] = (None, "accept", "warn", "alias", "new_column", "quarantine", "pause")


@dataclass(frozen=True)
class ColumnPolicies:
    """
    Attributes:
        policies: kind -> policy.
        fixed: columns that the settings name. They go on when their name or type changes, because a row means nothing
            without them.
    """

    policies: Mapping[Kind, Policy]
    fixed: frozenset[str] = frozenset()

    def of(self, change: Change) -> Policy | None:
        """The policy for a difference."""
        policy = self.policies.get(change.kind)
        if policy == "new_column" and change.kind == "rename" and change.before is not None:
            names = change.before.path[-1], change.old.rpartition(" = ")[0].rpartition(" ")[2]
            return policy if self.fixed.isdisjoint(names) else "alias"
        return policy


def decide_columns(
    own: bytes, beside: Version, known: Iterable[bytes], policies: ColumnPolicies
) -> dict[FieldKey, str]:
    """The names of the columns that are not those of their fields.

    Args:
        own: the schema as it is registered.
        known: the other known versions with the names of their columns, see `declarations.with_names`.
    """
    uses = _uses((beside.decoded, *known))
    names: dict[FieldKey, str] = {}
    for _ in range(PASSES):
        found = _decide(Version(own, with_names(own, names)), beside, uses, policies)
        if found == names:
            break
        names = found
    return names


def _decide(own: Version, beside: Version, uses: Uses, policies: ColumnPolicies) -> dict[FieldKey, str]:
    new, old, columns = (_Messages(data) for data in (own.registered, beside.registered, beside.decoded))
    changes = differences(beside, own)
    policy_of = _policy_of(changes, policies)
    names: dict[FieldKey, str] = {}
    for name, was in _pairs(new.by_name, old.by_name, changes).items():
        used = {**uses.get(was, {}), **uses.get(name, {})}
        fields = _Fields(new.by_name[name], old.by_name[was], columns.by_name[was], used, policies.fixed)
        names |= fields.decide(policy_of)
    return names


def _policy_of(changes: Iterable[Change], policies: ColumnPolicies) -> dict[FieldKey, Policy | None]:
    """The strongest policy for the differences of each field."""
    found: dict[FieldKey, Policy | None] = {}
    for change in changes:
        if change.key is not None:
            both = found.get(change.key), policies.of(change)
            found[change.key] = max(both, key=STRENGTH.index)
    return found


def _pairs(new: Mapping[str, Descriptor], old: Mapping[str, Descriptor], changes: Iterable[Change]) -> dict[str, str]:
    """Full name of a message -> that of the same message in the other version. A message that moved is found by its
    position: as a type of the same field."""
    pairs = {name: name for name in new if name in old}
    pairs |= {change.message: change.was for change in changes if change.kind == "moved"}
    left = list(pairs)
    while left:
        name = left.pop()
        for field in new[name].fields:
            other = old[pairs[name]].fields_by_number.get(field.number)
            inner, was = _message_in(field), _message_in(other)
            if inner in new and was in old and inner not in pairs:
                pairs[inner] = was
                left.append(inner)
    return pairs


def _message_in(field: FieldDescriptor | None) -> str:
    """Full name of the message that a field, or a value of its map, contains; "" = none."""
    if field is None:
        return ""
    message = (map_fields(field)[1] if is_map(field) else field).message_type
    return message.full_name if message is not None else ""


class _Messages:
    """The messages of a compiled schema by their full names, those of Google and Confluent and map entries left out."""

    def __init__(self, descriptor_set: bytes):
        files = FileDescriptorSet.FromString(descriptor_set).file
        self.pool = DescriptorPool()  # it owns the messages
        for file in files:
            self.pool.Add(file)
        names = [file.name for file in files if not is_well_known(file.name)]
        own = (self.pool.FindFileByName(name).message_types_by_name.values() for name in names)
        self.by_name = {message.full_name: message for message in with_nested(itertools.chain(*own))}


def _uses(versions: Iterable[bytes]) -> Uses:
    uses: dict[str, dict[str, set[Use]]] = defaultdict(lambda: defaultdict(set))
    for data in dict.fromkeys(versions):
        messages = _Messages(data)
        for name, message in messages.by_name.items():
            columns = column_names(message)
            for field in message.fields:
                column = columns[field.number]
                uses[name][column.casefold()].add(_use(field, column))
    return uses


def _use(field: FieldDescriptor, name: str) -> Use:
    column = _outline(table_type(field, (field.containing_type.full_name,)))  # type: ignore[union-attr]
    label = "repeated " if field.is_repeated and not is_map(field) else ""
    shape = column if field.message_type and not is_map(field) else ""
    return Use(name, field.number, f"{label}{type_name(field)} {shape}", column)


def _outline(kind: pa.DataType) -> str:
    """The type without the fields of structs."""
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return f"list of {_outline(kind.value_type)}"
    return f"map of {kind.key_type}, {_outline(kind.item_type)}" if pa.types.is_map(kind) else str(kind)


class _Fields:
    """The fields of a message, and how their columns were used."""

    def __init__(
        self,
        message: Descriptor,
        old: Descriptor,
        columns: Descriptor,
        used: Mapping[str, Collection[Use]],
        fixed: frozenset[str],
    ):
        self._message = message
        self._old = old
        self._before = column_names(columns)
        self._plain = column_names(message)
        self._used = used
        self._fixed = fixed
        proto = DescriptorProto()
        message.CopyToProto(proto)
        self._declared = declared_names(proto)
        self._reserved = reserved_names(message)

    def decide(self, policy_of: Mapping[FieldKey, Policy | None]) -> dict[FieldKey, str]:
        """The names of all columns, if one of them is not the name of its field."""
        policies = {f.number: policy_of.get((self._message.full_name, f.number)) for f in self._message.fields}
        found = {f.number: self._before[f.number] for f in self._message.fields if self._goes_on(f, policies[f.number])}
        for field in ordered_fields(self._message):
            if field.number not in found:
                found[field.number] = self._new_column(field, policies[field.number], found)
        if found == self._plain:
            return {}
        own = self._message.full_name
        return {(own, f.number): found[f.number] for f in self._message.fields if found[f.number] != f.name}

    def _goes_on(self, field: FieldDescriptor, policy: Policy | None) -> bool:
        """Whether the field goes on in the column that its number had."""
        old = self._old.fields_by_number.get(field.number)
        if old is None:
            return False
        column = self._before[field.number]
        if old.name == field.name:
            return policy != "new_column" or not self._fixed.isdisjoint((column, field.name))
        return policy == "alias" and self._can_be_alias(field, column)

    def _can_be_alias(self, field: FieldDescriptor, column: str) -> bool:
        """Whether nothing else in the message has the name of the column, which may be reserved, too."""
        others = {f.name.casefold() for f in self._message.fields if f.number != field.number}
        return column.casefold() not in others and column not in self._declared | self._reserved

    def _new_column(self, field: FieldDescriptor, policy: Policy | None, found: Mapping[int, str]) -> str:
        """The name of the field if it is free, else with a number."""
        plain = self._plain[field.number]
        used = {name.casefold() for name in found.values()}
        if policy not in ("alias", "new_column") and plain.casefold() not in used:
            is_added = policy is None and field.number not in self._before
            if not is_added or self._takes(field, plain):
                return plain
        used |= {name.casefold() for number, name in self._plain.items() if number not in (field.number, *found)}
        names = itertools.chain([plain], (f"{field.name}_{number}" for number in itertools.count(2)))
        return next(name for name in names if name.casefold() not in used and self._is_free(field, name))

    def _is_free(self, field: FieldDescriptor, name: str) -> bool:
        """Whether nothing has used the name, or a field of this number and type has."""
        use = _use(field, name)
        return name not in self._declared and use in self._used.get(name.casefold(), (use,))

    def _takes(self, field: FieldDescriptor, name: str) -> bool:
        """Whether the column of this name, if there is one, is of the field's type, whatever field it had."""
        use = _use(field, name)
        used = {(one.name, one.column) for one in self._used.get(name.casefold(), (use,))}
        return (use.name, use.column) in used


LONGEST_REASON = 300  # characters of an error


@dataclass(frozen=True)
class Decision:
    """
    Attributes:
        decoded: the descriptor set with the names of the columns.
        stopped: the policy that keeps the schema from being decoded; "" = it is decoded.
        stopped_by: the kinds of changes for which it does.
        reason: the first of these changes.
    """

    decoded: bytes
    stopped: Policy | Literal[""] = ""
    stopped_by: tuple[Kind, ...] = ()
    reason: str = ""


class SchemaDecider:
    """Finds the version before a schema, and decides."""

    def __init__(self, ledger: Ledger, registry: Registry, subjects: Subjects, judgement: Judgement):
        self._ledger = ledger
        self._registry = registry
        self._subjects = subjects
        self._judgement = judgement

    def needs_before(self, key: SchemaKey) -> bool:
        """Whether a schema cannot be decided without the version before it."""
        return self._judgement.decides or self._is_accepted(key)

    def must_compare(self, key: SchemaKey) -> bool:
        """Whether a schema waits for ever if the registry never names the version before: somebody wants to
        decide about its changes. The other policies decide nothing about it then."""
        return self._judgement.stops or self._is_accepted(key)

    def find_before(self, key: SchemaKey, found: Mapping[str, int]) -> SchemaKey | None:
        """The key of the version before a schema, which may not be in the ledger yet; None = it is the first. Versions
        that were refused do not count.

        Args:
            found: the schema's subjects, the result of `Registry.subjects_of`.

        Raises:
            RegistryUnreachable
        """
        subject, version = _first(self._subjects.kept(found))
        if version <= 1:
            return None
        known = self._known_before(key, subject, version)
        if known is not None:
            return known
        for _, earlier in itertools.islice(self._registry.versions_before(subject, version), MOST_EARLIER):
            entry = self._ledger.entries.get(earlier)
            if earlier != key and (entry is None or entry.outcome != "refused"):
                return earlier
        return None

    def _known_before(self, key: SchemaKey, subject: str, version: int) -> SchemaKey | None:
        """The key of the version before by the ledger; None if that does not say."""
        for entry in list(self._ledger.entries.values()):
            if entry.subjects.get(subject) == version - 1 and entry.key != key and entry.outcome != "refused":
                return entry.key
        return None

    def decide(
        self,
        key: SchemaKey,
        own: bytes,
        found: Mapping[str, int],
        before: SchemaKey | None,
    ) -> Decision:
        """Decide about a schema. Those of keys have no columns.

        Args:
            own: the descriptor set.
            before: the version before it, which is in the ledger; None = the registry was not queried, or it is the
                first.
        """
        subject, version = _first(self._subjects.kept(found))
        if self._subjects.is_of_keys(subject):
            return Decision(own)
        before = self._known_before(key, subject, version) if before is None else before
        others = [e for e in self._ledger.entries.values() if e.outcome == "decodable" and subject in e.subjects]
        beside = self._beside(before, [e for e in others if e.subjects[subject] > version], subject)
        if beside is None:
            return Decision(own)
        known = {e.key: self._ledger.decoded_set(e) for e in others[-MOST_EARLIER:]}
        older = [known[e.key] for e in others if e.key in known and e.subjects[subject] < version and e.key != before]
        judgement = self._judgement_of(key)
        try:
            changes = mark_readded(differences(beside, Version(own, own)), older)
            stopping = judgement.stopping(changes)
            if not stopping:
                return Decision(decided(own, beside, known.values(), judgement))
            kinds = tuple(dict.fromkeys(change.kind for change in stopping))
            return Decision(own, judgement.policies[kinds[0]], kinds, difference(stopping[0]))
        except Exception as error:  # one schema must not stop the app at every start
            return self._undecided(key, own, f"{type(error).__name__}: {error}")

    def _undecided(self, key: SchemaKey, own: bytes, error: str) -> Decision:
        """A person decides instead: whether the columns keep the names of the fields, or the records stay out."""
        entry = self._ledger.entries.get(key)
        reason = f"its columns cannot be decided: {one_line(error)[:LONGEST_REASON]}"
        if entry is None or not entry.accepted:
            return Decision(own, "pause", (), reason)
        return Decision(own, "quarantine", (), reason) if entry.accepted == "quarantine" else Decision(own)

    def _is_accepted(self, key: SchemaKey) -> bool:
        entry = self._ledger.entries.get(key)
        return entry is not None and bool(entry.accepted)

    def _judgement_of(self, key: SchemaKey) -> Judgement:
        entry = self._ledger.entries.get(key)
        return self._judgement.accepting(entry.accepted, entry.stopped_by) if entry is not None else self._judgement

    def _beside(self, before: SchemaKey | None, later: list[Entry], subject: str) -> Version | None:
        """The version from which the columns go on."""
        entry = self._ledger.entries.get(before) if before is not None else None
        if entry is None and later:
            entry = min(later, key=lambda one: one.subjects[subject])
        return self._ledger.version(entry) if entry is not None and entry.outcome == "decodable" else None


def decided(own: bytes, beside: Version, known: Iterable[bytes], judgement: Judgement) -> bytes:
    """The descriptor set of a schema with the names of its columns; see `decide_columns`."""
    if not judgement.decides and beside.registered == beside.decoded:
        return own
    policies = ColumnPolicies(judgement.policies, judgement.named)
    decoded = with_names(own, decide_columns(own, beside, known, policies))
    load_files(decoded)  # fails unless the names are possible
    return decoded


def _first(subjects: Mapping[str, int]) -> tuple[str, int]:
    """The subject in which a schema is compared, and its version there; ("", 0) without one."""
    return next(iter(subjects.items()), ("", 0))
