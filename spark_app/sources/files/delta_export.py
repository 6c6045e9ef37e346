"""A Delta table of framed records as a source: its log names the new files, and the version is the cursor.

The table must only be appended to. Files that a compaction writes (dataChange = false) have no new records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.lake.files.beneath import NotRegular
from spark_app.lake.files.state_files import read_durable, read_json, write_durably, write_quickly
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import ContractError, first_message_line
from spark_app.sources.files.folder import NO_TEXT, Listed, SourceFolder, as_text, is_text
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.sources.files.memory import made_within_limit
from spark_app.sources.files.planning import Due

LOG = "_delta_log"
REMEDY = "ingest the table into a new lake, or restore its log"
PLAIN = 'to go on with plain files set source.format, for example to "parquet"'


def began_in(state: str) -> str:
    """The file with the id of the Delta table and the version from which on it is ingested.

    Args:
        state: the lake's folder of ingested files.
    """
    return f"{state}/began.json"


def lost(folder: SourceFolder) -> ContractError:
    what = f"{folder.path} was a Delta table and has no {LOG} any more, so it cannot be said which of its files are new"
    return ContractError(what, f"mount the folder if it is empty; else {REMEDY}")


def another_table(folder: SourceFolder, known: str, found: str) -> ContractError:
    """The arguments are ids of tables."""
    what = f"{folder.path}: another Delta table is there ({found}) than the one that was ingested ({known})"
    return ContractError(what, "restore the table that was ingested, or ingest the other one into a new lake")


def appeared(folder: SourceFolder, any_ingested: bool) -> ContractError:
    """
    Args:
        any_ingested: files of the folder were ingested as plain ones.
    """
    what = f"{folder.path} has become a Delta table: it has a {LOG} now"
    if not any_ingested:
        return ContractError(
            f"{what}, and nothing was ingested yet", "start the app again: it ingests the folder as a table"
        )
    return ContractError(
        f"{what}, and files were ingested from it as plain ones before", f"{PLAIN}, or ingest the table into a new lake"
    )


def not_said(folder: SourceFolder, began: str) -> ContractError:
    """`began` names the file that is missing."""
    return ContractError(
        f"{began} is missing, and no unit says up to which version of its log {folder.path} was ingested: either its "
        f"files were ingested as plain ones before it had a {LOG}, or that file was lost",
        f"{PLAIN}; if the table was followed, restore the file from a backup of the lake; or ingest the table into a "
        "new lake",
    )


MARKS = "marks rows as deleted, and only a table that rows are added to can be ingested"
PHYSICAL = "delta.columnMapping.physicalName"
OTHER_COLUMN = (
    "name another column in [source], or write the table anew with the column in its files, and ingest it into a new "
    "lake"
)
UNMARK = "rewrite its files without these rows (REORG TABLE ... APPLY (PURGE))"


class DeltaListing:
    """Which files of a Delta table are due.

    Attributes:
        version: all files that the log adds up to this version are ingested.
        gone: key -> why a file that the log names cannot be ingested.
    """

    def __init__(
        self,
        folder: SourceFolder,
        ingested: IngestedFiles,
        storage: Storage,
        state: str,
        version: int,
        columns: Collection[str],
    ):
        """
        Args:
            state: folder of the lake with the cursor.
            version: as the last unit with records says it; -1 = not said.
            columns: names of the columns that are ingested.

        Raises:
            ContractError: the table cannot be read.
        """
        self._folder = folder
        self._ingested = ingested
        self._storage = storage
        self._columns = columns
        self._began, self._seen = began_in(state), f"{state}/version.json"
        self.resting: Collection[str] = ()
        self.gone: dict[str, str] = {}
        began = read_durable(storage, self._began)
        if began is None:
            if ingested.unit and version < 0:
                raise not_said(folder, storage.uri(self._began))
            began = {"version": version} if ingested.unit else self._beginning()
            self._note(began)
        self._known = began
        stored = (read_json(storage, self._seen) or {}).get("version", -1)
        self.version = max(version, stored)
        self._read = self.version  # the last version whose files are in `_due`
        self._due: dict[str, int] = {}  # key -> version that adds it, in the order of the log
        self._last = self._look(self._read)  # before the table's id, so that another table is noticed later
        self._check_table()
        if self.version < began["version"]:
            self._begin_with(began["version"])

    def _table(self, version: int | None = None) -> DeltaTable:
        try:
            self._folder.check_regular(LOG)
        except NotRegular as error:
            raise ContractError(f"{self._folder.path}: {error}", REMEDY) from None
        return DeltaTable(self._folder.path, version=version, storage_options=self._folder.delta_options)

    def _beginning(self) -> dict[str, Any]:
        """The newest version, and the table's id."""
        try:
            table = self._table()
        except DeltaError as error:
            raise ContractError(f"{self._folder.path} is no Delta table ({error})", REMEDY) from None
        self._refuse_marks(table)  # before the lake notes a beginning that it could not get away from
        fields = json.loads(table.schema().to_json())["fields"]
        self._refuse_columns(table.version(), table.metadata().partition_columns, fields)
        return {"version": table.version(), "id": table.metadata().id}

    def _note(self, began: Mapping[str, Any]) -> None:
        write_durably(self._storage, self._began, json.dumps(began), "taken.began")

    def _check_table(self) -> None:
        """A beginning that was noted anew, from the last unit, has no id.

        Raises:
            ContractError: another table is there.
        """
        found, known = self._table_id(), self._known.get("id")
        if found is None or found == known:
            return
        if known is not None and not any(found in self._ids_of(version) for version in self._new_versions()):
            raise another_table(self._folder, known, found)
        self._note_id(found)

    def _note_id(self, found: str) -> None:
        self._known = {**self._known, "id": found}
        self._note(self._known)

    def _ids_of(self, version: int) -> list[str]:
        """The ids that a version gives the table: some writers change it with the schema."""
        changes = (action.get("metaData") for action in self._actions(version))
        return [str(change.get("id")) for change in changes if change]

    def _table_id(self) -> str | None:
        """None = there is no log to open, or not enough of it.

        Raises:
            OSError: it cannot be read now.
        """
        try:
            return str(self._table().metadata().id)
        except DeltaError:
            return None

    def _look(self, version: int) -> Listed | None:
        """The entry of the log as it is now."""
        return self._folder.look(f"{LOG}/{_entry(version)}") if version >= 0 else None

    def _refuse_columns(self, version: int, partitions: Collection[str], fields: Iterable[Mapping[str, Any]]) -> None:
        """Columns are looked up in the files by their names, and a missing one is NULL.

        Args:
            fields: of the table's schema.
        """
        where = f"{self._folder.path}: in version {version} of the table"
        for name in self._columns:
            if name in partitions:
                raise ContractError(f"{where} the column {name} is a partition column, which no file has", OTHER_COLUMN)
        for field in fields:
            stored = field.get("metadata", {}).get(PHYSICAL, field["name"])
            if field["name"] in self._columns and stored != field["name"]:
                what = f"{where} the column {field['name']} has the name {stored} in the files (column mapping)"
                raise ContractError(what, OTHER_COLUMN)

    def _begin_with(self, version: int) -> None:
        """The files of one version, because earlier ones may be gone."""
        try:
            table = self._table(version)
            paths = table.get_add_actions(flatten=True)["path"].to_pylist()
        except DeltaError as error:
            raise ContractError(f"{self._folder.path}: version {version} cannot be read ({error})", REMEDY) from None
        self._refuse_marks(table)
        for path in sorted(paths):
            self._add({"path": path}, version)
        self._read = version

    def _refuse_marks(self, table: DeltaTable) -> None:
        """The list of a version's files does not say which of their rows are deleted."""
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return
        what = f"{self._folder.path}: version {table.version()} {MARKS}"
        try:
            marked = any(batch.num_rows for batch in table.deletion_vectors())
        except DeltaError as error:
            raise ContractError(f"{what} ({error})", UNMARK) from None
        if marked:
            raise ContractError(what, UNMARK)

    def _add(self, action: Mapping[str, Any], version: int) -> None:
        key = unquote(action["path"])
        if action.get("deletionVector"):
            raise ContractError(f"{self._folder.path}: version {version} {MARKS} ({as_text(key)})", REMEDY)
        try:
            self._folder.uri(key)
        except ValueError as error:
            self.gone[as_text(key)] = str(error)
        else:
            if is_text(key):
                self._due[key] = version
            else:
                self.gone[as_text(key)] = NO_TEXT

    def known(self, keys: Iterable[str]) -> dict[str, IngestedFile]:
        return self._ingested.look_up(list(keys))

    def note_ingested(self, files: Iterable[IngestedFile]) -> None:
        for file in files:
            if file.done == file.rows:
                self._due.pop(file.key, None)
        self._move()

    def _move(self) -> None:
        """Move the cursor up to the first version that has files left."""
        done = min(self._due.values(), default=self._read + 1) - 1
        if done > self.version:
            self.version = done
            write_quickly(self._storage, self._seen, {"version": done}, None, owned=True)

    def without_rows(self, key: str) -> None:
        """The cursor may pass the file, which never enters the ledger."""
        self._due.pop(key, None)

    def find(self, again: Iterable[str], skip: Callable[[Listed], bool]) -> list[Due]:
        """The files that the log added since, in its order.

        Raises:
            ContractError: the log changes or deletes rows, or a part of it is missing.
            OSError: it cannot be read.
        """
        if new := self._new_versions():
            self._refuse_another()
            last = self._look(new[-1])  # before it is read, see `_last`
            for version in new:
                self._read_version(version)
                self._read = version
            self._last = last
        entries, found = self._ingested.look_up(list(self._due)), list[Due]()
        there = self._folder.look_at_all(self._due)
        for key in list(self._due):
            one = there.get(key)
            if (entry := entries.get(key)) is not None and entry.done == entry.rows:
                del self._due[key]
            elif one is None:
                self.gone[key] = "the log names it, but it is not there"
            elif not skip(one):
                self.gone.pop(key, None)
                found.append((one, entry))
        self._move()
        return found

    def _refuse_another(self) -> None:
        """A log whose last read entry has changed was restored, or is that of another table."""
        if self._look(self._read) == self._last:
            return
        self._check_table()

    def is_at_rest(self, listed: Listed) -> bool:
        """A file of the log is."""
        return True

    def _new_versions(self) -> list[int]:
        """The next versions, up to one that is not there: a list beside a writer may have a later one without it."""
        names = self._folder.names(LOG, _entry(self._read) if self._read >= 0 else "")
        new = [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()]
        if new and new[0] != self._read + 1 and self._look(self._read + 1) is not None:
            new.insert(0, self._read + 1)
        if new and new[0] != self._read + 1:
            raise ContractError(
                f"{self._folder.path}: the log has no version {self._read + 1} any more, so it cannot be said which "
                f"files were added before version {new[0]}",
                REMEDY,
            )
        return [version for number, version in enumerate(new, self._read + 1) if version == number]

    def _read_version(self, version: int) -> None:
        for action in self._actions(version):
            removed = action.get("remove")
            if removed and removed.get("dataChange", True):
                raise ContractError(
                    f"{self._folder.path}: version {version} changes or deletes rows of {removed.get('path')}, and "
                    "only a table that rows are added to can be ingested",
                    REMEDY,
                )
            if changed := action.get("metaData"):
                self._take_change(version, changed)
            added = action.get("add")
            if added and added.get("dataChange", True):
                self._add(added, version)

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        try:
            lines = self._folder.get(f"{LOG}/{_entry(version)}").splitlines()
            yield from made_within_limit(map(_action_of, lines))
        except (ValueError, RecursionError) as error:  # also `NotRegular`, and JSON that is too deep
            what = f"version {version} of the log cannot be read ({first_message_line(error)})"
            raise ContractError(f"{self._folder.path}: {what}", REMEDY) from None

    def _take_change(self, version: int, metadata: Mapping[str, Any]) -> None:
        fields = json.loads(metadata.get("schemaString") or "{}").get("fields", [])
        self._refuse_columns(version, metadata.get("partitionColumns") or (), fields)
        if (found := metadata.get("id")) != self._known.get("id"):
            self._note_id(str(found))


def _action_of(line: bytes) -> dict[str, Any]:
    """
    Raises:
        ValueError: it is no action of Delta.
    """
    action = json.loads(line)
    if not isinstance(action, dict) or not all(isinstance(one, dict | None) for one in action.values()):
        raise ValueError("a line is no action of Delta")
    added = action.get("add")
    if added is not None and not (
        isinstance(added.get("path"), str) and isinstance(added.get("deletionVector"), dict | None)
    ):
        raise ValueError("a line adds a file without a path")
    changed = action.get("metaData")
    if changed and not isinstance(json.loads(changed.get("schemaString") or "{}"), dict):
        raise ValueError("a line has a schema that is none")
    return action


def _entry(version: int) -> str:
    return f"{version:020d}.json"
