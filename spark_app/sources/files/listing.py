"""Finds the files of a folder that are new, whole and at rest.

Most lists begin at a cursor: the key of which `source.late_keys` ingested files come after. From time to time the whole
folder is listed: that finds new files with earlier names, and ingested ones that were replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.settings.models import Settings, Source
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.delta_export import LOG, DeltaListing, appeared, began_in, lost
from spark_app.sources.files.folder import NO_TEXT, Listed, SourceFolder, as_text, is_text, open_folder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles, files_of
from spark_app.sources.files.planning import Due, Listing, Plan, Planner
from spark_app.sources.files.scanning import format_of

LOOKED_UP = 100_000  # keys at once
MOST_FOUND = 100_000  # files of one list, for the sake of memory
MOST_NAMED = 20  # broken files in the status
LIST_SHARE = 20  # a list of everything is made after at least this multiple of the time that it took


class FolderListing:
    """Which files of a folder are due.

    Attributes:
        resting: key -> (file, monotonic time since when it is known so) of new files that are not yet at rest.
        version: as in `DeltaListing`; a folder has none.
        gone: name -> why such a file cannot be ingested.
    """

    version = -1

    def __init__(self, folder: SourceFolder, ingested: IngestedFiles, known: pa.Table, source: Source):
        """`known` are the ingested files."""
        self._folder = folder
        self._ingested = ingested
        self._source = source
        self.resting: dict[str, tuple[Listed, float]] = {}
        self.gone: dict[str, str] = {}
        self._near: dict[str, IngestedFile] = {}  # the ingested files after the cursor
        self._cursor = ""
        self._full_due = 0.0  # monotonic
        last = known.sort_by("key").slice(max(0, len(known) - source.late_keys)) if len(known) else known
        for row in last.to_pylist():
            self._near[row["key"]] = IngestedFile(**row)
        self._move_cursor()

    def note_ingested(self, files: Iterable[IngestedFile]) -> None:
        """Note files that are in the ledger now."""
        self._near |= {file.key: file for file in files if file.key > self._cursor}
        if len(self._near) > 2 * self._source.late_keys:
            self._move_cursor()

    def without_rows(self, key: str) -> None:
        """The cursor is moved by ingested files only."""

    def _move_cursor(self) -> None:
        if len(self._near) >= self._source.late_keys:
            keys = sorted(self._near)
            self._cursor = keys[-self._source.late_keys]
            self._near = {key: self._near[key] for key in keys if key > self._cursor}

    def known(self, keys: Iterable[str]) -> dict[str, IngestedFile]:
        """The newest entries of those keys that were ingested."""
        wanted = list(keys)
        near = {key: self._near[key] for key in wanted if key in self._near}
        return self._ingested.look_up([key for key in wanted if key <= self._cursor]) | near

    def find(self, again: Iterable[str], skip: Callable[[Listed], bool]) -> list[Due]:
        """The new and the changed files that are at rest, sorted by key.

        Args:
            again: keys to look at wherever they are.
            skip: whether a file is known not to be due as long as it stays unchanged.

        Raises:
            OSError: the folder cannot be listed.
            ContractError: it has become a Delta table.
        """
        began = time.monotonic()
        everything = began >= self._full_due or not self._cursor
        if everything:
            self.gone = {}
        listed = self._everything() if everything else self._newest()
        due_now = (due for due in listed if not skip(due[0]))  # else those to skip could keep out all others
        found = {due[0].key: due for due in nsmallest(MOST_FOUND, due_now, key=lambda due: due[0].key)}
        if everything:
            if self._source.format == "auto" and self._folder.exists(LOG):  # after the list, which may have its files
                raise appeared(self._folder, bool(self._ingested.unit))
            self.gone |= {as_text(f"{name}/"): why for name, why in self._folder.refused.items()}
            done = time.monotonic()
            later = max(self._source.full_list_s, LIST_SHARE * (done - began))
            self._full_due = done + (later if len(found) < MOST_FOUND else 0)
        found |= self._look_again({*again, *self.resting} - found.keys())
        before, self.resting = self.resting, {}
        return [due for _, due in sorted(found.items()) if not skip(due[0]) and self._is_at_rest(due[0], before)]

    def _look_again(self, keys: Collection[str]) -> dict[str, Due]:
        entries = self.known(keys)
        found = {key: (one, entries.get(key)) for key, one in self._folder.look_at_all(keys).items()}
        return {key: due for key, due in found.items() if _is_new(*due)}

    def _newest(self) -> Iterator[Due]:
        for one in self._listed(self._cursor):
            entry = self._near.get(one.key)
            if _is_new(one, entry):
                yield one, entry

    def _everything(self) -> Iterator[Due]:
        listed = self._listed("")
        while some := list(islice(listed, LOOKED_UP)):
            entries = self.known(one.key for one in some)
            for one in some:
                if _is_new(one, entries.get(one.key)):
                    yield one, entries.get(one.key)

    def _listed(self, after: str) -> Iterator[Listed]:
        """The files of records whose names are text, as the ledger and the log need it."""
        for one in self._folder.files(after):
            if self._is_of_records(one.key) and is_text(one.key):
                yield one
            elif self._is_of_records(one.key):
                self.gone[as_text(one.key)] = NO_TEXT

    def _is_of_records(self, key: str) -> bool:
        kind = format_of(key)
        return kind is not None and self._source.format in ("auto", kind)

    def is_at_rest(self, listed: Listed) -> bool:
        """Whether nothing changes the file any more."""
        is_so = self._is_at_rest(listed, self.resting)
        if is_so:
            self.resting.pop(listed.key, None)
        return is_so

    def _is_at_rest(self, listed: Listed, before: dict[str, tuple[Listed, float]]) -> bool:
        """Whether nothing has changed the file for long enough, by its own time or by what was seen of it: the clock
        of a file server may be another."""
        now = time.monotonic()
        known, since = before.get(listed.key, (listed, now))
        since = since if known == listed else now
        settled = self._source.settle_s
        if time.time() - listed.changed / 1e9 >= settled or now - since >= settled:
            return True
        self.resting[listed.key] = (listed, since)
        return False


def _is_new(listed: Listed, entry: IngestedFile | None) -> bool:
    """Whether a file is not ingested, or may have been replaced since."""
    return entry is None or not entry.is_as(listed)


class OpenedSource:
    """A file source as one run of the app has it open.

    Attributes:
        end: the running number after the last row that was ingested.
        planner: plans units.
    """

    def __init__(self, lake: Lake, settings: Settings, manifests: Manifests, proceed: Callable[[], None]):
        """For `proceed` see `scan`.

        Raises:
            ContractError: the ledger of ingested files is damaged or incomplete.
            OSError: the folder cannot be read.
        """
        self._lake = lake
        self._manifests = manifests
        self._name = settings.source.name
        self.folder = open_folder(settings.source_address, settings.source.follow_links)
        self._ingested = IngestedFiles(lake.storage, lake.ingested)
        self.catch_up()
        known = self._ingested.check(self.end)
        self._files, self._newest = len(known), pc.max(known["time"]).as_py()
        open_files = [IngestedFile(**row) for row in known.filter(pc.less(known["done"], known["rows"])).to_pylist()]
        self._listing = self._list(settings, known)
        columns = SourceColumns.of(settings.source)
        open_file = open_files[0] if open_files else None
        self.planner = Planner(self.folder, self._listing, columns, settings.batch, open_file, proceed)

    def _list(self, settings: Settings, known: Any) -> Listing:
        kind, storage, state = settings.source.format, self._lake.storage, self._lake.ingested
        last = self._manifests.last_ingest
        version = last.source.get("version", -1) if last else -1
        if kind == "delta" or (kind == "auto" and self.folder.exists(LOG)):
            columns = SourceColumns.of(settings.source).names
            return DeltaListing(self.folder, self._ingested, storage, state, version, columns)
        if kind == "auto" and (version >= 0 or read_durable(storage, began_in(state)) is not None):
            self.folder.require()
            raise lost(self.folder)
        return FolderListing(self.folder, self._ingested, known, settings.source)

    @property
    def end(self) -> int:
        last = self._manifests.last_ingest
        return 0 if last is None else int(last.source["end"][self._name]["0"])

    def catch_up(self) -> None:
        """Add the units to the ledger whose manifests say more than it has, such as one before a kill."""
        last = self._manifests.last_ingest
        if last is None or last.sequence <= self._ingested.unit:
            return
        for number in self._manifests.numbers():
            if number > self._ingested.unit:
                manifest = self._manifests.read(number)
                if manifest.kind == "ingest":
                    self._ingested.add(number, files_of(manifest.source))

    def committed(self, plan: Plan) -> None:
        """Note a plan whose unit is committed."""
        self.catch_up()
        began = sum(file.first >= plan.start for file in plan.files)
        self._files += began
        self._newest = max([self._newest or 0, *(file.time for file in plan.files)])
        self.planner.committed(plan)

    def describe(self) -> dict[str, Any]:
        """The source for the status: numbers of files, the broken ones, and the time of the newest ingested file."""
        broken = self.planner.broken
        return {
            "kind": "files",
            "path": self.folder.path,
            "taken": self._files,
            "waiting": self.planner.waiting,
            "broken": len(broken),
            "named": dict(list(broken.items())[:MOST_NAMED]),
            "newest": self._newest,
        }
