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

from spark_app.decode.reference import load_files
from spark_app.driver.change_outcomes import Judgement
from spark_app.model.catalog import SchemaKey
from spark_app.ops.log import log
from spark_app.schemas.changes import Version
from spark_app.schemas.column_decisions import Rules, decide_columns
from spark_app.schemas.field_names import with_names
from spark_app.schemas.ledger import Entry, Ledger
from spark_app.schemas.registry import Registry
from spark_app.schemas.subjects import Subjects

MOST_EARLIER = 100  # earlier versions that are looked at


class SchemaDecider:
    """Finds the version before a schema, and decides."""

    def __init__(self, ledger: Ledger, registry: Registry, subjects: Subjects, judgement: Judgement):
        self._ledger = ledger
        self._registry = registry
        self._subjects = subjects
        self._judgement = judgement
        self.decides = judgement.decides

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
        for entry in list(self._ledger.entries.values()):
            if entry.subjects.get(subject) == version - 1 and entry.key != key:
                return entry.key
        for _, earlier in itertools.islice(self._registry.versions_before(subject, version), MOST_EARLIER):
            known = self._ledger.entries.get(earlier)
            if earlier != key and (known is None or known.outcome != "refused"):
                return earlier
        return None

    def decide(self, key: SchemaKey, own: bytes, found: Mapping[str, int], before: SchemaKey | None) -> bytes:
        """The descriptor set of a schema with the names of its columns.

        Args:
            own: the descriptor set.
            before: the version before it, which is in the ledger.
        """
        if not self.decides:
            return own
        subject, version = _first(self._subjects.kept(found))
        others = [e for e in self._ledger.entries.values() if e.outcome == "decodable" and subject in e.subjects]
        beside = self._beside(before, [e for e in others if e.subjects[subject] > version], subject)
        if beside is None:
            return own
        known = (self._ledger.decoded_set(entry) for entry in others[-MOST_EARLIER:])
        try:
            return decided(own, beside, known, self._judgement)
        except Exception as error:  # one schema must not stop the app at every start
            reason = f"{type(error).__name__}: {error}"
            log.warning("the columns of a schema keep the names of its fields", schema=key, reason=reason)
            return own

    def _beside(self, before: SchemaKey | None, later: list[Entry], subject: str) -> Version | None:
        """The version from which the columns go on."""
        entry = self._ledger.entries.get(before) if before is not None else None
        if entry is None and later:
            entry = min(later, key=lambda one: one.subjects[subject])
        return self._ledger.version(entry) if entry is not None and entry.outcome == "decodable" else None


def decided(own: bytes, beside: Version, known: Iterable[bytes], judgement: Judgement) -> bytes:
    """The descriptor set of a schema with the names of its columns; see `decide_columns`."""
    if not judgement.decides:
        return own
    rules = Rules(judgement.policies, judgement.named)
    decoded = with_names(own, decide_columns(own, beside, known, rules))
    load_files(decoded)  # fails unless the names are possible
    return decoded


def _first(subjects: Mapping[str, int]) -> tuple[str, int]:
    """The subject in which a schema is compared, and its version there; ("", 0) without one."""
    return next(iter(subjects.items()), ("", 0))
