"""A consistent snapshot of a lake: one version of each table between two units, and the state files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_app.audit.schemas import RenamedFields, Schemas
from spark_app.lake.files.state_files import read_durable, read_json
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError, first_message_line
from spark_app.model.offsets import Offsets, Span
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.model.table_names import GOLD, gold_follower
from spark_app.settings.models import Settings
from spark_app.tables.expectations.proto_rules import are_judged

FAR = 2**62  # beyond every offset
COORDINATES = ("topic", "topic_id", "partition", "offset")
RETRY_S = 0.2


class Table:
    """One version of a Delta table: delta-rs lists its files, Arrow reads their rows.

    delta-rs's own dataset is not used: version 1.6.6 assumes that a file without bounds of a column has no values in
    it, so a filter on that column finds no rows.
    """

    def __init__(self, storage: Storage, name: str, version: int | None = None):
        delta = _delta(storage, name, version)
        if delta.protocol().min_reader_version > 1:
            raise ContractError(
                f"the audit cannot read table {name}: it has reader features that this app never writes"
            )
        self.name = name
        self._storage = storage
        self.delta = delta
        self.schema: pa.Schema = pa.schema(delta.schema().to_arrow())
        parquet, files = ds.ParquetFileFormat(), storage.arrow()
        fragments = [
            parquet.make_fragment(f"{name}/{path}", files, partition_expression=inside)
            for path, inside in self._files()
        ]
        self._dataset: ds.Dataset = ds.FileSystemDataset(fragments, self.schema, parquet, files)

    def _files(self) -> Iterator[tuple[str, Any]]:
        """(path, condition that all offsets of the file satisfy)."""
        actions, offset = self.delta.get_add_actions(flatten=True), f"{self.prefix}offset"
        bounds = (f"min.{offset}", f"max.{offset}")
        known = [actions[b].to_pylist() if b in actions.schema.names else [None] * len(actions) for b in bounds]
        for path, low, high in zip(actions["path"].to_pylist(), *known, strict=True):
            some = low is not None and high is not None
            yield path, ((ds.field(offset) >= low) & (ds.field(offset) <= high)) if some else ds.scalar(True)

    @property
    def prefix(self) -> str:
        """Prefix of the coordinate columns: "_" in silver, else ""."""
        return "_" if "_offset" in self.schema.names else ""

    def count(self) -> int:
        return int(self._guard(self._dataset.count_rows))

    def read(
        self, columns: Sequence[str] | Mapping[str, ds.Expression] | None = None, condition: Any = None
    ) -> pa.Table:
        """Rows that satisfy the condition; all columns unless `columns` names some.

        Raises:
            UnreachableError: a newer version removed files during the audit.
            ContractError: the files are damaged or missing.
        """
        return self._guard(lambda: self._dataset.to_table(columns=_listed(columns), filter=condition))

    def within(self, topic_id: str | None, spans: Sequence[Span]) -> Any:
        """The condition that a row is in one of the spans; all spans are of one topic."""
        topic, own_id, partition, offset = (ds.field(f"{self.prefix}{name}") for name in COORDINATES)
        inside = ds.scalar(False)
        for span in spans:
            inside |= (partition == span.partition) & (offset >= span.start) & (offset < span.end)
        same = own_id.is_null() if topic_id is None else own_id == topic_id
        return (topic == spans[0].topic) & same & inside

    def batches(self, columns: Sequence[str] | Mapping[str, ds.Expression]) -> Iterator[pa.RecordBatch]:
        batches = iter(self._dataset.to_batches(columns=_listed(columns)))
        while (batch := self._guard(lambda: next(batches, None))) is not None:
            yield batch

    def as_of(self, unit: int) -> Table | None:
        """The table without the units after this one; None if its log no longer has the first commit of these units.

        delta-rs's history is not used: version 1.6.6 counts versions back from the loaded one but starts at the newest
        commit, which is a different one while the app runs.
        """
        first = self.delta.version() + 1  # first commit of the units after `unit`
        for version in reversed(range(first)):
            try:
                found = self._unit_of(version)
            except FileNotFoundError:
                return None
            if found is not None and found <= unit:
                break
            first = first if found is None else version
        try:
            return Table(self._storage, self.name, first - 1) if first else None
        except DeltaError:
            return None

    def _unit_of(self, version: int) -> int | None:
        """The unit of a commit; None if the commit belongs to no unit."""
        entry = self._storage.get(f"{self.name}/_delta_log/{version:020d}.json")
        infos = (json.loads(line).get("commitInfo") for line in entry.splitlines())
        unit = next((info.get("protolake.sequence") for info in infos if info), None)
        return None if unit is None else int(unit)

    def _is_outdated(self) -> bool:
        """Whether files are missing and a newer version of the table removed all of them."""
        newer = set(_delta(self._storage, self.name).get_add_actions()["path"].to_pylist())
        gone = {path for path, _ in self._files() if not self._storage.exists(f"{self.name}/{path}")}
        return bool(gone) and not gone & newer

    def _guard(self, read: Any) -> Any:
        try:
            return read()
        except (OSError, pa.ArrowException) as error:
            if is_store_error(error):
                raise
            if self._is_outdated():
                raise UnreachableError(
                    f"files of table {self.name} were removed while the audit read it, because no newer version needs "
                    "them: run the audit again, or keep such files longer (lake.log_retention_hours)"
                ) from None
            words = first_message_line(error)
            raise ContractError(
                f"table {self.name} cannot be read ({words}): restore its files from a backup"
            ) from None


def _listed(columns: Sequence[str] | Mapping[str, ds.Expression] | None) -> Any:
    return dict(columns) if isinstance(columns, Mapping) else columns and list(columns)


def _delta(storage: Storage, name: str, version: int | None = None) -> DeltaTable:
    return DeltaTable(storage.uri(name), version=version, storage_options=storage.delta_options)


@dataclass(frozen=True)
class Snapshot:
    """The audited tables and the state that they are audited by.

    Attributes:
        upto: the last unit in the tables.
        start, end: first offset of ingest, and offset after the last ingested one. A partition that is missing in
            `start` was added later and began at 0.
        assumed: how `start` was found if the lake does not record it, else "".
        topic_ids: topic -> Kafka's topic id.
        mean_bytes: mean size of a record value.
        names: routing value -> routing name.
        given_up: (topic id, span) of the accepted losses.
        folded: kind of gold tables -> the last unit that all of them include.
        definitions: number -> {"rules": [{"name", "check", "action"}, ...]}, and with a projection also "columns"
            {name: expression}, "drop" [name, ...], "hmac_key", the fingerprint of the key, and "references"
            {name: {"on", "columns", "content"}}.
        paused: silver table -> rows that wait, according to the last unit.
        messages: silver table -> the message types of its rows.
    """

    lake: Lake
    settings: Settings
    upto: int
    start: Offsets
    end: Offsets
    assumed: str
    topic_ids: dict[str, str]
    mean_bytes: float
    names: dict[str, str]
    schemas: Schemas
    tables: dict[str, Table]
    given_up: list[tuple[str | None, Span]] = field(default_factory=list)
    folded: dict[str, int] = field(default_factory=dict)
    definitions: dict[str, Any] = field(default_factory=dict)
    paused: dict[str, int] = field(default_factory=dict)
    messages: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def read(settings: Settings, timeout_s: float) -> Snapshot:
        """
        Raises:
            ConfigurationError: there is no lake.
            UnreachableError: no moment between two units came within `timeout_s` seconds.
            ContractError: the files with the state of the lake are damaged.
        """
        lake = Lake(settings.lake_address)
        if not lake.units():
            raise ConfigurationError(f"lake.path: no lake with committed units at {lake.uri}")
        deadline = time.monotonic() + timeout_s
        while True:
            before = _moment(lake)
            try:
                found = _read(lake, settings, before[0]) if before[0] == before[1] else None
            except (DeltaError, FileNotFoundError):  # the app removed a log entry during the read
                if time.monotonic() > deadline:
                    raise
                found = None
            if found is not None and _moment(lake) == before:
                return found
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"unit {before[0]} of {lake.uri} is committed, but the tables are complete up to {before[1]}: "
                    "start the app, which completes the unit, then run the audit again"
                )
            time.sleep(RETRY_S)

    @property
    def layout(self) -> Any:
        return self.settings.layout

    @property
    def identity(self) -> str:
        """The lake's id, which is the application id of its transactions."""
        return self.lake.storage.get(self.lake.id).decode().strip()

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of silver's columns, by name in lower case; the first table that has a column counts."""
        schemas = [LINEAGE_SCHEMA, *(table.schema for table in self.silver().values())]
        return {column.name.lower(): column.type for schema in reversed(schemas) for column in schema}

    def touched(self, number: int) -> frozenset[str]:
        """The columns, casefolded, that rows of a definition do not have as they were sent."""
        definition = self.definitions.get(str(number), {})
        joined = (name for one in definition.get("references", {}).values() for name in one["columns"])
        names = (*definition.get("columns", {}), *definition.get("drop", ()), *joined)
        return frozenset(name.casefold() for name in names)

    def is_checked_as_sent(self, number: int) -> bool:
        """Whether rows of a definition do not show themselves which of its expectations they pass."""
        expectations = self.definitions.get(str(number), {}).get("rules", ())
        return bool(self.touched(number)) or are_judged(one["check"] for one in expectations)

    @cached_property
    def projected(self) -> frozenset[str]:
        """The columns, casefolded, that some definition touches."""
        return frozenset[str]().union(*(self.touched(int(number)) for number in self.definitions))

    @cached_property
    def renamed(self) -> RenamedFields:
        return RenamedFields(self.schemas)

    def path_of(self, silver: Table, name: str) -> tuple[str, ...]:
        """The path to the column, or the field inside one, that a setting calls by this name; () = there is none."""
        found: list[str] = []
        inside, kinds = pa.struct(list(silver.schema)), self.messages.get(silver.name, ())
        whole = self.renamed.column_in_table(kinds, name, silver.schema.names)
        for part in [name] if whole in silver.schema.names else name.split("."):
            names = [field.name for field in inside] if pa.types.is_struct(inside) else []
            column = self.renamed.column_in_table(kinds, part, names)
            if column not in names:
                return ()
            found.append(column)
            inside, kinds = inside.field(column).type, self.renamed.inside(kinds, column)
        return tuple(found)

    def silver(self) -> dict[str, Table]:
        return {name: table for name, table in self.tables.items() if self.layout.is_silver(name)}


