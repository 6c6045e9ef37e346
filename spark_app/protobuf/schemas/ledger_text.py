"""The schemas of a lake as text and as JSON, and two versions of a schema side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from difflib import SequenceMatcher
from typing import Any

from spark_app.model.causes import Cause
from spark_app.model.errors import ContractError
from spark_app.model.events import Event, Level
from spark_app.model.schema_changes import Comparison, SchemaChange
from spark_app.model.text import one_line
from spark_app.protobuf.changes.declarations import file_lines
from spark_app.protobuf.schemas.ledger import Entry, Ledger

MOST_NAMES = 3  # message types in a line
CONTEXT = 2  # equal lines around a difference
WIDE = 60  # characters of a side


def schema_lines(ledger: Ledger, diff: bool) -> list[str]:
    """A line per schema, by subject and version, and what its comparison found. With `diff` also the
    changed lines of both versions, side by side."""
    lines = [f"{'schema':<38}{'version':<34}{'state':<11}message types"]
    for entry in _shown(ledger):
        compared = ledger.comparison_of(entry)
        version, names = _version(entry, compared), _names(_messages(ledger, entry))
        lines.append(f"{entry.key!s:<38}{version:<34}{entry.outcome:<11}{names}".rstrip())
        if entry.outcome != "decodable":
            lines.append(one_line(f"    {entry.cause or 'waits'}: {entry.detail}"))
        if compared is not None:
            lines += _comparison_lines(compared)
            lines += _diff(ledger, entry, compared) if diff else []
    unknown = len(ledger.entries) - len(_shown(ledger))
    return lines + ([f"{unknown:,} more ids, which the registry does not know"] if unknown else [])


def schemas_json(ledger: Ledger, diff: bool) -> list[dict[str, Any]]:
    """The same as values; `differences` has the lines of the two versions."""
    found = []
    for entry in _shown(ledger):
        compared = ledger.comparison_of(entry)
        value: dict[str, Any] = {
            "schema": entry.key,
            "state": entry.outcome,
            "version": entry.version,
            "subjects": subjects_of(entry, compared),
            "messages": _messages(ledger, entry),
            "cause": entry.cause,
            "detail": entry.detail,
            "compared": None if compared is None else asdict(compared),
        }
        if diff:
            value["differences"] = _diff(ledger, entry, compared) if compared else []
        found.append(value)
    return found


def schema_change_lines(changes: Iterable[SchemaChange]) -> Iterator[str]:
    """A line per change."""
    for change in changes:
        yield f"    {change.severity:<9}{change.said}"


def side_by_side(old: list[str], new: list[str]) -> list[str]:
    """The lines that differ, with some equal ones around them: old ones at the left, new ones at the right."""
    lines = []
    for part in differing(old, new):
        lines.append(f"    {'-' * WIDE}---{'-' * WIDE}")
        lines += [one_line(f"    {left:<{WIDE}} {mark} {right}").rstrip() for mark, left, right in part]
    return lines


def differing(old: list[str], new: list[str]) -> list[list[tuple[str, str, str]]]:
    """The parts that differ, with some equal lines around them, as (mark, old line, new line). The mark is " " for
    equal lines, "|" for changed ones, "<" for a line that only the old version has, ">" for one of the new version."""
    parts = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        part = []
        for tag, first, last, start, end in group:
            for at in range(max(last - first, end - start)):
                left = old[first + at] if first + at < last else ""
                right = new[start + at] if start + at < end else ""
                mark = " " if tag == "equal" else "|" if left and right else "<" if left else ">"
                part.append((mark, left, right))
        parts.append(part)
    return parts


def _shown(ledger: Ledger) -> list[Entry]:
    """By subject and version, without the ids that the registry does not know: corrupt frames can contain thousands.
    Those without a subject come last, in the order in which they were resolved."""
    known = [entry for entry in ledger.entries.values() if entry.cause != Cause.SCHEMA_UNKNOWN]
    subjects = {entry.key: subjects_of(entry, ledger.comparison_of(entry)) for entry in known}
    return sorted(known, key=lambda e: (not subjects[e.key], next(iter(subjects[e.key].items()), ("", 0))))


def subjects_of(entry: Entry, compared: Comparison | None) -> dict[str, int]:
    """The version of a schema in each of its subjects. The entry of a stopped one does not have them."""
    if not entry.subjects and compared is not None and compared.subject and compared.version is not None:
        return {compared.subject: compared.version}
    return dict(entry.subjects)


def _messages(ledger: Ledger, entry: Entry) -> list[str]:
    """The names of the messages. Nothing but this needs the file of a schema that is not decodable."""
    try:
        return ledger.message_names(entry.key)
    except ContractError:
        if entry.outcome == "decodable":
            raise
        return []


def _version(entry: Entry, compared: Comparison | None) -> str:
    if compared is not None and compared.subject:
        return compared.where
    for subject, version in entry.subjects.items():
        return one_line(f"v{version} of {subject}")
    return f"v{entry.version}" if entry.version is not None else "-"


def _names(messages: list[str]) -> str:
    more = f" and {len(messages) - MOST_NAMES} more" if len(messages) > MOST_NAMES else ""
    return one_line(", ".join(messages[:MOST_NAMES]) + more)


def _comparison_lines(compared: Comparison) -> list[str]:
    left_out = [f"    {compared.left_out:,} more differences are not kept"] if compared.left_out else []
    return [*schema_change_lines(compared.findings), *left_out]


def _diff(ledger: Ledger, entry: Entry, compared: Comparison) -> list[str]:
    if not compared.before:
        return []
    title = f"    {f'v{compared.before_version}':<{WIDE}}   v{compared.version}"
    try:
        return [title, *side_by_side(*both_versions(ledger, entry, compared))]
    except ContractError as error:
        if entry.outcome == "decodable":
            raise
        return [title, f"    {error.what}"]


def both_versions(ledger: Ledger, entry: Entry, compared: Comparison) -> tuple[list[str], list[str]]:
    """The lines of the version before a schema, none if it is the first, and those of the schema.

    Raises:
        ContractError: a descriptor set is missing or was altered.
    """
    before = file_lines(ledger.descriptor_set(compared.before)) if compared.before else []
    return before, file_lines(ledger.descriptor_set(entry.digest))


KINDS = {"decodable": "schema_resolved", "refused": "schema_refused", "waiting": "schema_waiting"}
MOST_FINDINGS = 20


class SchemaEvents:
    """Emits what has changed since it was made, or since the last `step`."""

    def __init__(self, ledger: Ledger, emit: Callable[[Event], None]):
        self._ledger = ledger
        self._emit = emit
        self._seen = {key: _state(entry) for key, entry in ledger.entries.items()}

    def step(self) -> None:
        for key, entry in list(self._ledger.entries.items()):
            *outcome, comparison = self._seen.get(key, ("", False, None))
            self._seen[key] = _state(entry)
            if [entry.outcome, entry.is_stopped] != outcome:
                self._emit(_outcome(entry))
            if entry.comparison and entry.comparison != comparison:
                self._emit_comparison(entry)

    def _emit_comparison(self, entry: Entry) -> None:
        found = self._ledger.comparison_of(entry)
        if found is None or not found.findings:
            return
        text = f"Schema {entry.key}, {found.where}, differs from the version before it"
        details = {"schema": entry.key, "findings": [asdict(change) for change in found.findings[:MOST_FINDINGS]]}
        self._emit(Event("schema_changed", text, "WARN" if found.warnings else "INFO", details=details))


def _state(entry: Entry) -> tuple[str, bool, str | None]:
    return entry.outcome, entry.is_stopped, entry.comparison


def _outcome(entry: Entry) -> Event:
    text = {"decodable": "can be decoded", "refused": f"is refused: {entry.cause}", "waiting": "is waited for"}
    stopped = f"is kept out until a person decides: {entry.detail}" if entry.is_stopped else ""
    level: Level = "INFO" if entry.outcome == "decodable" else "WARN"
    names = ("cause", "version", "subjects", "stopped_by", "accepted")
    details = {"schema": entry.key, **{name: value for name in names if (value := getattr(entry, name))}}
    return Event(KINDS[entry.outcome], f"Schema {entry.key} {stopped or text[entry.outcome]}", level, details=details)
