"""A file source as one run of the app has it open."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.settings.models import Settings
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.delta_export import LOG, DeltaListing, began_in, lost
from spark_app.sources.files.folder import open_folder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles, files_of
from spark_app.sources.files.listing import FolderListing
from spark_app.sources.files.planning import Listing, Plan, Planner

MOST_NAMED = 20  # broken files in the status


class OpenedSource:
    """
    Attributes:
        end: the running number after the last row that was ingested.
        planner: plans units.
    """

    def __init__(self, lake: Lake, settings: Settings, manifests: Manifests):
        """
        Raises:
            ContractError: the ledger of ingested files is damaged or incomplete.
            OSError: the folder cannot be read.
        """
        self._lake = lake
        self._manifests = manifests
        self._name = settings.source.name
        self.folder = open_folder(settings.source_address)
        self._ingested = IngestedFiles(lake.storage, lake.ingested)
        self.catch_up()
        known = self._ingested.check(self.end)
        self._files, self._newest = len(known), pc.max(known["time"]).as_py()
        open_files = [IngestedFile(**row) for row in known.filter(pc.less(known["done"], known["rows"])).to_pylist()]
        self._listing = self._list(settings, known)
        columns = SourceColumns.of(settings.source)
        self.planner = Planner(
            self.folder, self._listing, columns, settings.batch, open_files[0] if open_files else None
        )

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
