"""Plans a gold run: which units each gold table lacks, and which silver files to read for it.

A table is recomputed from all its silver files if its spec changed, a new file or the manifest of a unit is
missing, or a rebuild added rows to its silver table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_app.followers.follower import Units
from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.tables import GoldTables
from spark_app.lake.files.state_files import read_json, write_durably
from spark_app.model.columns import field_of
from spark_app.tables.aliases import sent_names, table_aliases
from spark_app.units.driver.open_lake import OpenLake


@dataclass
class GoldPlan:
    """The plan of one run. Files are keys of the storage.

    Attributes:
        upto: the last unit that gold includes after the run.
        fields: routing name -> key and aggregated fields of the silver table.
        specs: routing name -> digest of its spec.
        fold: routing name -> new silver files, to merge into gold.
        whole: routing name -> all silver files, to recompute the table.
        rows: names of `fold` -> all silver files, to recompute the changed keys.
        rebuilt: routing names to whose silver table a rebuild added rows.
    """

    upto: int
    fields: dict[str, pa.Schema]
    specs: dict[str, str]
    fold: dict[str, list[str]] = field(default_factory=dict)
    whole: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=dict)
    rebuilt: set[str] = field(default_factory=set)

    def leave_out(self, names: Iterable[str]) -> None:
        """Remove these tables from the plan and from `specs`, so that a later run recomputes them."""
        for name in names:
            for of_table in (self.specs, self.fold, self.whole, self.rows):
                of_table.pop(name, None)


class Planner:
    """Compares manifests, silver and specs with the gold tables."""

    def __init__(self, opened: OpenLake, spec: GoldSpec, tables: GoldTables):
        self._opened = opened
        self._lake = opened.lake
        self._layout = opened.settings.layout
        self._manifests = opened.units.manifests
        self._spec = spec
        self._tables = tables
        self._state = opened.lake.gold_state(spec.kind)
        self._known: dict[str, tuple[Any, pa.Schema | None, dict[str, str]]] = {}  # routing name -> of its last columns
        self.lacking: dict[str, str] = {}  # setting and silver table without its field -> what becomes of it

    def plan(self, units: Units) -> GoldPlan | None:
        """The plan for the units; None if a committed unit is not applied.

        It is called between two units, and the units are those of this moment, so that the manifests and the versions
        of silver agree.
        """
        if self._manifests.applied() < self._manifests.last:
            return None  # a commit failed: some tables are ahead of the others until it is made again
        fields = self._fields()
        specs = {name: self._spec.digest(found) for name, found in fields.items()}
        work = GoldPlan(units.upto, fields, specs)
        same = self._complete(self._unchanged(specs), units.gone)
        if len(same) < len(fields):
            self.store_specs(same)  # before gold changes: after a crash these tables are recomputed
            work.whole = {name: self.snapshot(name) for name in fields if name not in same}
        self._add_news(work, units, set(same))
        if not self._spec.is_incremental:
            work.rows = {name: self.snapshot(name) for name in work.fold}
        return work

    def specs(self) -> dict[str, str]:
        """The stored specs of the gold tables: routing name -> digest."""
        stored: dict[str, str] | None = read_json(self._lake.storage, self._state)
        return stored or {}  # without the file all gold is recomputed

    def store_specs(self, specs: dict[str, str]) -> None:
        """Store the specs of the gold tables."""
        if specs != read_json(self._lake.storage, self._state):
            write_durably(self._lake.storage, self._state, json.dumps(specs), "gold.state")

    def snapshot(self, name: str) -> list[str]:
        """All files of the silver table in its newest version."""
        silver = self._layout.silver_of(name)
        self._opened.units.refresh(silver)
        return self._opened.units.committer.tables.files(silver)

    def _unchanged(self, specs: dict[str, str]) -> dict[str, str]:
        known = self.specs()
        same = {name: digest for name, digest in specs.items() if known.get(name) == digest}
        return {name: digest for name, digest in same.items() if self._tables.is_there(name) or not self.snapshot(name)}

    def _complete(self, specs: dict[str, str], gone: int) -> dict[str, str]:
        """Those of the tables for which the manifest of each unit that they may lack is still there."""
        return {name: digest for name, digest in specs.items() if not gone or self._tables.cursor(name) >= gone}

    def _add_news(self, work: GoldPlan, units: Units, of: set[str]) -> None:
        new, work.rebuilt = self._new_files(units, of)
        for name, files in new.items():
            if self._tables.is_there(name) and name not in work.rebuilt and all(map(self._lake.storage.exists, files)):
                work.fold[name] = files
            else:
                work.whole[name] = self.snapshot(name)

    def _new_files(self, units: Units, of: set[str]) -> tuple[dict[str, list[str]], set[str]]:
        """(routing name -> silver files that its gold table does not include, names whose silver was rebuilt). Gold of
        a rebuilt table may include the added rows already: rows that silver lost are not removed from gold."""
        names = {self._layout.silver_of(name): name for name in of}
        files: dict[str, list[str]] = {}
        rebuilt = set()
        for unit in units:
            for table, change in unit.tables.items():
                name = names.get(table)
                if name is not None and self._tables.cursor(name) < unit.sequence:
                    files.setdefault(name, []).extend(f"{self._lake.table(table)}/{f.path}" for f in change.adds)
                    rebuilt |= {name} if unit.kind == "rebuild" or unit.replaces(table) or change.removes else set()
        return files, rebuilt

    def _fields(self) -> dict[str, pa.Schema]:
        """Routing name -> what gold reads, for silver tables that exist and have what gold needs."""
        names = sorted(set(self._opened.admission.admitted.values()))
        there = [name for name in names if self._lake.has_table(self._layout.silver_of(name))]
        lacking: dict[str, str] = {}
        fields = {name: self._fields_of(name, lacking) for name in there}
        self.lacking = lacking
        return {name: found for name, found in fields.items() if found is not None}

    def _fields_of(self, name: str, lacking: dict[str, str]) -> pa.Schema | None:
        catalog, tables = self._opened.resolver.ledger.catalog(), self._opened.admission
        columns, messages = tables.columns(name, catalog.columns), tables.messages.get(name, ())
        names, aliases = [*columns.names, *sent_names(messages, catalog)], table_aliases(messages, catalog)
        silver = self._layout.silver_of(name)
        state = columns, names, aliases
        if self._known.get(name, (None,))[0] != state:  # the search for near names is slow, and the unit lock is held
            found = self._spec.fields(lambda wanted: field_of(wanted, columns, names, aliases), columns, aliases)
            self._known[name] = state, *found
        _, fields, why = self._known[name]
        lacking |= {f"{setting} in {silver}": text for setting, text in why.items()}
        return fields
