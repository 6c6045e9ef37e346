"""Gives the rows of a fresh job the columns that their rows in silver have, each by its own definition.

A fresh job decodes records as they were sent. A row that silver lacks gets the columns of the definition in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_app.lake.delta import parquet as files
from spark_app.lake.files.hmac_key import fingerprint_of, read_key
from spark_app.lake.files.reference_files import key_of
from spark_app.lake.files.storage import Storage
from spark_app.model.definitions import Join, Projection
from spark_app.model.log import log
from spark_app.model.record_schemas import LINEAGE_COORDINATES
from spark_app.model.reports import FileEntry, Report
from spark_app.protobuf.columns.fit import known_types, table_columns
from spark_app.tables.definitions import projections_of
from spark_app.tables.projections.row_projections import project
from spark_app.tables.references.joining import join
from spark_app.tables.sql.expressions import calls_hmac
from spark_app.tables.sql.names import columns_in
from spark_app.units.driver.open_lake import OpenLake

NUMBER = "_definition"
IN_FORCE = -1  # the number of rows that silver lacks


class ScratchProjections:
    """Of one lake; `scratch` has the files of the job."""

    def __init__(self, opened: OpenLake, scratch: Storage):
        self._opened = opened
        self._scratch = scratch
        self._layout = opened.settings.layout
        self._by_number = projections_of(opened.lake)
        path = opened.settings.silver.hmac_key_file
        self._key = read_key(path) if path else None
        self._fingerprint = fingerprint_of(self._key) if self._key else ""
        self._logged = False

    def apply(self, report: Report, first: int, last: int) -> Report:
        """The report with files of the projected rows instead of those that were decoded.

        Args:
            first, last: the offsets of the records in all partitions.
        """
        names = {self._layout.silver_of(name): name for name in self._opened.admission.messages}
        if not self._by_number and not self._opened.settings.are_columns_changed:
            return report
        made = {
            table: list(self._apply_to(names[table], table, entries, first, last)) if table in names else entries
            for table, entries in report.files.items()
        }
        return replace(report, files=made)

    def _apply_to(
        self, name: str, table: str, entries: Iterable[FileEntry], first: int, last: int
    ) -> Iterator[FileEntry]:
        actual = self._actual(table, first, last)
        by_number = {IN_FORCE: self._in_force(name), **self._by_number}
        catalog, routing = self._opened.resolver.ledger.catalog(), self._opened.admission.routing()
        wrapper, fixed = self._opened.settings.wrapper.names, routing.fixed.get(name)
        types = known_types(table_columns(routing.messages[name], catalog.columns, wrapper, fixed), catalog)
        for entry in entries:
            with self._scratch.open_input(f"{table}/{entry.path}") as source:
                rows = pq.ParquetFile(source).read()
            at = _positions(rows, actual)
            numbers = _numbers(actual, at)
            for position, number in enumerate(np.unique(numbers).tolist()):
                own = np.flatnonzero(numbers == number)
                part = self._project(rows.take(pa.array(own)), by_number.get(number), types, actual, at[own])
                path = f"{entry.path.removesuffix('.parquet')}-{position}.parquet"
                yield files.write_file(self._scratch, table, path, part, "snappy", durable=False)
            self._scratch.delete(f"{table}/{entry.path}")

    def _in_force(self, name: str) -> Projection | None:
        opened = self._opened
        catalog, routing = opened.resolver.ledger.catalog(), opened.admission.routing()
        definition = opened.projections.definitions(opened.expectations.definitions, catalog, routing).of(name)
        return None if definition is None else definition.projection

    def _actual(self, table: str, first: int, last: int) -> pa.Table:
        """The rows of silver at these offsets."""
        self._opened.units.refresh(table)
        tables, storage = self._opened.units.committer.tables, self._opened.lake.storage
        columns = tables.columns(table)
        wanted = self._copied() | {*LINEAGE_COORDINATES, NUMBER}
        kept = [] if columns is None else [name for name in columns.names if name in wanted]
        parts = []
        for key in tables.files_between(table, "_offset", first, last):
            with storage.open_input(key) as source:
                file = pq.ParquetFile(source)
                rows = file.read(columns=[name for name in kept if name in file.schema_arrow.names])
            inside = pc.and_(pc.greater_equal(rows["_offset"], first), pc.less_equal(rows["_offset"], last))
            parts.append(rows.filter(inside))
        if not parts:
            return pa.table({name: [] for name in (*LINEAGE_COORDINATES, NUMBER)})
        return pa.concat_tables(parts, promote_options="permissive")

    def _copied(self) -> set[str]:
        """The columns that nothing can prove, so that the fresh rows get those of silver."""
        return {name for projection in self._by_number.values() for name in self._unproven(projection)}

    def _unproven(self, projection: Projection) -> set[str]:
        """The columns made with another key, or of versions of reference tables that are no longer kept."""
        other_key = projection.key not in ("", self._fingerprint)
        lost = {name.casefold() for one in projection.joins if not self._has(one) for name in one.columns}
        made = {name.casefold() for name, _ in projection.columns}
        joined = {name for one in projection.joins for name in one.columns if name.casefold() in lost - made}
        return joined | {
            name
            for name, text in projection.columns
            if (other_key and calls_hmac(text)) or lost & {one.casefold() for one in columns_in(text)}
        }

    def _has(self, one: Join) -> bool:
        return self._opened.lake.storage.exists(key_of(one.reference, one.content))

    def _project(
        self, rows: pa.Table, projection: Projection | None, types: pa.Schema, actual: pa.Table, at: np.ndarray
    ) -> pa.Table:
        if not projection:
            return rows
        unproven = self._unproven(projection)
        proven = tuple((name, text) for name, text in projection.columns if name not in unproven)
        own = replace(projection, columns=proven, drops=(*projection.drops, *unproven))
        kept = [one for one in projection.joins if self._has(one)]
        try:
            joined = join(rows, kept, types, self._opened.lake.storage)
        except FileNotFoundError:  # a newer version has replaced it just now
            return self._project(rows, projection, types, actual, at)
        made = project(joined, own, types, self._key if projection.key else None)
        if unproven and not self._logged:
            self._logged = True
            log.warning(
                "columns made with another hmac key, or of an older version of a reference table, are not compared",
                columns=sorted(unproven),
            )
        for name in unproven & set(actual.column_names):
            made = made.append_column(name, actual[name].take(pa.array(at)))
        return made


def _positions(rows: pa.Table, actual: pa.Table) -> np.ndarray:
    """For each row the position of its record's row in silver; -1 = there is none."""
    known = {key: position for position, key in enumerate(_coordinates(actual))}
    return np.array([known.get(key, -1) for key in _coordinates(rows)], np.int64)


def _coordinates(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[name].to_pylist() for name in LINEAGE_COORDINATES), strict=True)


def _numbers(actual: pa.Table, at: np.ndarray) -> np.ndarray:
    """The number of each row's definition; 0 = its row has none."""
    numbers = np.zeros(len(actual) + 1, np.int64)
    numbers[-1] = IN_FORCE  # at -1
    if NUMBER in actual.column_names and len(actual):
        numbers[:-1] = actual[NUMBER].cast(pa.int64()).fill_null(0).to_numpy()
    found: np.ndarray = numbers[at]
    return found