def _moment(lake: Lake) -> tuple[int, int]:
    """(the last committed unit, the last applied unit)."""
    try:
        finished = int(lake.storage.get(f"{lake.manifests}/finished"))
    except (FileNotFoundError, ValueError):
        finished = 0
    return max(lake.units(), default=0), finished


def _manifest(lake: Lake, number: int) -> dict[str, Any]:
    key = f"{lake.manifests}/{number:012d}.json"
    stored = read_durable(lake.storage, key) or {}
    text = stored.get("manifest", "")
    if hashlib.sha256(text.encode()).hexdigest() != stored.get("digest"):
        raise ContractError(
            f"{lake.storage.uri(key)} was altered after it was written: restore it from a backup of the lake"
        )
    return dict(json.loads(text))


def _read(lake: Lake, settings: Settings, upto: int) -> Snapshot:
    # Before the tables: a running app may update gold. A lake of 0.2.0 has its cursor in the mark.
    cursor = read_json(lake.storage, f"{lake.followers}/gold.json") or {}
    folded = {GOLD: int(cursor.get("unit", (read_json(lake.storage, lake.synced) or {}).get("folded", 0)))}
    for kind in settings.gold.tables:
        folded[kind] = int(
            (read_json(lake.storage, f"{lake.followers}/{gold_follower(kind)}.json") or {}).get("unit", 0)
        )
    tables = {name: Table(lake.storage, lake.table(name)) for name in lake.tables()}
    manifests = (_manifest(lake, number) for number in reversed(lake.units()))
    last = next((m for m in manifests if "end" in m["source"]), None)
    source = last["source"] if last else {"end": {}}
    pauses = _manifest(lake, upto)["source"].get("pauses", {})
    counts = last["counts"] if last else {}
    admitted = read_durable(lake.storage, lake.admitted) or {"names": {}, "messages": {}}
    start, assumed = _start(lake, tables.get(settings.tables.bronze), source.get("topic_ids", {}))
    return Snapshot(
        lake,
        settings,
        upto,
        start,
        source["end"],
        assumed,
        source.get("topic_ids", {}),
        counts.get("value_bytes", 0) / max(counts.get("bronze", 0), 1),
        admitted["names"],
        Schemas(lake),
        tables,
        _given_up(tables.get(settings.tables.lost)),
        folded,
        _definitions(lake),
        {settings.layout.silver_of(name): pause["rows"] for name, pause in pauses.items()},
        {settings.layout.silver_of(name): kinds for name, kinds in admitted["messages"].items()},
    )


