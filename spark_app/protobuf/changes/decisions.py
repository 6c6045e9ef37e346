"""Decides which columns the fields of a schema fill, from the version before it in its subject, before a record of the
schema is decoded.

The ledger has the decision as the descriptor set with which the records are decoded, so nothing decides it anew: redo,
replay, rebuild and audit use the ledger. If the ledger does not have the version before, this is resolved first, so the
order in which records arrive does not matter. An older version that the registry did not list goes by the version after
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from spark_app.model.catalog import SchemaKey
from spark_app.model.schema_findings import Kind, Policy
from spark_app.model.text import one_line
from spark_app.protobuf.changes.column_decisions import Rules, decide_columns
from spark_app.protobuf.changes.comparison import MOST_EARLIER, mark_readded
from spark_app.protobuf.changes.differences import Version, differences
from spark_app.protobuf.changes.field_names import with_names
from spark_app.protobuf.changes.outcomes import Judgement, difference
from spark_app.protobuf.decode.reference import load_files
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_entry import Entry
from spark_app.protobuf.schemas.registry import Registry
from spark_app.protobuf.schemas.subjects import Subjects

LONGEST_REASON = 300  # characters of an error


@dataclass(frozen=True)
class Decision:
    """
    Attributes:
        decoded: the descriptor set with the names of the columns.
        stopped: the policy that keeps the schema from being decoded; "" = it is decoded.
        stopped_by: the kinds of changes for which it does.
        said: the first of these changes.
    """

    decoded: bytes
    stopped: Policy | Literal[""] = ""
    stopped_by: tuple[Kind, ...] = ()
    said: str = ""


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
        """Whether a schema waits for ever if the registry never says what the version before is: somebody wants to
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
            before: the version before it, which is in the ledger; None = nobody has asked the registry, or it is the
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
        said = f"its columns cannot be decided: {one_line(error)[:LONGEST_REASON]}"
        if entry is None or not entry.accepted:
            return Decision(own, "pause", (), said)
        return Decision(own, "quarantine", (), said) if entry.accepted == "quarantine" else Decision(own)

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
    rules = Rules(judgement.policies, judgement.named)
    decoded = with_names(own, decide_columns(own, beside, known, rules))
    load_files(decoded)  # fails unless the names are possible
    return decoded


def _first(subjects: Mapping[str, int]) -> tuple[str, int]:
    """The subject in which a schema is compared, and its version there; ("", 0) without one."""
    return next(iter(subjects.items()), ("", 0))
