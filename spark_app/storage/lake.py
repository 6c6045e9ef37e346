"""Where everything lives, and the lock: the only module that knows the lake is a local folder.

<lake>/<table>/                  a Delta table
<lake>/_protolake/id             the lake's identity, part of every transaction id
<lake>/_protolake/rules.json     the settings that must not change while the lake lives
<lake>/_protolake/manifests/     decided units, one file each
<lake>/_protolake/schemas/       ledger of schema ids, compiled descriptor sets
<lake>/_protolake/requests/      what `replay` and `rebuild` ask of the app, and its answers
<lake>/_protolake/checkpoint/    Spark's checkpoint of the ingest query
<lake>/_protolake/synced.json    how far the commits are on the disk itself
<lake>/_protolake/statistics.json    no file has statistics that hide rows, as those of earlier releases may
<lake>/_protolake/gold.json      definitions of the gold tables as they are
<lake>/_protolake/aside/         what `doctor --repair` and an accepted loss moved out of the way
<lake>/_protolake/scratch.json   temporary folders whose usual name somebody else had
<lake>/_protolake/status.json    what `status` shows
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
        self._folders: dict[str, Path] = {}  # of tables: each batch asks for each of them several times

    def table(self, name: str) -> Path:
        """The folder of a table. Names are checked where they are admitted; this is the second fence."""
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
        return sorted(f.name for f in folders if os.path.isdir(f / "_delta_log"))  # False where one may not look

    def exists(self, path: str) -> bool:
        """Whether a file of a table is there."""
        return os.path.exists(path)

    def units(self) -> list[int]:
        """Numbers of the manifests that are there, ascending."""
        return sorted(int(path.stem) for path in self.manifests.glob("[0-9]*.json"))

    def files_from(self, sequence: int) -> dict[str, list[Path]]:
        """Table folder -> its files of units from `sequence` on."""
        found: dict[str, list[Path]] = {}
        for table in self.root.iterdir() if self.root.is_dir() else ():
            for path in table.glob("part-*.parquet"):
                number = path.name.split("-", 2)[1]
                if number.isdigit() and len(number) == SEQUENCE_DIGITS and int(number) >= sequence:
                    found.setdefault(table.name, []).append(path)
        return found

    def set_aside(self, path: Path) -> str:
        """Move a file or folder of the lake out of the way; nothing is deleted. Returns what was done."""
        self.aside.mkdir(exist_ok=True)
        place = self.aside / f"{path.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:6]}"
        with failpoints.around("aside"):
            os.rename(path, place)
            sync_folder(path.parent)
            sync_folder(self.aside)
        return f"moved {path} to {place}"

    def remove_files(self, prefix: str) -> None:
        """Remove the files that a failed pass left."""
        for path in self.root.glob(f"*/{prefix}-*.parquet"):
            path.unlink(missing_ok=True)

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            ConfigurationError: the lake cannot be written.
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
                raise  # the lake may be written, only not now
            raise ConfigurationError(
                f"lake.path: cannot write to {self.root} ({error.strerror}); choose a folder that user {os.getuid()} "
                "may write to, or with Docker set PROTOLAKE_UID and PROTOLAKE_GID to its owner"
            ) from error

    def mark_statistics(self) -> None:
        """All files have right statistics."""
        if not self.statistics.exists():
            write_durably(self.statistics, '{"right": true}\n', "statistics")

    def identity(self) -> str:
        """The lake's id, made on first use. It is the application id of every Delta transaction."""
        path = self.state / "id"
        if not path.exists():
            if self.tables():
                raise ContractError(
                    f"{path} is missing although {self.root} has tables",
                    "restore it from a backup, or run `doctor --repair`, which finds the id in bronze",
                )
            self.mark_statistics()  # of a new lake: no earlier release has written to it
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
        # The JVM takes this one itself as soon as it runs (jvm.lock_lake_in_jvm).
        self._locks.pop().close()

    def unlock(self) -> None:
        for handle in self._locks:
            handle.close()
        self._locks.clear()


def unit_file_prefix(sequence: int) -> str:
    """How the names of a unit's files begin: the unit, and a random part of this attempt at it."""
    return f"part-{sequence:0{SEQUENCE_DIGITS}d}-{uuid.uuid4().hex[:8]}"


def _try_lock(handle: IO[str], take: Any) -> bool:
    try:
        take(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_durably(path: Path, text: str | bytes, step: str) -> None:
    """Replace a file so that after a power cut it is the old one or the new one.

    Args:
        step: of `failpoints.STEPS`.
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
    """Replace a JSON file that may be lost with the machine, but is never seen half written.

    Args:
        step: of `failpoints.STEPS`; None for what nothing but people reads.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with failpoints.around(step) if step else contextlib.nullcontext():
        temporary.write_text(json.dumps(value))
        os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """The object in a file of `write_quickly`; None when there is none or the machine lost it half written."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text())
        return value if isinstance(value, dict) else None
    return None


def read_durable(path: Path, kind: type = dict) -> Any:
    """The value of a JSON file of `write_durably`; None when there is none.

    Raises:
        ContractError: it is damaged, or no `kind`.
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
