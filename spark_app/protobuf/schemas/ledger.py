"""The schema ledger: every schema id (or GUID) seen so far and its outcome. An id in the ledger is never a bump again.

It is one JSON file in the lake, replaced durably. The compiled descriptor sets, the comments of their messages and the
comparisons with the versions before are beside it, named by their digest.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from spark_app.lake.delta.merged_columns import find_clash, grows, merge_columns
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog, Decodable, Form, MessageIndex, Numbering, SchemaKey
from spark_app.model.causes import Cause
from spark_app.model.columns import Aliases
from spark_app.model.errors import ContractError
from spark_app.model.schema_changes import Comparison, Kind, Policy
from spark_app.protobuf.changes.differences import Version
from spark_app.protobuf.changes.message_aliases import find_aliases
from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.decode.numbering import depends_on_writer, index_within
from spark_app.protobuf.schemas.descriptors import digest

Outcome = Literal["decodable", "refused", "waiting"]


@dataclass(frozen=True)
class Entry:
    """One schema id or GUID.

    Attributes:
        met_at: when it was first seen, seconds since 1970; `schemas.unknown_id_grace_s` counts from here.
        digest: the digest of its descriptor set, if it is decodable or stopped.
        cause, detail: the reason of a refused schema. A waiting schema has only a detail, unless it is paused.
        version: its version in a configured subject, if it has one.
        form: the registered form of the file with its messages, if there is a digest; None = an earlier release added
            the entry.
        comments: the digest of its comments; "" = it has none, or an earlier release added the entry.
        subjects: its version in each of its subjects, as far as they are known; the topics' own come first.
        comparison: the digest of its comparison with the version before; "" = it is not compared yet. None = an earlier
            release added the entry, which is never compared.
        decoded: the digest of its descriptor set with the names of the columns, with which its records are decoded. It
            never changes. "" = all columns have the names of their fields.
        stopped_by: the kinds of changes that kept the schema from being decoded.
        encrypted: see `Sources`.
        accepted: the policy by which a person decided about these; "" = nobody had to, or has.
    """

    key: SchemaKey
    outcome: Outcome
    met_at: float
    digest: str = ""
    cause: str = ""
    detail: str = ""
    version: int | None = None
    form: Form | None = None
    comments: str = ""
    subjects: Mapping[str, int] = field(default_factory=dict)
    comparison: str | None = None
    decoded: str = ""
    stopped_by: Sequence[Kind] = ()
    accepted: Policy | Literal[""] = ""
    encrypted: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether the schema stays as it is until a person decides, because of what it changes."""
        return self.cause == Cause.SCHEMA_CHANGE and not self.accepted

    @property
    def is_paused(self) -> bool:
        """Whether its records wait for a decision."""
        return self.is_stopped and self.outcome == "waiting"

    @functools.cached_property
    def text(self) -> str:
        """The entry as JSON. Cached, because each write of the ledger contains all entries and few have changed."""
        return json.dumps(asdict(self))


MOST_UNKNOWN = 10_000  # most entries of ids unknown to the registry: corrupt frames can contain billions of ids
NEWEST_WARNINGS = 3  # that the status shows
MOST_WAITING = 10_000  # most waiting entries: the ledger must stay small even if the registry is down for a day


