"""The ledger of schema ids: every id ever met and what became of it. Once in the ledger, an id is never a bump again.

Kept in the lake as one JSON file, replaced durably; compiled descriptor sets lie beside it under their digest.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from spark_app.errors import ContractError
from spark_app.lake import read_durable, write_durably
from spark_app.records import Catalog, Cause, Decodable
from spark_app.schemas.columns import find_clash, merge_columns
from spark_app.schemas.descriptors import digest
from spark_app.worker.decode.reference import load_files
from spark_app.worker.decode.typemap import arrow_schema

Outcome = Literal["decodable", "refused", "waiting"]


@dataclass(frozen=True)
class Entry:
    """One schema id.

    Attributes:
        met_at: when the id was first met, seconds since 1970; patience counts from here.
        digest: of its descriptor set, when it is decodable.
        cause, detail: when it is refused, or why it waits.
        version: of the configured subject, when it is one of its versions.
    """

    schema_id: int
    outcome: Outcome
    met_at: float
    digest: str = ""
    cause: str = ""
    detail: str = ""
    version: int | None = None


class Ledger:
    """Entries in the order in which ids were settled: it decides which version gives a column its type."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._path = folder / "ledger.json"
        stored = read_durable(self._path) or []
        self.entries: dict[int, Entry] = {item["schema_id"]: Entry(**item) for item in stored}
        self._catalog: Catalog | None = None

    def add_decodable(self, schema_id: int, descriptor_set: bytes, met_at: float) -> None:
        key = digest(descriptor_set)
        path = self._folder / f"{key}.fds"
        if not path.exists():
            write_durably(path, descriptor_set)
        self._put(Entry(schema_id, "decodable", met_at, digest=key))

    def add_refused(self, schema_id: int, cause: Cause, detail: str, met_at: float) -> None:
        self._put(Entry(schema_id, "refused", met_at, cause=cause.value, detail=detail))

    def add_waiting(self, schema_id: int, detail: str, met_at: float) -> None:
        self._put(Entry(schema_id, "waiting", met_at, detail=detail))

    def name_versions(self, versions: dict[int, int]) -> None:
        """Enter the versions of ids that are known."""
        for schema_id in versions.keys() & self.entries.keys():
            self.entries[schema_id] = replace(self.entries[schema_id], version=versions[schema_id])

    def has_unnamed(self) -> bool:
        """Whether a decodable id has no version yet: it was met before the subject was asked."""
        return any(e.outcome == "decodable" and e.version is None for e in self.entries.values())

    def _put(self, entry: Entry) -> None:
        self.entries.pop(entry.schema_id, None)
        self.entries[entry.schema_id] = entry
        self._catalog = None

    def save(self) -> None:
        """Make the ledger durable: before any unit is decided that relies on it."""
        write_durably(self._path, json.dumps([asdict(entry) for entry in self.entries.values()], indent=1))

    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.outcome == "waiting"]

    def versions(self) -> dict[str, int]:
        """schema id -> version of the subject, for people. Also from the status thread, hence the copy."""
        return {str(e.schema_id): e.version for e in list(self.entries.values()) if e.version is not None}

    def catalog(self) -> Catalog:
        """What a pass works with. The same object until an entry changes."""
        if self._catalog is None:
            self._catalog = self._build_catalog()
        return self._catalog

    def _build_catalog(self) -> Catalog:
        decodable = {
            e.schema_id: Decodable(e.schema_id, self._descriptor_set(e.digest), e.digest)
            for e in self.entries.values()
            if e.outcome == "decodable"
        }
        schemas = [message_schemas(d.descriptor_set) for d in decodable.values()]
        columns = merge_columns(pa.schema([]), *(root for found in schemas for root in found.roots))
        for part in (part for found in schemas for part in found.parts):
            grown = merge_columns(columns, part)
            columns = grown if find_clash(grown) is None else columns
        refused = {e.schema_id: (e.cause, e.detail) for e in self.entries.values() if e.outcome == "refused"}
        return Catalog(decodable, refused, frozenset(e.schema_id for e in self.waiting()), columns)

    def _descriptor_set(self, key: str) -> bytes:
        data = (self._folder / f"{key}.fds").read_bytes()
        if digest(data) != key:
            raise ContractError(f"{self._folder / key}.fds was altered: restore it, or remove it and its ledger entry")
        return data


@dataclass(frozen=True)
class MessageSchemas:
    """Columns of the messages of one file: `roots` are not a field of another message, `parts` are.

    A record may be of any of them, but a part's columns must not decide the types of a root's.
    """

    roots: list[pa.Schema]
    parts: list[pa.Schema]


@functools.lru_cache(maxsize=1024)
def message_schemas(descriptor_set: bytes) -> MessageSchemas:
    """Columns of every message of the schema's own file."""
    _, messages = load_files(descriptor_set)
    found = list(messages)
    for message in found:
        found += [nested for nested in message.nested_types if not nested.GetOptions().map_entry]
    used = {f.message_type.full_name for m in found for f in m.fields if f.message_type not in (None, m)}
    roots = [m for m in messages if m.full_name not in used] or messages[:1]
    parts = [m for m in found if m not in roots]
    return MessageSchemas([arrow_schema(m) for m in roots], [arrow_schema(m) for m in parts])
