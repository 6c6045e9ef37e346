"""Keeps copies of a reference table in the lake: its newest version and a few older ones, each under its content.

_protolake/references/NAME.json               {"settings": ..., "source": ..., "contents": [newest, ...]}
_protolake/references/NAME/<content>.arrow    the rows
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

import pyarrow as pa

from spark_app.lake.files.reference_files import (
    FOLDER,
    KEY,
    digest_of,
    is_copy_of,
    is_whole,
    key_of,
    name_of,
    read_copy,
)
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.settings.silver import Reference


@dataclass(frozen=True)
class Version:
    """A version of a reference table of which the lake has a copy.

    Attributes:
        source: the text of `SourceTable.version`.
        content: names the copy.
        schema: its columns: the key, then the joined ones by their names in silver.
        rows: how many it has.
    """

    source: str
    content: str
    schema: pa.Schema
    rows: int

    @property
    def key_type(self) -> pa.DataType:
        return self.schema.field(KEY).type

    @property
    def joined(self) -> pa.Schema:
        return pa.schema(list(self.schema)[1:])


class Snapshots:
    """The copies of one reference table."""

    def __init__(self, lake: Lake, name: str, settings: Reference):
        self._lake = lake
        self._storage = lake.storage
        self._name = name
        self._settings = settings
        self._key = f"{FOLDER}/{name}.json"

    def newest(self) -> Version | None:
        """The version that was kept last, if it was made by these settings.

        Raises:
            ContractError: the file about the versions is damaged.
        """
        stored = self._stored()
        if not stored or stored["settings"] != self._made_by():
            return None
        newest = stored["contents"][0]
        return self._version(stored["source"], newest) if is_whole(self._storage, self._name, newest) else None

    def keep(self, table: pa.Table, source: str) -> Version:
        """Keep a copy of the table durably, and remove those that are too old.

        Args:
            table: the key, then the columns of the settings.
        """
        joined = {new: table[name] for name, new in self._settings.renamed.items()}
        columns = {KEY: table[self._settings.key], **joined}
        data = _as_file(pa.table(columns))
        stored = self._stored() or {"contents": []}
        content = self._name_of(data, stored["contents"])
        self._storage.create_folders(f"{FOLDER}/{self._name}")
        write_durably(self._storage, key_of(self._name, content), data, "reference")
        others = [one for one in stored["contents"] if one != content]
        contents = [content, *others][: self._settings.keep_versions]
        self._store(source, contents)
        self._remove_others(contents)
        return self._version(source, content)

    def _name_of(self, data: memoryview, known: Sequence[str]) -> str:
        """The name of a copy with this content; the same as before if there is one."""
        digest = digest_of(data)
        return next((one for one in known if is_copy_of(one, digest)), name_of(digest, self._lake.lease.epoch))

    def _stored(self) -> dict[str, Any]:
        return read_durable(self._storage, self._key) or {}

    def _store(self, source: str, contents: Sequence[str]) -> None:
        value = {"settings": self._made_by(), "source": source, "contents": contents}
        write_durably(self._storage, self._key, json.dumps(value, indent=1), "reference")

    def _made_by(self) -> dict[str, Any]:
        """The settings that the copies depend on."""
        settings = self._settings
        return {
            "path": settings.path,
            "key": settings.key,
            "columns": list(settings.columns),
            "prefix": settings.prefix,
        }

    def _version(self, source: str, content: str) -> Version:
        rows = read_copy(self._storage, self._name, content)
        return Version(source, content, rows.schema, len(rows))

    def _remove_others(self, contents: Sequence[str]) -> None:
        """A kill may have left a copy that no list names."""
        kept = {f"{content}.arrow" for content in contents}
        found = self._storage.list(f"{FOLDER}/{self._name}")
        self._lake.deletes.delete([key for key in found if basename(key) not in kept])


def _as_file(table: pa.Table) -> memoryview:
    [batch] = table.combine_chunks().to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())