class Ledger:
    """The entries, in the order in which their ids were resolved. The first version in this order sets the type of a
    column.

    Raises:
        ContractError: the file or a descriptor set is damaged.
    """

    def __init__(self, lake: Lake, numbering: Numbering | None = "registered"):
        """`numbering` is the lake's numbering of messages; None = the lake has none."""
        self.numbering = numbering
        self._lake = lake
        self._storage = lake.storage
        stored = read_durable(self._storage, lake.ledger, list) or []
        self.entries: dict[SchemaKey, Entry] = {}
        self._waiting: dict[SchemaKey, None] = {}  # waiting schemas, the one with the oldest request first
        self._unknown: dict[SchemaKey, None] = {}  # schemas that the registry does not know, oldest first
        self._comparisons: dict[str, Comparison | None] = {}  # those that were read, by their digests
        self._catalog: Catalog | None = None
        self._decodable: Catalog | None = None  # the part of the catalog that rarely changes
        for item in stored:
            self._put(Entry(**item))
        self._saved = True

    def add_decodable(
        self,
        key: SchemaKey,
        descriptor_set: bytes,
        met_at: float,
        form: Form | None = None,
        version: int | None = None,
        comments: Mapping[str, str] = MappingProxyType({}),
        subjects: Mapping[str, int] = MappingProxyType({}),
        decoded: bytes = b"",
        encrypted: str = "",
    ) -> None:
        """
        Args:
            comments: full name of a message or field -> comment, by the names of the columns.
            subjects, encrypted: see `Entry`.
            decoded: the descriptor set with the names of the columns; empty = those of the fields.
        """
        entry = Entry(
            key,
            "decodable",
            met_at,
            digest=self.keep(descriptor_set),
            version=version,
            form=form,
            comments=self._keep_comments(comments),
            subjects=dict(subjects),
            comparison="",
            decoded=self.keep(decoded) if decoded not in (b"", descriptor_set) else "",
            encrypted=encrypted,
        )
        self._put(entry)

    def set_form(self, key: SchemaKey, descriptor_set: bytes, form: Form) -> None:
        """Set the registered form of a schema that an earlier release added. The entry keeps its position."""
        self.entries[key] = replace(self.entries[key], digest=self.keep(descriptor_set), form=form)
        self._catalog = self._decodable = None
        self._saved = False

    def set_comparison(self, key: SchemaKey, comparison: Comparison) -> None:
        """Set the comparison of a schema with the version before it. The entry keeps its position."""
        stored = self._store(json.dumps(asdict(comparison)).encode(), ".comparison")
        self.entries[key] = replace(self.entries[key], comparison=stored)
        self._saved = False

    def comparison_of(self, entry: Entry) -> Comparison | None:
        """The comparison of a schema with the version before it; None without one, or if its file is missing or was
        altered: the app goes on correctly without."""
        if entry.comparison and entry.comparison not in self._comparisons:
            text = self._read(entry.comparison, ".comparison")
            self._comparisons[entry.comparison] = Comparison.from_json(json.loads(text)) if text else None
        return self._comparisons.get(entry.comparison or "")

    def warnings(self) -> dict[str, Any]:
        """The number of warnings of all comparisons, the newest ones, and, apart from them, the schemas about which a
        person decides with their changes. The status thread calls this, too."""
        decodable = (e for e in list(self.entries.values()) if e.outcome == "decodable")
        compared = [comparison for e in decodable if (comparison := self.comparison_of(e))]
        newest = (f"{c.where}: {change.said}" for c in reversed(compared) for change in c.warnings)
        count = sum(len(c.warnings) for c in compared)
        stopped = {str(e.key): e.detail for e in list(self.entries.values()) if e.is_stopped}
        return {"count": count, "newest": list(itertools.islice(newest, NEWEST_WARNINGS)), "stopped": stopped}

    def awaited(self) -> dict[str, str]:
        """The first schemas that records wait for -> why. The status thread calls this, too."""
        waiting = (e for e in list(self.entries.values()) if e.outcome == "waiting" and not e.is_stopped)
        return {str(e.key): e.detail for e in itertools.islice(waiting, NEWEST_WARNINGS)}

    def uncompared(self) -> list[Entry]:
        """The decodable and the stopped schemas that are to be compared with the version before them."""
        return [e for e in list(self.entries.values()) if e.digest and e.comparison == ""]

    def keep(self, descriptor_set: bytes) -> str:
        """Store a descriptor set; returns its digest."""
        return self._store(descriptor_set, ".fds")

    def _keep_comments(self, comments: Mapping[str, str]) -> str:
        text = json.dumps(dict(comments), ensure_ascii=False, sort_keys=True)
        return self._store(text.encode(), ".comments") if comments else ""

    def _store(self, data: bytes, ending: str) -> str:
        """Store the data under its digest, which is returned."""
        name = digest(data)
        if not self._storage.exists(self._key(name, ending)):
            write_durably(self._storage, self._key(name, ending), data, "descriptors")
        return name

    def add_refused(self, key: SchemaKey, cause: Cause, detail: str, met_at: float) -> None:
        self._put(Entry(key, "refused", met_at, cause=cause.value, detail=detail))
        while len(self._unknown) > MOST_UNKNOWN:
            forgotten = next(iter(self._unknown))
            del self._unknown[forgotten], self.entries[forgotten]

    def add_waiting(self, key: SchemaKey, detail: str, met_at: float) -> None:
        self._put(Entry(key, "waiting", met_at, detail=detail))

    def add_stopped(
        self,
        key: SchemaKey,
        policy: Literal["pause", "quarantine"],
        detail: str,
        met_at: float,
        stopped_by: Sequence[Kind],
        descriptor_set: bytes,
        form: Form | None = None,
    ) -> None:
        """Add a schema about whose changes a person decides. Until then its records wait, or go to quarantine."""
        outcome: Outcome = "waiting" if policy == "pause" else "refused"
        entry = Entry(key, outcome, met_at, self.keep(descriptor_set), Cause.SCHEMA_CHANGE.value, detail)
        self._put(replace(entry, form=form, comparison="", stopped_by=stopped_by))

    def accept(self, key: SchemaKey, policy: Policy) -> None:
        """Note how a person decided about a schema that is stopped. The next `resolve` goes by it."""
        self._put(replace(self.entries[key], accepted=policy))

    def set_versions(self, versions: Mapping[int, int] | Mapping[SchemaKey, int], subject: str = "") -> None:
        """Set the versions of the schemas that are in the ledger.

        Args:
            versions: schema id -> version.
            subject: that of the versions, without context, for schemas that an earlier release added; "" = unknown.
        """
        for key, version in versions.items():
            old = self.entries.get(key)
            if old is not None:
                subjects = old.subjects or ({subject: version} if subject else {})
                self.entries[key] = replace(old, version=version, subjects=subjects)
                self._saved &= self.entries[key] == old

    def message_names(self, key: SchemaKey) -> list[str]:
        """Full names of the messages in a schema's own file; none if the ledger does not have it."""
        entry = self.entries.get(key)
        if entry is None or not entry.digest:
            return []
        return [message.full_name for _, message in _messages(self.descriptor_set(entry.digest))]

    def message(self, key: SchemaKey, full_name: str) -> Descriptor | None:
        """A message of a decodable schema's own file with the names of its columns; None if it has no such message."""
        found = _messages(self.decoded_set(self.entries[key]))
        return next((message for _, message in found if message.full_name == full_name), None)

    def commented(self) -> list[Entry]:
        """The decodable schemas that have comments, the newest last: by version; those without a version come first, by
        id and in the order in which they were resolved."""
        found = [e for e in list(self.entries.values()) if e.outcome == "decodable" and e.comments]
        return sorted(found, key=lambda e: (e.version or 0, e.key if isinstance(e.key, int) else 0))

    def comments_of(self, entry: Entry) -> dict[str, str]:
        """Full name -> comment, for messages and fields. Empty if the file is missing or was altered: the app goes on
        correctly without comments."""
        text = self._read(entry.comments, ".comments")
        return dict(json.loads(text)) if text else {}

    def _read(self, name: str, ending: str) -> bytes:
        """The data that was stored under a digest; empty if the file is missing or was altered."""
        file = self._key(name, ending)
        try:
            data = self._storage.get(file)
        except FileNotFoundError:
            return b""
        return data if digest(data) == name else b""

    def _put(self, entry: Entry) -> None:
        old = self.entries.pop(entry.key, None)
        if old is not None and old.accepted and not entry.accepted:
            kinds = tuple(dict.fromkeys((*old.stopped_by, *entry.stopped_by)))
            entry = replace(entry, accepted=old.accepted, stopped_by=kinds)
        self.entries[entry.key] = entry
        self._waiting.pop(entry.key, None)
        self._unknown.pop(entry.key, None)
        if entry.outcome == "waiting":
            self._waiting[entry.key] = None
            if old is not None and old.outcome == "waiting" and old.is_paused == entry.is_paused:
                return  # still waiting after a retry: the catalog stays valid, only the detail may differ
        elif entry.cause == Cause.SCHEMA_UNKNOWN:
            self._unknown[entry.key] = None
        if "decodable" in (entry.outcome, old and old.outcome):
            self._decodable = None
        self._catalog = None
        self._saved = False

    def save(self) -> None:
        """Make the ledger durable if it has changed. Call before a unit that depends on it is committed."""
        if not self._saved:
            text = ",\n ".join(entry.text for entry in self.entries.values())
            write_durably(self._storage, self._lake.ledger, f"[\n {text}\n]", "ledger")
            self._saved = True

    def waiting(self) -> list[Entry]:
        return [self.entries[key] for key in list(self._waiting)]

    def can_add_waiting(self) -> bool:
        """Whether one more schema may wait."""
        return len(self._waiting) < MOST_WAITING

    def versions(self) -> dict[str, int]:
        """schema key -> version of the subject. Iterates over a copy, because the status thread calls this, too."""
        return {str(e.key): e.version for e in list(self.entries.values()) if e.version is not None}

    def catalog(self) -> Catalog:
        """The catalog for the tasks. The same object until an entry changes."""
        if self._catalog is None:
            self._catalog = self._build_catalog()
        return self._catalog

    def _build_catalog(self) -> Catalog:
        if self._decodable is None:
            self._decodable = self._build_decodable()
        refused = {e.key: (e.cause, e.detail) for e in self.entries.values() if e.outcome == "refused"}
        paused = frozenset(key for key in self._waiting if self.entries[key].is_paused)
        return replace(self._decodable, refused=refused, waiting=frozenset(self._waiting), paused=paused)

    def _build_decodable(self) -> Catalog:
        decodable = {
            e.key: Decodable(e.key, self.decoded_set(e), e.decoded or e.digest, e.form, self.numbering, e.encrypted)
            for e in self.entries.values()
            if e.outcome == "decodable"
        }
        columns, types = message_types(decodable.values())
        return Catalog(decodable, {}, frozenset(), columns, types, aliases=self._aliases(decodable, types))

    def _aliases(
        self, decodable: Mapping[SchemaKey, Decodable], types: Mapping[tuple[SchemaKey, str], str]
    ) -> dict[str, Aliases]:
        registered = {
            key: self.descriptor_set(self.entries[key].digest) for key in decodable if self.entries[key].decoded
        }
        versions = (
            (key, Version(registered.get(key, one.descriptor_set), one.descriptor_set))
            for key, one in decodable.items()
        )
        return find_aliases(versions, types) if registered else {}

    def index_of(self, key: SchemaKey, message: str) -> MessageIndex:
        """The message index, by the lake's numbering, of a message in the own file of a decodable schema.

        Args:
            message: its full name; "" = the first message.

        Returns:
            An empty index, which names no message, if there is no such message.
        """
        if not message:
            return (0,)
        decodable = self.catalog().decodable.get(key)
        if decodable is None:
            return ()
        return find_message(decodable.descriptor_set, message, decodable.counts_entries is not False)

    def depending(self, uncommitted: bool = False) -> list[Decodable]:
        """Decodable schemas with a message whose index depends on the writer.

        Args:
            uncommitted: only those for which the lake's numbering needs the registered form and the ledger lacks it.
        """
        known = self.catalog().decodable.values()
        schemas = [d for d in known if d.counts_entries is None] if uncommitted else known
        return [d for d in schemas if depends_on_writer(load_files(d.descriptor_set)[1])]

    def _key(self, name: str, ending: str) -> str:
        return f"{self._lake.schemas}/{name}{ending}"

    def version(self, entry: Entry) -> Version:
        """
        Raises:
            ContractError: as `descriptor_set`.
        """
        return Version(self.descriptor_set(entry.digest), self.decoded_set(entry))

    def decoded_set(self, entry: Entry) -> bytes:
        """The descriptor set with the names of the columns.

        Raises:
            ContractError: as `descriptor_set`.
        """
        return self.descriptor_set(entry.decoded or entry.digest)

    def descriptor_set(self, name: str) -> bytes:
        """The descriptor set of this digest.

        Raises:
            ContractError: its file is missing or was altered.
        """
        data = self._read(name, ".fds")
        if not data:
            raise ContractError(
                f"{self._storage.uri(self._key(name, '.fds'))} is missing or was altered",
                "restore it from a backup, or run `doctor --repair`, which creates a new ledger",
            )
        return data


