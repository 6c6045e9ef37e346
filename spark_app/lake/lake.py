"""The layout of a lake: which table and which part of its state has which key (see `local`).

`spark_app/README.md` says what each key of the state holds.

The reasons: docs/decisions/storage.md.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from functools import cached_property
from pathlib import Path
from posixpath import basename
from typing import TYPE_CHECKING, cast

from spark_app.lake.files import failpoints, reference_files
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.local import LocalStorage, open_storage
from spark_app.lake.files.state_files import numbers_of, write_durably
from spark_app.lake.files.storage import Storage
from spark_app.lake.lease import DeleteRounds, FileLease, Lease, ObjectLease
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError
from spark_app.model.table_names import GOLD

if TYPE_CHECKING:
    from spark_app.lake.files.objects import ObjectStorage

STATE = "_protolake"
SEQUENCE_DIGITS = 12
IDENTITY = re.compile("protolake-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Lake:
    """Delta tables with Protolake's state beside them.

    Attributes:
        address: where it is.
        storage: reads and writes the files. All other attributes in lower case, except `local_state` and `lease`, are
            keys.
        local_state: files that concern only this machine: Spark's checkpoint, the locks, the page's token, the
            attempts. For a lake on a local disk they are in the lake.
        lease: the right to write.
    """

    state = STATE
    id = f"{STATE}/id"
    leased = f"{STATE}/lease.json"
    fixed_settings = f"{STATE}/rules.json"
    manifests = f"{STATE}/manifests"
    schemas = f"{STATE}/schemas"
    ledger = f"{STATE}/schemas/ledger.json"
    admitted = f"{STATE}/tables.json"
    definitions = f"{STATE}/definitions.json"
    field_ids = f"{STATE}/field_ids.json"
    spool = f"{STATE}/spool"
    followers = f"{STATE}/followers"
    settings = f"{STATE}/settings.json"
    synced = f"{STATE}/synced.json"
    checkpoint = f"{STATE}/checkpoint"
    requests = f"{STATE}/requests"
    attempts = f"{STATE}/attempts.json"
    deferred = f"{STATE}/deferred.json"
    starts = f"{STATE}/starts.json"
    status = f"{STATE}/status.json"
    scratch = f"{STATE}/scratch.json"
    rebuild = f"{STATE}/rebuild"
    ingested = f"{STATE}/taken"
    references = reference_files.FOLDER
    sql_tables = f"{STATE}/sql"
    torn = f"{STATE}/torn"
    aside = f"{STATE}/aside"
    page = f"{STATE}/page"
    sinks = f"{STATE}/sinks"

    def __init__(self, address: str | Path | StorageAddress, sink: str = ""):
        """
        Args:
            sink: the lease is that of this sink, whose process writes only below its folder.
        """
        self.address = StorageAddress.of(address)
        self._sink = sink
        self.storage = open_storage(self.address, self._fence)
        storage = self.storage
        self.local_state = storage if isinstance(storage, LocalStorage) else LocalStorage(self.address.local_folder)
        self._folders: set[str] = set()  # valid table names; each batch looks up each table several times

    @cached_property
    def lease(self) -> Lease:
        folder, name = (self.sink(self._sink), f"{self.uri} for sink {self._sink}") if self._sink else (STATE, self.uri)
        of_machine = FileLease(self.local_state.path(folder), name)
        if self.storage is self.local_state:
            return of_machine
        return ObjectLease(cast("ObjectStorage", self.storage), f"{folder}/{basename(self.leased)}", of_machine)

    def _fence(self) -> None:
        """As `Lease.check`, in a process that has acquired the lease."""
        if self.lease.epoch:
            self.lease.check()

    @cached_property
    def deletes(self) -> DeleteRounds:
        """Removes files that no log names."""
        return DeleteRounds(self.storage, f"{STATE}/deletes", self.lease)

    @property
    def uri(self) -> str:
        """The folder of the lake, or the address of its bucket and prefix."""
        return self.storage.root

    @property
    def root(self) -> Path:
        """The folder of `local_state`."""
        return Path(self.local_state.root)

    def path(self, key: str) -> Path:
        """The path of a file or folder of `local_state`."""
        return self.local_state.path(key)

    def table(self, name: str) -> str:
        """The folder of a table. Table names are validated when they are admitted; this is a second check.

        Raises:
            ContractError: the name is not a plain folder name.
        """
        if name not in self._folders:
            if not name or name != os.path.basename(name) or name.startswith((".", STATE)):
                raise ContractError(f"table name {name!r} is not a plain folder name; nothing was written")
            self._folders.add(name)
        return name

    def sink(self, name: str) -> str:
        """The folder of a sink."""
        return f"{self.sinks}/{name}"

    def gold_state(self, kind: str) -> str:
        """The file with what the gold tables of this kind were computed by."""
        return f"{STATE}/gold.json" if kind == GOLD else f"{STATE}/gold/{kind}.json"

    def tables(self) -> list[str]:
        """Names of the Delta tables that exist, sorted."""
        return [name for name in self.storage.list("") if name[0] != "." and self.has_table(name)]

    def has_table(self, name: str) -> bool:
        """As `Storage.exists` of a Delta table of this name."""
        return self.storage.exists(f"{name}/_delta_log")

    def units(self) -> list[int]:
        """Numbers of the existing manifests, ascending."""
        return numbers_of(self.storage, self.manifests)

    def files_from(self, sequence: int) -> dict[str, list[str]]:
        """Table -> files of the units from number `sequence` on."""
        found: dict[str, list[str]] = {}
        for table in self.storage.list(""):
            for key in self.storage.list(table, "part-"):
                number = basename(key).split("-", 2)[1]
                is_unit = key.endswith(".parquet") and number.isdecimal() and len(number) == SEQUENCE_DIGITS
                if is_unit and int(number) >= sequence:
                    found.setdefault(table, []).append(key)
        return found

    def set_aside(self, key: str, is_local: bool = False) -> str:
        """Move a file or folder to `aside`; nothing is deleted. Returns a message.

        Args:
            is_local: it is one of `local_state`.
        """
        storage = self.local_state if is_local else self.storage
        stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:6]}"
        target = f"{self.aside}/{basename(key)}-{stamp}"
        with failpoints.around("aside"):
            storage.move(key, target)
        return f"moved {storage.uri(key)} to {storage.uri(target)}"

    def prepare(self) -> None:
        """Create the folders.

        Raises:
            ConfigurationError: this user may not write to the lake.
            OSError: the disk is full.
        """
        try:
            if self.local_state is not self.storage:
                self.local_state.create_folders(self.state)
            self.storage.create_folders(self.manifests, self.schemas, self.requests, self.spool)
            self.storage.probe(self.trial(str(os.getpid())))
        except OSError as error:
            if is_full(error) or isinstance(error, UnreachableError):
                raise  # the settings are right: the caller waits for free disk space
            raise self.not_writable(error) from error

    def trial(self, name: str) -> str:
        """The key with which a process tries whether it may write."""
        return f"{self.state}/.probe-{name}"

    def not_writable(self, error: OSError) -> ConfigurationError:
        """The error that says why this process may not write, and what to do."""
        why = error.strerror if self.storage.is_local else error
        remedy = "name a bucket that exists, and keys that may read, write, list and delete in it"
        if self.storage.is_local:
            remedy = f"choose a folder that user {os.getuid()} may write to, or with Docker set PROTOLAKE_UID and "
            remedy += "PROTOLAKE_GID to its owner"
        return ConfigurationError(f"lake.path: cannot write to {self.uri} ({why}); {remedy}")

    def known_identity(self) -> str:
        """The lake's id; empty if the app has not made it yet, or it is damaged."""
        try:
            found = self.storage.get(self.id).decode(errors="replace").strip()
        except OSError:
            return ""
        return found if IDENTITY.fullmatch(found) else ""

    def identity(self) -> str:
        """The lake's id, created on first use. It is the application id of every Delta transaction.

        Raises:
            ContractError: the id is damaged, or missing although the lake has tables.
        """
        path = self.storage.uri(self.id)
        if not self.storage.exists(self.id):
            if self.tables():
                raise ContractError(
                    f"{path} is missing although {self.uri} has tables",
                    "restore it from a backup, or run `doctor --repair`, which finds the id in bronze",
                )
            write_durably(self.storage, self.id, f"protolake-{uuid.uuid4()}\n", "identity")
        found = self.storage.get(self.id).decode(errors="replace").strip()
        if not IDENTITY.fullmatch(found):
            raise ContractError(
                f"{path} is damaged", "restore it from a backup, or run `doctor --repair`, which finds the id in bronze"
            )
        return found


def remove_files(storage: Storage, prefix: str) -> None:
    """Remove the files of a failed job; their names begin with `prefix`."""
    for table in storage.list(""):
        storage.delete(*(key for key in storage.list(table, f"{prefix}-") if key.endswith(".parquet")))


def unit_file_prefix(sequence: int) -> str:
    """The prefix of a unit's file names: the unit's number, and a random part for this attempt."""
    return f"part-{sequence:0{SEQUENCE_DIGITS}d}-{uuid.uuid4().hex[:8]}"