def _definitions(lake: Lake) -> dict[str, Any]:
    """The definitions; one with reference tables names the entry that has all else."""
    stored = read_durable(lake.storage, lake.definitions) or {}
    return {number: stored.get(str(entry.get("as")), {}) | entry for number, entry in stored.items()}


def _start(lake: Lake, bronze: Table | None, topic_ids: dict[str, str]) -> tuple[Offsets, str]:
    """(first offsets of ingest, how they were found if the lake does not record them, else ""). A topic that was
    recreated since is left out: its ingest began at 0."""
    began = read_durable(lake.storage, f"{lake.manifests}/began")
    if began is None and lake.units()[0] == 1:
        began = _manifest(lake, 1)["source"]
    if began is not None:
        ids = began.get("topic_ids", {})
        same = {t: offsets for t, offsets in began.get("start", {}).items() if ids.get(t) == topic_ids.get(t)}
        return same, ""
    found: Offsets = {}
    if bronze is not None:
        rows = bronze.read(["topic", "partition", "offset"])
        for row in rows.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist():
            found.setdefault(row["topic"], {})[str(row["partition"])] = row["offset_min"]
    return found, "start of the lake is not recorded: the audit took it from the first offsets in bronze"


def _given_up(table: Table | None) -> list[tuple[str | None, Span]]:
    rows = table.read(["topic", "topic_id", "partition", "first", "end"]).to_pylist() if table else []
    ends = (FAR if row["end"] is None else row["end"] for row in rows)
    return [(r["topic_id"], Span(r["topic"], r["partition"], r["first"], e)) for r, e in zip(rows, ends, strict=True)]
