"""Makes silver tables anew from bronze, with the columns of the settings.

Every row of silver stays a row: expectations are not checked again, and records in quarantine, dropped or waiting ones
stay where they are. Each table has one job and one unit, whose Delta commit replaces all files and the columns. Ingest
waits meanwhile. After a crash before the manifest the files are removed and the table is made again; after it a start
applies the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_app.followers.gold.aggregate import Aggregator, renew_all
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.record_schemas import COORDINATES
from spark_app.model.reports import Report
from spark_app.recovery.requests import Request, load_progress, save_progress
from spark_app.sources.bronze import ranges_of
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze, read_silver
from spark_app.units.driver.unit import UnitRunner


class Renewal:
    """One request. Call `step` between two units, with the unit lock."""

    def __init__(
        self, session: SparkSession, opened: OpenLake, units: UnitRunner, gold: Sequence[Aggregator], request: Request
    ):
        self._session = session
        self._opened = opened
        self._units = units
        self._gold = gold
        self._request = request
        self._names: list[str] = sorted(set(request.arguments["names"]))
        # Routing name -> rows of the tables that are done; None before the first step.
        self._done: dict[str, int] | None = load_progress(opened.lake, opened.units.manifests, request)

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Begin, or make the next table anew; with `dry_run` only count its rows.

        Returns:
            A report of no new rows; None if the request is done.

        Raises:
            UsageError: no table has a requested name.
            ContractError: bronze does not give each row of the table once.
        """
        if self._done is None:
            self._begin()
            return Report(), {}
        name = next((name for name in self._names if name not in self._done), None)
        if name is None:
            return None
        coordinates = self._coordinates(name)
        done = {**self._done, name: coordinates.num_rows}
        if coordinates.num_rows and not self._request.dry_run:
            self._renew(name, coordinates, done)
        self._done = done
        return Report(), {}

    def _begin(self) -> None:
        self._opened.admission.check_names(self._names)
        self._done = {}
        save_progress(self._opened.lake, self._opened.units.manifests, self._request, self._done)

    def conclude(self) -> dict[str, Any]:
        """Recompute gold, then return the result. Call it without the unit lock."""
        assert self._done is not None
        layout = self._opened.settings.layout
        rows = {layout.silver_of(name): rows for name, rows in sorted(self._done.items())}
        gold = {} if self._request.dry_run else renew_all(self._gold, set(self._names), dry_run=False)
        return {"rows": rows, "gold": gold}

    def _coordinates(self, name: str) -> pa.Table:
        rows = read_silver(self._session, self._opened, [name])
        if rows is None:
            return pa.table({column: [] for column in COORDINATES})
        return rows.select(*COORDINATES).toArrow().sort_by([(column, "ascending") for column in COORDINATES])

    def _renew(self, name: str, coordinates: pa.Table, done: dict[str, int]) -> None:
        """Make one table anew; `done` is the progress after it."""
        sequence = self._opened.units.manifests.last + 1
        with self._opened.renewing([name]):
            tasks = self._units.tasks(coordinates.num_rows)
            records = read_bronze(self._session, self._opened, ranges_of(coordinates), tasks)
            report = self._units.run(records, sequence, replace(FROM_BRONZE, renews=True))
        table = self._opened.settings.layout.silver_of(name)
        if report.bronze != coordinates.num_rows or report.silver != {name: report.bronze}:
            self._units.discard(report)
            raise ContractError(
                f"{table} has {coordinates.num_rows} rows, but bronze gives {report.silver.get(name, 0)} of them now",
                "run `rebuild`, which names those that differ; nothing was changed",
            )
        source = {"request": self._request.id, "records": report.bronze, "progress": done}
        self._opened.commit(report, "renew", source)
        log.info("table made anew: streams that read it have to begin again", table=table, rows=report.bronze)
