"""Judges messages by the rules in their .proto, with the library `protovalidate`.

Each field, oneof or list of fields with rules is one expectation of the app, which is named after its path:
`proto.player.level`. Those of the message itself have its name: `proto.Bet`. Rules that the library cannot compile,
that depend on the clock or that may cost too much are removed from the schema and named. The audit uses this module.

The reasons: docs/decisions/proto-rules.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from spark_app.model.definitions import MAX_CHARACTERS
from spark_app.model.errors import pass_interrupts
from spark_app.model.text import one_line
from spark_app.tables.sql.names import columns_in

PREFIX = "proto."  # no rule of the settings has a dot in its name
# Of the rules that a row's message violates. No column of a table has this name, because it has a space.
VIOLATED = pa.field("violated rules", pa.list_(pa.string()))
LONGEST_NAME = 200  # characters
LONGEST_TEXT = 1000  # characters of a pattern or of an expression in CEL
MOST_CEL = 200  # expressions of one message
MOST_LOOPS = 2  # of one expression in CEL: each may multiply its steps by the size of a list
MOST_REPEATED = 2000  # of all counted repetitions of a pattern: each character of a text may take as many steps
REPEATED = re.compile(r"\{\d*,?(\d+),?\}")
LOOP = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")
CLOCK = "it depends on the time of the check"
CLOCK_RULES = frozenset({"lt_now", "gt_now", "within"})
ENDS = frozenset({"lt", "lte", "gt", "gte"})
ALWAYS = 3  # buf.validate.IGNORE_ALWAYS


@dataclass(frozen=True)
class LeftOut:
    """A rule that is not evaluated: the path of its field, its name such as `timestamp.lt_now`, and the reason."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True)
