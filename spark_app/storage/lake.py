"""All paths of a lake, and its lock. Only this module knows that a lake is a local folder.

<lake>/<table>/                  a Delta table
<lake>/_protolake/id             the lake's identity, part of every transaction id
<lake>/_protolake/rules.json     the settings that must not change during the lake's life
<lake>/_protolake/manifests/     committed units, one file each
<lake>/_protolake/schemas/       ledger of schema ids, compiled descriptor sets
<lake>/_protolake/requests/      requests of `replay` and `rebuild`, and their results
<lake>/_protolake/checkpoint/    Spark's checkpoint of the ingest query
<lake>/_protolake/synced.json    the last unit and table versions that are durable
<lake>/_protolake/statistics.json    present once no file has the wrong statistics of earlier releases
<lake>/_protolake/gold.json      current definitions of the gold tables
<lake>/_protolake/aside/         files that `doctor --repair` or an accepted loss moved here
<lake>/_protolake/scratch.json   names of temporary folders whose default name was taken
<lake>/_protolake/status.json    the status that `status` prints
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
import uuid
from pathlib import Path
from typing import IO, Any

from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError
from spark_app.storage import failpoints
from spark_app.storage.disk import is_full

STATE = "_protolake"
SEQUENCE_DIGITS = 12
IDENTITY = re.compile("protolake-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Lake:
    """A folder of Delta tables with Protolake's state beside them."""

    def __init__(self, root: str | Path):
        self.root = Path(root).absolute()
        self.state = self.root / STATE
        self.manifests = self.state / "manifests"
        self.schemas = self.state / "schemas"
        self.requests = self.state / "requests"
        self.checkpoint = self.state / "checkpoint"
        self.status = self.state / "status.json"
        self.gold = self.state / "gold.json"
        self.synced = self.state / "synced.json"
        self.scratch = self.state / "scratch.json"
        self.statistics = self.state / "statistics.json"
        self.aside = self.state / "aside"
        self._locks: list[IO[str]] = []
        self._folders: dict[str, Path] = {}  # table name -> folder; each batch looks up each table several times

    def table(self, name: str) -> Path:
        """The folder of a table. Table names are validated when they are admitted; this is a second check.

        Raises:
            ContractError: the name is not a plain folder name.
        """
        if name not in self._folders:
            if not name or name != os.path.basename(name) or name.startswith((".", STATE)):
                raise ContractError(f"table name {name!r} is not a plain folder name; nothing was written")
            self._folders[name] = self.root / name
        return self._folders[name]

    def tables(self) -> list[str]:
        """Names of the Delta tables that exist, sorted."""
        if not self.root.is_dir():
            return []
        folders = (path for path in self.root.iterdir() if path.name[0] != ".")
        return sorted(f.name for f in folders if os.path.isdir(f / "_delta_log"))  # False if access is denied

    def exists(self, path: str) -> bool:
        """Whether a file of a table exists."""
        return os.path.exists(path)

    def units(self) -> list[int]:
        """Numbers of the existing manifests, ascending."""
        return sorted(int(path.stem) for path in self.manifests.glob("[0-9]*.json"))

    def files_from(self, sequence: int) -> dict[str, list[Path]]:
        """Table folder -> files of the units from number `sequence` on."""
        found: dict[str, list[Path]] = {}
        for table in self.root.iterdir() if self.root.is_dir() else ():
            for path in table.glob("part-*.parquet"):
                number = path.name.split("-", 2)[1]
                if number.isdigit() and len(number) == SEQUENCE_DIGITS and int(number) >= sequence:
                    found.setdefault(table.name, []).append(path)
        return found

    def set_aside(self, path: Path) -> str:
        """Move a file or folder of the lake to `aside`; nothing is deleted. Returns a message."""
        self.aside.mkdir(exist_ok=True)
        place = self.aside / f"{path.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:6]}"
        with failpoints.around("aside"):
            os.rename(path, place)
            sync_folder(path.parent)
            sync_folder(self.aside)
        return f"moved {path} to {place}"

    def remove_files(self, prefix: str) -> None:
        """Remove the files of a failed job; their names begin with `prefix`."""
        for path in self.root.glob(f"*/{prefix}-*.parquet"):
            path.unlink(missing_ok=True)

    def prepare(self) -> None:
        """Create the folders.

        Raises:
            ConfigurationError: this user may not write to the lake.
            OSError: the disk is full.
        """
        made = [folder for folder in (self.state, *self.state.parents) if not folder.exists()]
        try:
            for folder in (self.manifests, self.schemas, self.requests):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.manifests, *made):
                sync_folder(folder.parent)
            probe = self.state / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            if is_full(error):
                raise  # the settings are right: the caller waits for free disk space
            raise ConfigurationError(
                f"lake.path: cannot write to {self.root} ({error.strerror}); choose a folder that user {os.getuid()} "
                "may write to, or with Docker set PROTOLAKE_UID and PROTOLAKE_GID to its owner"
            ) from error

    def mark_statistics(self) -> None:
        """Record that all files have correct statistics."""
        if not self.statistics.exists():
            write_durably(self.statistics, '{"right": true}\n', "statistics")

    def identity(self) -> str:
        """The lake's id, created on first use. It is the application id of every Delta transaction.

        Raises:
            ContractError: the id is damaged, or missing although the lake has tables.
        """
        path = self.state / "id"
        if not path.exists():
            if self.tables():
                raise ContractError(
                    f"{path} is missing although {self.root} has tables",
                    "restore it from a backup, or run `doctor --repair`, which finds the id in bronze",
                )
            self.mark_statistics()  # the lake is new: no earlier release has written to it
            write_durably(path, f"protolake-{uuid.uuid4()}\n", "identity")
        found = path.read_text(errors="replace").strip()
        if not IDENTITY.fullmatch(found):
            raise ContractError(
                f"{path} is damaged", "restore it from a backup, or run `doctor --repair`, which finds the id in bronze"
            )
        return found

    def lock(self, timeout_s: float = 7.0) -> None:
        """Become the only writer, and wait until the JVM of a killed predecessor is gone too.

        Raises:
            UnreachableError: another process still holds the lake after `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        for name, take in (("lock", fcntl.flock), ("lock.jvm", fcntl.lockf)):
            handle = (self.state / name).open("a+")
            while not _try_lock(handle, take):
                if time.monotonic() > deadline:
                    handle.close()
                    self.unlock()
                    raise UnreachableError(
                        f"lake {self.root} is in use by another process ({name} is locked): stop that process first"
                    )
                time.sleep(0.2)
            self._locks.append(handle)
        # The JVM takes the second lock itself as soon as it runs (`lock_lake_in_jvm`).
        self._locks.pop().close()

    def unlock(self) -> None:
        for handle in self._locks:
            handle.close()
        self._locks.clear()


def unit_file_prefix(sequence: int) -> str:
    """The prefix of a unit's file names: the unit's number, and a random part for this attempt."""
    return f"part-{sequence:0{SEQUENCE_DIGITS}d}-{uuid.uuid4().hex[:8]}"


def _try_lock(handle: IO[str], take: Any) -> bool:
    try:
        take(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_durably(path: Path, text: str | bytes, step: str) -> None:
    """Replace a file durably: after a power cut it has the old or the new content.

    Args:
        step: one of `failpoints.STEPS`.
    """
    data = text.encode() if isinstance(text, str) else text
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with failpoints.around(step):
        with temporary.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)


def write_quickly(path: Path, value: Any, step: str | None) -> None:
    """Replace a JSON file atomically but not durably.

    Args:
        step: one of `failpoints.STEPS`; None for files that only people read.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with failpoints.around(step) if step else contextlib.nullcontext():
        temporary.write_text(json.dumps(value))
        os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """The object in a file of `write_quickly`; None if there is no file or its content is damaged."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text())
        return value if isinstance(value, dict) else None
    return None


def read_durable(path: Path, kind: type = dict) -> Any:
    """The value in a JSON file of `write_durably`; None if there is no file.

    Raises:
        ContractError: the file is damaged, or its value is not of the type `kind`.
    """
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ContractError(f"{path} is damaged ({error})", "restore it from a backup of the lake") from None
    if not isinstance(value, kind):
        raise ContractError(f"{path} is damaged", "restore it from a backup of the lake")
    return value


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
