"""Manifests: writing one commits a unit.

Manifests form one sequence for the lake. The manifest of an ingest unit must start exactly where the one before ended:
a gap would be a loss, an overlap would double records. The manifests, not Spark's checkpoint, are authoritative for
what was ingested. An accepted loss is a unit, too: it moves the ingested end past the offsets that Kafka has lost.

    manifests/000000000042.json   a committed unit: fsynced, renamed into place, folder fsynced
    manifests/finished            the last unit that is applied completely; may be behind, never ahead
    manifests/began               the start of the first ingest unit, kept because old manifests are removed

The reasons: docs/decisions/commit.md.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import read_durable, write_durably, write_quickly
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, LeaseLost
from spark_app.model.offsets import Offsets
from spark_app.model.pauses import Pause, Pauses
from spark_app.model.reports import FileEntry, Report, to_milliseconds
from spark_app.model.table_names import TableNames

FORMAT = 2  # 1: each file has its schema as text; 2: `Manifest.text` has each schema once
MOST_SCANNED = 32 << 20  # bytes of manifests that a start reads: a third of a second
Kind = Literal["ingest", "deferred", "replay", "rebuild", "renew", "loss", "resume", "takeover"]
MOVING = ("ingest", "loss")  # the kinds that move the ingested end


def follows(start: Offsets, end: Offsets) -> bool:
    """True if a batch that begins at `start` continues where the other ended. It may have partitions that were added
    since."""
    return all(start.get(t, {}).get(p) == offset for t, parts in end.items() for p, offset in parts.items())


@dataclass(frozen=True)
class Change:
    """The files that a unit adds to and removes from one table, in one commit."""

    adds: list[FileEntry] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Manifest:
    """A committed unit.

    Attributes:
        source: for ingest {"batch", "start", "end", "topic_ids"}; `start` and `end` are `Offsets`; "partitions" as the
            setting was, if it was set. For loss the same without the batch. For deferred {"records", "left"}: the
            number of records decoded (0 when files were merged), and the number of records in the removed files that
            are written again because they still wait. For replay, rebuild, renew and resume {"request", "records",
            "progress"}: the request's progress after it. While tables are paused also "pauses": routing
            name -> the fields of `Pause`.
        tables: table folder -> change, in the order of the Delta commits: bronze first. The files of a renew replace
            all files of their table, whatever compaction has made of them until the commit.
        counts: {"bronze", "silver", "quarantine", "deferred", "tombstones"} in records, and "schema_ids", "newest",
            "value_bytes"; if there are rules, "dropped" in records, and "expectations"; "samples" as the report has
            them. For the events: "at", when the unit was committed, in microseconds since 1970; "run", the process that
            did it; in a bucket "epoch", that of its lease; "seconds", which its jobs took; if it had jobs, "steps", the
            seconds of each, summed over tasks; "events", what happened with it, as `Event.to_json` gives it.
    """

    sequence: int
    kind: Kind
    source: dict[str, Any]
    tables: dict[str, Change]
    counts: dict[str, Any]

    @property
    def pauses(self) -> dict[str, Pause]:
        """The paused tables after this unit."""
        return {name: Pause(**pause) for name, pause in self.source.get("pauses", {}).items()}

    def replaces(self, table: str) -> bool:
        """Whether the unit removes all files that the table had before, and not only those of its `Change`."""
        return self.kind == "renew" and table in self.tables

    @property
    def at(self) -> int:
        """When the unit was committed, in microseconds since 1970; 0 if an earlier release has committed it."""
        return int(self.counts.get("at", 0))

    @cached_property
    def text(self) -> str:
        """The manifest as JSON, built once; of one that was read, what was read, whose digest tables may have.

        Each schema stands in it once, because tables, and all files of one, often have the same: a file has its number.
        """
        schemas: dict[str, int] = {}
        tables = {
            name: {
                "adds": [{**vars(add), "schema": schemas.setdefault(add.schema, len(schemas))} for add in change.adds],
                "removes": change.removes,
            }
            for name, change in self.tables.items()
        }
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tables"}
        return json.dumps({**rest, "tables": tables, "schemas": list(schemas)}, default=vars)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `text`, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> Manifest:
        value = json.loads(text)
        schemas: list[str] | None = value.pop("schemas", None)  # None: of format 1
        tables = {
            name: Change([_entry(file, schemas) for file in change["adds"]], change["removes"])
            for name, change in value.pop("tables").items()
        }
        manifest = Manifest(tables=tables, **value)
        manifest.__dict__["text"] = text
        return manifest


def _entry(file: dict[str, Any], schemas: list[str] | None) -> FileEntry:
    return FileEntry.from_json(file if schemas is None else file | {"schema": schemas[file["schema"]]})


def counts_of(report: Report) -> dict[str, Any]:
    """A report's counts, in the form of `Manifest.counts`."""
    keys = ("bronze", "silver", "quarantine", "deferred", "tombstones", "schema_ids", "newest", "value_bytes")
    some = {key: getattr(report, key) for key in ("dropped", "expectations", "samples")}
    some["steps"] = to_milliseconds(report.steps)
    return {key: getattr(report, key) for key in keys} | {key: value for key, value in some.items() if value}