class Found:
    """
    Attributes:
        checks: (name of the rule, check of `VIOLATED`) in the order of the fields.
        left_out: the rules that no check has.
    """

    checks: tuple[tuple[str, str], ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@functools.lru_cache(maxsize=1024)
def find_rules(descriptor_set: bytes, full_name: str, most: int) -> Found:
    """The rules of a message of a schema.

    Args:
        most: more rules are joined, those of neighbouring fields: `proto.first..last`.
    """
    judge = judge_of(descriptor_set, full_name)
    left_out = list(judge.left_out)
    share = max(-(-len(judge.names) // most), 1) if most else 1
    groups = [judge.names[begin : begin + share] for begin in range(0, len(judge.names), share)]
    checks = []
    for group in groups if most else ():
        kept = list(group)
        while len(_check_of(kept)) > MAX_CHARACTERS:
            kept.pop()
        left_out += [_too_many(name) for name in group[len(kept) :]]
        name = group[0] if len(group) == 1 else f"{group[0]}..{group[-1].removeprefix(PREFIX)}"
        checks.append((name, _check_of(kept)))
    left_out += [] if most else map(_too_many, judge.names)
    return Found(tuple(checks), tuple(left_out))


def _too_many(name: str) -> LeftOut:
    return LeftOut(name.removeprefix(PREFIX), "", "the message has too many rules for one table")


def _check_of(names: Sequence[str]) -> str:
    several = ", ".join(f"'{name}'" for name in names)  # no name of a field has a quote
    return f'NOT list_has_any("{VIOLATED.name}", [{several}])'


def are_judged(checks: Iterable[str]) -> bool:
    """Whether a check needs the column `VIOLATED`."""
    return any(VIOLATED.name in check and VIOLATED.name in columns_in(check) for check in checks)


class Judge:
    """The rules of a message, compiled.

    Attributes:
        names: of the rules.
    """

    def __init__(self, message: Descriptor | None, names: Sequence[str], left_out: Sequence[LeftOut]):
        self.names = tuple(names)
        self.left_out = tuple(left_out)
        self._known = frozenset(names)
        if message is not None and names:
            from protovalidate import Validator  # most processes judge no message

            self._parse = message_factory.GetMessageClass(message).FromString
            self._root = message.name
            # Of this schema alone: a validator remembers messages by their names.
            self._validate = Validator().collect_violations

    def violations(self, payloads: Sequence[bytes]) -> tuple[pa.Array, dict[int, str]]:
        """(for each payload the names of the violated rules, for the position of each payload whose judgement ends in
        an error its text). Such a payload violates all rules of its message."""
        if not self.names:
            return pa.array([()] * len(payloads), VIOLATED.type), {}
        found: list[Collection[str]] = []
        errors: dict[int, str] = {}
        for position, payload in enumerate(payloads):
            try:
                violations = self._validate(self._parse(payload))
                found.append([self._name_of(one.proto) for one in violations])
            except BaseException as error:
                pass_interrupts(error)
                found.append(self.names)
                errors[position] = one_line(str(error))[:300]
        return pa.array(found, VIOLATED.type), errors

    def _name_of(self, violation: Any) -> str:
        """The longest path that is a rule: deeper ones are in messages that contain themselves."""
        path = [element.field_name for element in violation.field.elements] if violation.field else []
        if violation.rule_id == "message.oneof":
            prefix = PREFIX + ".".join([*path, ""])
            groups = (name.removeprefix(prefix) for name in self.names if name.startswith(prefix))
            matching = (one for one in groups if f" {one.replace(',', ', ')} " in violation.message)
            path.append(max(matching, key=len, default=""))
        while path:
            name = PREFIX + ".".join(path)
            if name in self._known:
                return name
            path.pop()
        return PREFIX + self._root


NOTHING = Judge(None, (), ())


@functools.lru_cache(maxsize=256)
def judge_of(descriptor_set: bytes, full_name: str) -> Judge:
    """The judge of a message of a schema, without the rules that are left out."""
    files = FileDescriptorSet.FromString(descriptor_set)
    if not any(file.package == "buf.validate" for file in files.file):
        return NOTHING
    try:
        left_out = _Schema(files, full_name).leave_out()
        pool = _pool_of(files)
        message = pool.FindMessageTypeByName(full_name)
        names = dict.fromkeys(_names(message, (), (message.full_name,)))
    except BaseException as error:  # one schema must not stop the app at each of its starts
        pass_interrupts(error)
        reason = f"its rules cannot be read: {type(error).__name__}: {error}"[:300]
        return Judge(None, (), [LeftOut("", "", reason)])
    return Judge(message, list(names), left_out)


def _pool_of(files: FileDescriptorSet) -> DescriptorPool:
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def _read(kind: str, options: Message) -> Any:
    """The rules in options, as the library reads them: whatever version of them the schema imports. None = none."""
    data = options.SerializePartialToString()
    if not data:
        return None
    own, extension = _options()[kind]
    read = own.FromString(data)
    return read.Extensions[extension] if read.HasExtension(extension) else None


def _write(kind: str, options: Message, rules: Message | None) -> None:
    """Replace the rules in options; None = remove them."""
    own, extension = _options()[kind]
    changed = own.FromString(options.SerializePartialToString())
    changed.ClearExtension(extension)
    if rules is not None:
        changed.Extensions[extension].CopyFrom(rules)
    options.ParseFromString(changed.SerializePartialToString())


@functools.cache
def _options() -> dict[str, tuple[Any, FieldDescriptor]]:
    """Kind -> (class of the options, the extension)."""
    from protovalidate import ViolationPb

    pool = DescriptorPool()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(ViolationPb.desc().file.proto.to_binary())
    found = {}
    for kind in ("field", "message", "oneof"):
        options = pool.FindMessageTypeByName(f"google.protobuf.{kind.capitalize()}Options")
        found[kind] = message_factory.GetMessageClass(options), pool.FindExtensionByName(f"buf.validate.{kind}")
    return found


@dataclass(frozen=True, eq=False)
class _Owner:
    """A field, oneof or message with rules. `options` are those of its descriptor, which may be changed."""

    path: str
    kind: str
    options: Message
    rules: Any


class _Schema:
    """The files of a schema, from which the rules are removed that cannot be evaluated."""

    def __init__(self, files: FileDescriptorSet, full_name: str):
        self._files = files
        pool = _pool_of(files)
        self._messages = list(reachable(pool.FindMessageTypeByName(full_name)))
        self._protos = dict(_message_protos(files))
        self._left_out: list[LeftOut] = []
        self._expressions = 0

    def leave_out(self) -> list[LeftOut]:
        """Remove what cannot be evaluated from the files; returns it."""
        for message in self._messages:
            prefix = "" if message is self._messages[0] else f"{message.name}."
            owners = list(self._owners(self._protos[message.full_name], prefix))
            for owner in owners:
                for part in _parts(owner.rules) if owner.kind == "field" else [owner.rules]:
                    self._limit(owner.path, part)
            bad = self._find_bad(message.full_name, owners, owners)
            self._keep(owners, [owner for owner in owners if owner not in bad])
            self._left_out += [LeftOut(owner.path, "", reason) for owner, reason in bad.items()]
        return self._left_out

    def _owners(self, proto: DescriptorProto, prefix: str) -> Iterator[_Owner]:
        several: list[tuple[str, Iterable[Any]]] = [
            ("message", [proto]),
            ("field", proto.field),
            ("oneof", proto.oneof_decl),
        ]
        for kind, parts in several:
            for part in parts:
                rules = _read(kind, part.options)
                if rules is not None:
                    path = prefix.rstrip(".") if part is proto else prefix + part.name
                    yield _Owner(path, kind, part.options, rules)

    def _limit(self, path: str, rules: Any) -> None:
        """Clear what depends on the clock or may cost too much."""
        kind = rules.WhichOneof("type") if "type" in rules.DESCRIPTOR.oneofs_by_name else None
        given = getattr(rules, kind) if kind else rules
        names = {field.name for field, _ in given.ListFields()}
        if reason := _cost(getattr(given, "pattern", "")) if kind else "":
            self._left_out.append(LeftOut(path, f"{kind}.pattern", reason))
            given.ClearField("pattern")
        if clock := names & CLOCK_RULES:
            self._left_out += [LeftOut(path, f"{kind}.{name}", CLOCK) for name in sorted(clock)]
            for name in names & (CLOCK_RULES | ENDS):  # a range is one rule
                given.ClearField(name)
        for field in ("cel", "cel_expression"):
            expressions = list(getattr(rules, field, ()))
            kept = [one for one in expressions if not self._is_refused(path, one)]
            if len(kept) < len(expressions):
                rules.ClearField(field)
                getattr(rules, field).extend(kept)

    def _is_refused(self, path: str, cel: Any) -> bool:
        text = getattr(cel, "expression", cel)
        self._expressions += 1
        reason = _cost(text)
        if not reason and len(LOOP.findall(text)) > MOST_LOOPS:
            reason = f"it has more than {MOST_LOOPS} loops over lists or maps"
        if not reason and re.search(r"\bnow\b", text):
            reason = CLOCK
        if not reason and self._expressions > MOST_CEL:
            reason = f"the message has more than {MOST_CEL} expressions"
        if reason:
            self._left_out.append(LeftOut(path, f"cel {getattr(cel, 'id', '') or text}"[:100], reason))
        return bool(reason)

    def _find_bad(self, full_name: str, owners: Sequence[_Owner], among: Sequence[_Owner]) -> dict[_Owner, str]:
        """Those of `among` that the library cannot compile, with the reasons: by halves, because most schemas have
        none."""
        self._keep(owners, among)
        reason = self._compile(full_name) if among else ""
        if not reason or len(among) == 1:
            return {among[0]: reason} if reason else {}
        half = len(among) // 2
        return self._find_bad(full_name, owners, among[:half]) | self._find_bad(full_name, owners, among[half:])

    def _keep(self, owners: Sequence[_Owner], kept: Sequence[_Owner]) -> None:
        for owner in owners:
            _write(owner.kind, owner.options, owner.rules if owner in kept else None)

    def _compile(self, full_name: str) -> str:
        """Why the library cannot compile a message; "" = it can."""
        from protovalidate import CompilationError, EvaluationError, Validator

        kind = message_factory.GetMessageClass(_pool_of(self._files).FindMessageTypeByName(full_name))
        try:
            Validator().collect_violations(kind())
        except CompilationError as error:
            return one_line(str(error))[:300]
        except EvaluationError as error:  # of an empty message; others may be right
            return one_line(str(error))[:300] if "no_such_field" in str(error) else ""
        return ""


def _cost(text: str) -> str:
    """Why a pattern or an expression may cost too much; "" = it may not."""
    if len(text) > LONGEST_TEXT:
        return f"it has more than {LONGEST_TEXT} characters"
    return (
        f"it repeats more than {MOST_REPEATED} times" if sum(map(int, REPEATED.findall(text))) > MOST_REPEATED else ""
    )


def reachable(message: Descriptor) -> Iterator[Descriptor]:
    """The message, and the messages that it may contain at any depth, each once; without Google's."""
    seen, left = {message.full_name}, [message]
    while left:
        one = left.pop()
        if not one.GetOptions().map_entry:
            yield one
        for field in one.fields:
            kind = field.message_type
            if kind is not None and kind.full_name not in seen and kind.file.package != "google.protobuf":
                seen.add(kind.full_name)
                left.append(kind)


def _message_protos(files: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    """(full name, descriptor) of all messages."""
    left = [(f"{file.package}." if file.package else "", one) for file in files.file for one in file.message_type]
    while left:
        prefix, one = left.pop()
        yield prefix + one.name, one
        left += [(f"{prefix}{one.name}.", nested) for nested in one.nested_type]


def _parts(rules: Any) -> Iterator[Any]:
    """The rules of a field, and those of its elements, keys and values."""
    yield rules
    for outer, inner in (("repeated", "items"), ("map", "keys"), ("map", "values")):
        if rules.WhichOneof("type") == outer and getattr(rules, outer).HasField(inner):
            yield getattr(getattr(rules, outer), inner)


def _names(message: Descriptor, path: tuple[str, ...], above: tuple[str, ...]) -> Iterator[str]:
    """The names of the rules of a message and of those inside.

    Args:
        path: the names of the fields that lead to the message.
        above: full names of the message and of those around it.
    """
    for field in message.fields:
        own, rules = (*path, field.name), _read("field", field.GetOptions())
        if rules is not None and rules.ignore == ALWAYS:
            continue
        if rules is not None and any(one.name != "ignore" for one, _ in rules.ListFields()):
            yield _name_of(own)
        yield from _names_inside(field, rules, own, above)
    for oneof in message.oneofs:
        rules = _read("oneof", oneof.GetOptions())
        if rules is not None and rules.required:
            yield _name_of((*path, oneof.name))
    rules = _read("message", message.GetOptions())
    if rules is not None:
        yield from (_name_of((*path, ",".join(group.fields))) for group in rules.oneof)
        if rules.cel or rules.cel_expression:
            yield _name_of(path or (message.name,))


def _names_inside(field: FieldDescriptor, rules: Any, path: tuple[str, ...], above: tuple[str, ...]) -> Iterator[str]:
    """The names of the rules of the messages that a field contains."""
    kind, elements = field.message_type, "items"
    if kind is not None and kind.GetOptions().map_entry:
        kind, elements = kind.fields_by_name["value"].message_type, "values"
    if kind is None or kind.file.package == "google.protobuf":
        return
    given = None if rules is None or rules.WhichOneof("type") is None else getattr(rules, rules.WhichOneof("type"))
    if given is not None and getattr(getattr(given, elements, None), "ignore", 0) == ALWAYS:
        return
    if kind.full_name not in above and len(_name_of((*path, ""))) < LONGEST_NAME:
        yield from _names(kind, path, (*above, kind.full_name))
    elif any(_has_rules(one) for one in reachable(kind)):
        yield _name_of(path)


def _has_rules(message: Descriptor) -> bool:
    owners: list[tuple[str, Sequence[Any]]] = [
        ("message", [message]),
        ("field", message.fields),
        ("oneof", message.oneofs),
    ]
    return any(_read(kind, one.GetOptions()) is not None for kind, several in owners for one in several)


def _name_of(path: Sequence[str]) -> str:
    return PREFIX + ".".join(path)