def message_types(decodables: Iterable[Decodable]) -> tuple[dict[str, pa.Schema], dict[tuple[SchemaKey, str], str]]:
    """(message type -> columns of all its versions; (schema, full name) -> message type, if it is not the full name).

    Unrelated subjects may give the same name to two messages. A schema is a version of the first type of its name that
    it does not contradict; if it contradicts all, it starts a new one: `Event`, `Event#2`. The order of the schemas
    matters.
    """
    columns: dict[str, pa.Schema] = {}
    types: dict[tuple[SchemaKey, str], str] = {}
    for decodable in decodables:
        for name, schema in message_schemas(decodable.descriptor_set).items():
            kind = next(kind for kind in _types_of(name) if kind not in columns or _agree(columns[kind], schema))
            columns[kind] = merge_columns(columns.get(kind, pa.schema([])), schema)
            if kind != name:
                types[decodable.key, name] = kind
    return columns, types


def _types_of(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}#{number}" for number in itertools.count(2))


def _agree(columns: pa.Schema, schema: pa.Schema) -> bool:
    merged = merge_columns(columns, schema)
    return find_clash(merged) is None and all(grows(field.type, merged.field(field.name).type) for field in schema)


@functools.lru_cache(maxsize=1024)
def message_schemas(descriptor_set: bytes) -> dict[str, pa.Schema]:
    """Full name -> columns, for every message of the schema's own file. A record may also be of a nested message."""
    return {message.full_name: arrow_schema(message) for _, message in _messages(descriptor_set)}


def find_message(descriptor_set: bytes, full_name: str, entries: bool = True) -> MessageIndex:
    """The index of the message in the schema's own file; an empty index, which names no message, if there is none.

    Args:
        entries: whether map entries count.
    """
    found = _messages(descriptor_set, entries)
    return next((index for index, message in found if message.full_name == full_name), ())


def _messages(descriptor_set: bytes, entries: bool = True) -> list[tuple[MessageIndex, Descriptor]]:
    found: list[tuple[MessageIndex, Descriptor]] = []
    for position, message in enumerate(load_files(descriptor_set)[1]):
        found.append(((position,), message))
    for index, message in found:
        found += [((*index, at), inner) for at, inner in index_within(message, entries)]
    return found