class Manifests:
    """The manifests of a lake on disk."""

    def __init__(self, lake: Lake, layout: TableNames | None = None):
        self._lake = lake
        self._layout = layout or TableNames()
        self._storage = lake.storage
        self._applied, self._began = f"{lake.manifests}/finished", f"{lake.manifests}/began"
        self._kinds: dict[int, str] = {}  # of the units that this process has committed, or that `stays` has read
        self._look()

    def _look(self) -> None:
        numbers = self.numbers()
        self.last = numbers[-1] if numbers else 0
        self.last_ingest: Manifest | None = next(  # or loss: the next ingest unit starts at its end
            (m for m in map(self.read, reversed(numbers)) if m.kind in MOVING), None
        )
        self.pauses: Pauses = self.read(self.last).pauses if numbers else {}

    def look_again(self) -> None:
        """Notice the units that another process has committed."""
        self.last = max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """The numbers of all manifests on disk, in ascending order."""
        return self._lake.units()

    def read(self, sequence: int) -> Manifest:
        """
        Raises:
            ContractError: the manifest is damaged, or has a newer format.
        """
        return read_manifest(self._storage, self._key(sequence))

    def commit(self, manifest: Manifest) -> None:
        """Commit the unit durably. It will be applied, whatever crashes.

        Raises:
            ContractError: the unit does not follow the last one, its counts do not add up, or a file has another size.
        """
        self._check(manifest)
        if manifest.kind == "ingest" and self.last_ingest is None:
            self.begin(manifest.source.get("start", {}), manifest.source.get("topic_ids"))
        self._storage.make_durable(*map(self._lake.table, manifest.tables), "")  # "": for the folder of a new table
        self._lake.lease.check()
        stored = {"format": FORMAT, "digest": manifest.digest, "manifest": manifest.text}
        with failpoints.around(f"{manifest.kind}.manifest"):
            self._put(self._key(manifest.sequence), json.dumps(stored))
        self.last, self.pauses = manifest.sequence, manifest.pauses
        self._kinds[manifest.sequence] = manifest.kind
        if manifest.kind in MOVING:
            self.last_ingest = manifest

    def _put(self, key: str, text: str) -> None:
        try:
            self._storage.put_if_absent(key, text.encode(), durable=True)
        except FileExistsError:
            text = f"{self._storage.uri(key)} exists already: another process has committed a unit to this lake"
            if not self._storage.is_local:
                raise LeaseLost(text) from None
            raise ContractError(text, "stop that process, then start this one again") from None
        except OSError:
            self._lake.lease.doubt()
            raise

    def take_over(self, counts: dict[str, Any]) -> None:
        """Commit a unit that changes nothing: the process that had the lease before can then commit no more, because
        this is the number of its next unit, and stays reserved.

        Args:
            counts: those of a unit without records.
        """
        while True:
            source = {"pauses": {name: vars(pause) for name, pause in self.pauses.items()}} if self.pauses else {}
            try:
                return self.commit(Manifest(self.last + 1, "takeover", source, {}, counts))
            except LeaseLost:
                self._lake.lease.check()  # a third process may have the lease by now
                self._look()  # else the process before was faster: its unit counts

    def begin(self, start: Offsets, topic_ids: dict[str, str] | None) -> None:
        """Store where ingest begins."""
        began = {"start": start} | ({"topic_ids": topic_ids} if topic_ids is not None else {})
        write_durably(self._storage, self._began, json.dumps(began), "began")

    def began(self) -> dict[str, Any]:
        """{"start", "topic_ids"}; empty before `begin`."""
        return read_durable(self._storage, self._began) or {}

    def applied(self) -> int:
        try:
            return min(int(self._storage.get(self._applied)), self.last)
        except (FileNotFoundError, ValueError):
            return 0

    def mark_applied(self, sequence: int) -> None:
        """Store that all units up to this one are applied."""
        write_quickly(self._storage, self._applied, sequence, "finished", owned=True)

    def named_until(self, last: int, most_bytes: int = MOST_SCANNED) -> dict[str, int]:
        """Table -> the last unit up to `last` that changes it. Reads at most `most_bytes` of manifests, newest
        first."""
        found: dict[str, int] = {}
        for number in sorted((n for n in self.numbers() if n <= last), reverse=True):
            size = self._storage.size(self._key(number))
            if size is None or size > most_bytes:  # None: `forget` has just removed it
                break
            most_bytes -= size
            for table in self.read(number).tables:
                found.setdefault(table, number)
        return found

    def gone_until(self, sequence: int) -> int:
        """The last unit after `sequence` whose manifest was removed; 0 if all are there."""
        last = self.last  # read first: a unit that is committed while the files are listed is not among them
        there = set(self.numbers())
        return next((number for number in range(last, sequence, -1) if number not in there), 0)

    def before_newest(self, most_bytes: int, after: int) -> int:
        """The last unit before the newest manifests after `after` that have at most `most_bytes` together."""
        for number in sorted((n for n in self.numbers() if n > after), reverse=True):
            most_bytes -= self._storage.size(self._key(number)) or 0
            if most_bytes < 0:
                return number
        return after

    def forget(self, keep: int, needed_from: int) -> None:
        """Remove applied manifests, except the last `keep`, those after `needed_from`, and those that stay."""
        limit = min(self.last - keep, self.applied(), needed_from)
        for number in self.numbers():
            if number <= limit and not self.stays(number):
                with failpoints.around("forget"):
                    self._storage.delete(self._key(number))
                self._kinds.pop(number, None)

    def stays(self, sequence: int) -> bool:
        """Whether `forget` never removes the manifest: that of the last ingest or loss, that of a takeover, because the
        process before may sleep for long, and one that cannot be read."""
        if self.last_ingest is not None and sequence == self.last_ingest.sequence:
            return True
        if sequence not in self._kinds:
            try:
                self._kinds[sequence] = self.read(sequence).kind
            except ContractError:
                return True
        return self._kinds[sequence] == "takeover"

    def _key(self, sequence: int) -> str:
        return f"{self._lake.manifests}/{sequence:012d}.json"

    def _check(self, manifest: Manifest) -> None:
        if manifest.sequence != self.last + 1:
            raise ContractError(f"manifest {manifest.sequence} does not follow {self.last}")
        last = self.last_ingest if manifest.kind in MOVING else None
        if last and not follows(manifest.source["start"], last.source["end"]):
            raise ContractError(
                f"manifest {manifest.sequence} starts at {manifest.source['start']}, "
                f"but the last one ended at {last.source['end']}"
            )
        self._check_balance(manifest)
        for table, change in manifest.tables.items():
            for entry in change.adds:
                self._check_file(f"{self._lake.table(table)}/{entry.path}", entry)

    def _check_file(self, key: str, entry: FileEntry) -> None:
        if not self._storage.is_local:
            return  # the store has answered that it has the file
        size = self._storage.size(key)
        if size != entry.size:
            found = "is missing" if size is None else f"has {size} bytes instead of {entry.size}"
            raise ContractError(f"{self._storage.uri(key)} {found}: nothing was committed")

    def _check_balance(self, manifest: Manifest) -> None:
        """Check that each ingested record is routed, and that the files have as many rows as the counts say."""
        counts, number = manifest.counts, manifest.sequence
        routed = sum(counts["silver"].values()) + sum(counts["quarantine"].values())
        routed += counts["deferred"] + counts["tombstones"] + counts.get("dropped", 0)
        if counts["bronze"] != routed:
            raise ContractError(
                f"manifest {number}: {counts['bronze']} records were ingested, but {routed} were routed"
            )
        written = {table: sum(entry.rows for entry in change.adds) for table, change in manifest.tables.items()}
        for table, due in self._rows_due(manifest).items():
            if written.get(table, 0) != due:
                found = written.get(table, 0)
                raise ContractError(f"manifest {number}: {due} rows of {table} were counted, but {found} written")

    def _rows_due(self, manifest: Manifest) -> dict[str, int]:
        """Table folder -> rows according to the counts, for every table that has records."""
        layout, counts = self._layout, manifest.counts
        silver = {table: 0 for table in manifest.tables if layout.is_silver(table)}
        return silver | {
            layout.bronze: counts["bronze"] if manifest.kind == "ingest" else 0,
            **{layout.silver_of(name): rows for name, rows in counts["silver"].items()},
            layout.quarantine: sum(counts["quarantine"].values()),
            layout.deferred: counts["deferred"] + manifest.source.get("left", 0),
            layout.dropped: counts.get("dropped", 0),
        }


def read_manifest(storage: Storage, key: str) -> Manifest:
    """
    Raises:
        ContractError: the manifest is damaged, or has a newer format.
        StoreError, PermissionError: the object store does not answer or refuses, which says nothing about the manifest.
    """
    path = storage.uri(key)
    try:
        stored = json.loads(storage.get(key))
        if stored["format"] > FORMAT:
            raise ContractError(f"{path} has format {stored['format']}, this release reads {FORMAT}: run a newer one")
        manifest = Manifest.from_json(stored["manifest"])
        intact = manifest.digest == stored["digest"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        if is_store_error(error):
            raise
        raise ContractError(f"{path} cannot be read ({error})", "restore it from a backup of the lake") from None
    if not intact:
        raise ContractError(f"{path} was altered after it was written", "restore it from a backup of the lake")
    return manifest
