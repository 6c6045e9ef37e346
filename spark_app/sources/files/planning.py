"""Plans what the next unit reads from the files of a source.

The reasons: docs/decisions/file-source.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import ContractError, first_message_line
from spark_app.settings.models import Batch
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import Changed, Listed, SourceFolder
from spark_app.sources.files.ingested import IngestedFile
from spark_app.sources.files.input import FileFailed, Part
from spark_app.sources.files.scanning import PARQUET, Scan, Unreadable, format_of, may_pass, scan

T = TypeVar("T")

REPLACED = "restore the file as it was, and give other content a name of its own"
UNDECODABLE = "write its records into a file that can be read, and ingest the folder into a new lake"
REFUSED_S = 60.0  # after which a file that the system refused to read is tried again

Due = tuple[Listed, IngestedFile | None]  # a file, and its entry if the ledger has one


class Listing(Protocol):
    """Which files are due.

    Attributes:
        version: see `DeltaListing`.
        resting: new files that are not yet at rest.
        gone: key -> why a file cannot be ingested.
    """

    version: int
    gone: dict[str, str]

    @property
    def resting(self) -> Collection[str]: ...

    def known(self, keys: Iterable[str]) -> dict[str, IngestedFile]: ...

    def note_ingested(self, files: Iterable[IngestedFile]) -> None: ...

    def without_rows(self, key: str) -> None: ...

    def find(self, again: Iterable[str], skip: Callable[[Listed], bool]) -> list[Due]: ...

    def is_at_rest(self, listed: Listed) -> bool: ...


@dataclass(frozen=True)
class Plan:
    """
    Attributes:
        start, end: running numbers of the rows.
        files: the entries of the ledger after it, and those of files that were only touched.
    """

    start: int
    end: int
    parts: tuple[Part, ...]
    files: tuple[IngestedFile, ...]

    def source(self, version: int) -> dict[str, Any]:
        """Its entry in the manifest."""
        entry: dict[str, Any] = {"files": [asdict(file) for file in self.files]}
        return entry | ({"version": version} if version >= 0 else {})


@dataclass(frozen=True)
class _KeptOut:
    """
    Attributes:
        why: None = it has no rows.
        until: monotonic time, or for as long as the file stays as it is.
    """

    listed: Listed
    why: str | None
    until: float = math.inf


class _Load:
    """What is planned so far, within the limits of a batch."""

    def __init__(self, batch: Batch):
        self._batch = batch
        self.parts: list[Part] = []
        self._rows = self._bytes = 0

    def is_full(self, rows: int = 1, size: int = 1) -> bool:
        """Whether so much more is too much; the first piece always fits."""
        over = self._rows + rows > self._batch.max_records or self._bytes + size > self._batch.max_bytes
        return bool(self.parts) and over

    def add(self, part: Part) -> None:
        last, piece = self.parts[-1] if self.parts else None, part.piece
        if last is not None and last.file == part.file and last.piece.group == piece.group >= 0:
            # One part of each row group, because a task reads a group from its beginning.
            rows, size = last.piece.rows + piece.rows, last.piece.bytes + piece.bytes
            part = replace(self.parts.pop(), piece=replace(last.piece, rows=rows, end=piece.end, bytes=size))
        self.parts.append(part)
        self._rows += piece.rows
        self._bytes += piece.bytes


class Planner:
    """Plans units of files that are at rest and whole.

    Attributes:
        rewritten: which file that is ingested in part is being written again, so that nothing is planned; "" = none.
    """

    def __init__(
        self,
        folder: SourceFolder,
        listing: Listing,
        columns: SourceColumns,
        batch: Batch,
        open_file: IngestedFile | None,
        proceed: Callable[[], None] = lambda: None,
    ):
        """`open_file` is the file that is ingested in part; for `proceed` see `scan`."""
        self._folder = folder
        self._listing = listing
        self._columns = columns
        self._batch = batch
        self._open = open_file
        self._proceed = proceed
        self._rested: Listed | None = None  # it as it was when it was last at rest
        self.rewritten = ""
        self._queue: list[Due] = []
        self._scans: dict[str, tuple[Listed, Scan]] = {}
        self._kept_out: dict[str, _KeptOut] = {}
        self._touched: dict[str, IngestedFile] = {}  # ingested files with the same content and a new time

    @property
    def broken(self) -> dict[str, str]:
        """Key -> why a file at rest cannot be ingested."""
        return dict(sorted((self._named() | self._listing.gone).items()))

    def _named(self) -> dict[str, str]:
        return {key: kept.why for key, kept in self._kept_out.items() if kept.why is not None}

    @property
    def waiting(self) -> int:
        """Files that are listed and not yet ingested."""
        return len(self._queue) + len(self._listing.resting)

    @property
    def is_resting(self) -> bool:
        """Whether files are there that may still change, or that did while they were read."""
        return bool(self._listing.resting or self._queue)

    @property
    def version(self) -> int:
        return self._listing.version

    def plan(self, start: int) -> Plan | None:
        """The next unit, from the running number `start` on; None = nothing is due.

        Raises:
            ContractError: an ingested file was replaced.
            OSError: the folder cannot be listed.
        """
        plan, full = self._fill(start)
        if not full:  # otherwise what is listed is enough
            queued = {one.key for one, _ in self._queue}
            named = self._named()
            self._queue = self._listing.find(queued | named.keys(), self._is_kept_out)
            there = self._folder.look_at_all(named)
            # A list finds those without rows if they change: there may be many, and a look may be a request.
            self._kept_out = {key: kept for key, kept in self._kept_out.items() if kept.why is None or key in there}
            plan, _ = self._fill(start)
        return plan if plan.parts else None

    def _is_kept_out(self, listed: Listed) -> bool:
        kept, touched = self._kept_out.get(listed.key), self._touched.get(listed.key)
        if kept is not None and kept.listed == listed and time.monotonic() < kept.until:
            return True
        return touched is not None and touched.is_as(listed)

    def _fill(self, start: int) -> tuple[Plan, bool]:
        """(the plan, whether the limits of a batch end it)"""
        load, files, at, full = _Load(self._batch), list[IngestedFile](), start, False
        for listed, entry in self._candidates():
            found = self._scan(listed, entry)
            if found is not None and entry is not None and entry.digest != found.digest:
                raise ContractError(f"{self._uri(listed.key)} was replaced after its records were ingested", REPLACED)
            if found is None and self._open is not None and listed.key == self._open.key:
                break  # its rows come first, because their numbers follow each other
            if found is None:
                continue
            if entry is not None and entry.done == entry.rows:
                self._touched[listed.key] = _stamped(entry, listed)
                continue
            stamped = _stamped(
                entry or IngestedFile(listed.key, 0, 0, listed.time, found.digest, at, 0, found.rows), listed
            )
            done, full = _add_pieces(load, replace(listed, time=stamped.time), stamped, found)
            if done > stamped.done:
                files.append(replace(stamped, done=done))
                at += done - stamped.done
            if full:
                break
        self._queue = [due for due in self._queue if not self._is_kept_out(due[0])]
        return Plan(start, at, tuple(load.parts), (*files, *self._touched.values())), full

    def _uri(self, key: str) -> str:
        return f"{self._folder.path}: {key}"

    def _candidates(self) -> Iterator[Due]:
        """First the file that is ingested in part. While that is written again, there are none, because its rows come
        first."""
        self.rewritten = ""
        if self._open is not None:
            listed = self._folder.look(self._open.key)
            if listed is None:
                self._folder.require()
                raise ContractError(f"{self._uri(self._open.key)} is gone, but only {_part(self._open)}", REPLACED)
            if not (self._open.is_as(listed) or listed == self._rested or self._listing.is_at_rest(listed)):
                self.rewritten = f"{self._uri(self._open.key)} is being written again, but {_part(self._open)}"
                return
            self._rested = listed
            yield listed, self._open
        for listed, entry in self._queue:
            if self._open is None or listed.key != self._open.key:
                yield listed, entry

    def _scan(self, listed: Listed, entry: IngestedFile | None) -> Scan | None:
        """None = the file is not to be ingested now."""
        known = self._scans.get(listed.key)
        if known is not None and known[0] == listed:
            return self._read(listed, entry, lambda: self._still(*known))
        if self._is_kept_out(listed):
            return None
        kind = format_of(listed.key) or PARQUET
        found = self._read(listed, entry, lambda: scan(self._folder, listed, kind, self._columns, self._proceed))
        if found is None:
            return None
        if not found.rows and entry is None:
            self._keep_out(listed, None)
            self._listing.without_rows(listed.key)
            return None
        self._kept_out.pop(listed.key, None)
        self._scans[listed.key] = (listed, found)
        return found

    def _still(self, listed: Listed, found: Scan) -> Scan:
        self._folder.check(listed)
        return found

    def _read(self, listed: Listed, entry: IngestedFile | None, read: Callable[[], T]) -> T | None:
        """What `read` returns; None = the file is not to be ingested now.

        Raises:
            ContractError: an ingested file has other content.
            OSError: what cannot be read is the file that is ingested in part, or much more than this file.
        """
        try:
            return read()
        except Unreadable as error:
            if entry is not None:
                what = f"{self._uri(listed.key)} was replaced after its records were ingested ({error})"
                raise ContractError(what, REPLACED) from None
            self._keep_out(listed, str(error))
        except Changed:
            pass
        except OSError as error:
            if is_store_error(error) or may_pass(error) or (entry is not None and entry.done < entry.rows):
                raise
            self._keep_out(listed, first_message_line(error), time.monotonic() + REFUSED_S)
        return None

    def _keep_out(self, listed: Listed, why: str | None, until: float = math.inf) -> None:
        self._kept_out[listed.key] = _KeptOut(listed, why, until)
        self._scans.pop(listed.key, None)  # the scan that lets it in again removes it from those kept out

    def committed(self, plan: Plan) -> None:
        """Go on after the plan, which is in the ledger now."""
        self._open = next((file for file in plan.files if file.done < file.rows), None)
        kept = self._open.key if self._open else ""
        keys = {file.key for file in plan.files}
        self._queue = [due for due in self._queue if due[0].key not in keys]
        for key in keys:
            self._touched.pop(key, None)
            if key != kept:
                self._scans.pop(key, None)
        self._listing.note_ingested(plan.files)

    def failed(self, failure: FileFailed) -> bool:
        """A file of the plan could not be read: if its content is at fault, plan without it as long as it stays as it
        is. Returns whether it is as planned and only the task could not read it.

        Raises:
            ContractError: some of its rows are ingested.
            OSError: it is unknown now what became of it.
        """
        found = self._scans.pop(failure.key, None)
        if found is None:
            return False
        if failure.unreadable:
            entry = self._listing.known([failure.key]).get(failure.key)
            if entry is not None:
                raise ContractError(f"{self._folder.path}: {failure.what}, and {_part(entry)}", UNDECODABLE)
            self._keep_out(found[0], failure.what)
            return False
        return self._folder.look(failure.key) == found[0]


def _part(entry: IngestedFile) -> str:
    return f"{entry.done:,} of its {entry.rows:,} rows are ingested"


def _stamped(entry: IngestedFile, listed: Listed) -> IngestedFile:
    """The entry of a file that is looked at as it is now."""
    return replace(entry, size=listed.size, changed=listed.changed, tag=listed.tag)


def _add_pieces(load: _Load, listed: Listed, entry: IngestedFile, found: Scan) -> tuple[int, bool]:
    """Plan the pieces after the entry's rows. Returns (rows that are done then, whether the load is full)."""
    done = entry.done
    for piece in found.pieces:
        if piece.row >= done:
            if load.is_full(piece.rows, piece.bytes):
                return done, True
            load.add(Part(listed, found.format, piece, entry.first + piece.row))
            done = piece.row + piece.rows
    return done, False
