"""Plans what the next unit takes from the files of a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from spark_app.intake.columns_of_source import SourceColumns
from spark_app.intake.file_input import FileFailed, Part
from spark_app.intake.scanning import PARQUET, Scan, Unreadable, format_of, scan
from spark_app.intake.source_folder import Changed, Listed, SourceFolder
from spark_app.intake.taken_files import TakenFile
from spark_app.model.errors import ContractError
from spark_app.settings.models import Batch

REPLACED = "restore the file as it was, and give other content a name of its own"


Due = tuple[Listed, TakenFile | None]  # a file, and its entry if the ledger has one


class Listing(Protocol):
    """Which files are due.

    Attributes:
        version: see `DeltaListing`.
        resting: new files that are not yet at rest.
        gone: key -> why a file cannot be taken.
    """

    version: int
    gone: dict[str, str]

    @property
    def resting(self) -> Collection[str]: ...

    def known(self, keys: Iterable[str]) -> dict[str, TakenFile]: ...

    def taken(self, files: Iterable[TakenFile]) -> None: ...

    def without_rows(self, key: str) -> None: ...

    def find(self, again: Iterable[str], skip: Callable[[Listed], bool]) -> list[Due]: ...


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
    files: tuple[TakenFile, ...]

    def source(self, version: int) -> dict[str, Any]:
        """What the manifest says of it."""
        said: dict[str, Any] = {"files": [asdict(file) for file in self.files]}
        return said | ({"version": version} if version >= 0 else {})


class _Load:
    """What is planned so far, within the limits of a batch."""

    def __init__(self, batch: Batch):
        self._batch = batch
        self.parts: list[Part] = []
        self._rows = self._bytes = 0

    def is_full(self, rows: int = 1, size: int = 1) -> bool:
        """Whether so much more is too much; the first piece always fits."""
        too_much = self._rows + rows > self._batch.max_records or self._bytes + size > self._batch.max_bytes
        return bool(self.parts) and too_much

    def add(self, part: Part) -> None:
        self.parts.append(part)
        self._rows += part.piece.rows
        self._bytes += part.piece.bytes


class Planner:
    """Plans units of files that are at rest and whole."""

    def __init__(
        self, folder: SourceFolder, listing: Listing, columns: SourceColumns, batch: Batch, open_file: TakenFile | None
    ):
        """`open_file` is the file that is taken in part."""
        self._folder = folder
        self._listing = listing
        self._columns = columns
        self._batch = batch
        self._open = open_file
        self._queue: list[Due] = []
        self._scans: dict[str, tuple[Listed, Scan]] = {}
        self._kept_out: dict[str, tuple[Listed, str | None]] = {}  # with the reason; None = it has no rows
        self._touched: dict[str, TakenFile] = {}  # taken files with the same content and a new time

    @property
    def broken(self) -> dict[str, str]:
        """Key -> why a file at rest cannot be taken."""
        return dict(sorted((self._named() | self._listing.gone).items()))

    def _named(self) -> dict[str, str]:
        return {key: why for key, (_, why) in self._kept_out.items() if why is not None}

    @property
    def waiting(self) -> int:
        """Files that are listed and not yet taken."""
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
            ContractError: a taken file was replaced.
            OSError: the folder cannot be listed.
        """
        plan, full = self._fill(start)
        if not full:  # otherwise what is listed is enough
            queued = {one.key for one, _ in self._queue}
            named = self._named()
            self._queue = self._listing.find(queued | named.keys(), self._is_kept_out)
            there = self._folder.look_at_all(named)
            # A list finds those without rows if they change: there may be many, and a look may be a request.
            self._kept_out = {key: kept for key, kept in self._kept_out.items() if kept[1] is None or key in there}
            plan, _ = self._fill(start)
        return plan if plan.parts else None

    def _is_kept_out(self, listed: Listed) -> bool:
        touched = self._touched.get(listed.key)
        return self._kept_out.get(listed.key, (None, ""))[0] == listed or (
            touched is not None and touched.is_as(listed)
        )

    def _fill(self, start: int) -> tuple[Plan, bool]:
        """(the plan, whether the limits of a batch end it)"""
        load, files, at, full = _Load(self._batch), list[TakenFile](), start, False
        for listed, entry in self._candidates():
            found = self._scan(listed, entry)
            if found is not None and entry is not None and entry.digest != found.digest:
                raise ContractError(f"{self._uri(listed.key)} was replaced after its records were taken", REPLACED)
            if found is None and self._open is not None and listed.key == self._open.key:
                break  # its rows come first, because their numbers follow each other
            if found is None:
                continue
            if entry is not None and entry.done == entry.rows:
                self._touched[listed.key] = _stamped(entry, listed)
                continue
            stamped = _stamped(
                entry or TakenFile(listed.key, 0, 0, listed.time, found.digest, at, 0, found.rows), listed
            )
            done, full = _take(load, replace(listed, time=stamped.time), stamped, found)
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
        """First the file that is taken in part."""
        if self._open is not None:
            listed = self._folder.look(self._open.key)
            if listed is None:
                what = f"{self._open.done:,} of its {self._open.rows:,} rows are taken"
                raise ContractError(f"{self._uri(self._open.key)} is gone, but only {what}", REPLACED)
            yield listed, self._open
        for listed, entry in self._queue:
            if self._open is None or listed.key != self._open.key:
                yield listed, entry

    def _scan(self, listed: Listed, entry: TakenFile | None) -> Scan | None:
        """None = the file is not to be taken now."""
        known = self._scans.get(listed.key)
        try:
            if known is not None and known[0] == listed:
                self._folder.check(listed)
                return known[1]
            if self._is_kept_out(listed):
                return None
            found = scan(self._folder, listed, format_of(listed.key) or PARQUET, self._columns)
        except Unreadable as error:
            self._keep_out(listed, entry, str(error))
            return None
        except Changed:
            return None
        if not found.rows and entry is None:
            self._kept_out[listed.key] = (listed, None)
            self._listing.without_rows(listed.key)
            return None
        self._kept_out.pop(listed.key, None)
        self._scans[listed.key] = (listed, found)
        return found

    def _keep_out(self, listed: Listed, entry: TakenFile | None, why: str) -> None:
        if entry is not None:
            raise ContractError(f"{self._uri(listed.key)} was replaced after its records were taken ({why})", REPLACED)
        self._kept_out[listed.key] = (listed, why)

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
        self._listing.taken(plan.files)

    def failed(self, failure: FileFailed) -> None:
        """A file of the plan could not be read: plan without it as long as it stays as it is.

        Raises:
            ContractError: some of its rows are taken.
        """
        found = self._scans.pop(failure.key, None)
        if failure.unreadable and found is not None:
            self._keep_out(found[0], self._listing.known([failure.key]).get(failure.key), failure.what)


def _stamped(entry: TakenFile, listed: Listed) -> TakenFile:
    """The entry of a file that is looked at as it is now."""
    return replace(entry, size=listed.size, changed=listed.changed, tag=listed.tag)


def _take(load: _Load, listed: Listed, entry: TakenFile, found: Scan) -> tuple[int, bool]:
    """Plan the pieces after the entry's rows. Returns (rows that are done then, whether the load is full)."""
    done = entry.done
    for piece in found.pieces:
        if piece.row >= done:
            if load.is_full(piece.rows, piece.bytes):
                return done, True
            load.add(Part(listed, found.format, piece, entry.first + piece.row))
            done = piece.row + piece.rows
    return done, False
