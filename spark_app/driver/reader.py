"""Reads the lake's own tables by Spark: bronze as a source of records, and what is compared with it.

From the files that the log names: they and their statistics are at hand, while Spark's Delta reader takes seconds to
begin, and no batch runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.driver.opened import OpenLake
from spark_app.driver.unit import Origin
from spark_app.records import LINEAGE_SCHEMA
from spark_app.worker.tables import BRONZE_SCHEMA, COORDINATES, LINEAGE_COORDINATES

FROM_BRONZE = Origin({}, write_bronze=False, settle_in_place=True)


def read_table(session: SparkSession, opened: OpenLake, name: str) -> DataFrame | None:
    """A table as it is on the disk; None when there is no such table."""
    opened.refresh(name)
    columns = opened.committer.tables.columns(name)
    return None if columns is None else _read(session, opened.committer.tables.files(name), columns)


def read_silver(session: SparkSession, opened: OpenLake, names: Iterable[str]) -> DataFrame | None:
    """Coordinates and "table" of all rows of the silver tables with these routing names; None when they have none."""
    paths = []
    for table in map(opened.settings.tables.layout.silver_of, names):
        opened.refresh(table)
        paths += opened.committer.tables.files(table)
    if not paths:
        return None
    rows = _read(session, paths, pa.schema([LINEAGE_SCHEMA.field(name) for name in LINEAGE_COORDINATES]))
    return rows.select(*coordinates_of_row(), folder_of_row().alias("table"))


def read_offsets(session: SparkSession, opened: OpenLake, first: int, last: int) -> DataFrame:
    """Bronze, at least the records with these offsets."""
    name = opened.settings.tables.bronze
    return _read(session, opened.committer.tables.files_between(name, "offset", first, last), BRONZE_SCHEMA)


def read_at(session: SparkSession, opened: OpenLake, coordinates: pa.Table) -> DataFrame:
    """The raw records at the coordinates, at least one."""
    first, last = pc.min_max(coordinates["offset"]).as_py().values()
    bronze = read_offsets(session, opened, first, last).where(F.col("offset").between(first, last))
    wanted = F.broadcast(session.createDataFrame(coordinates.select(COORDINATES)))
    picked = bronze.join(wanted, COORDINATES, "left_semi")
    return picked.select(*BRONZE_SCHEMA.names)


def folder_of_row() -> Column:
    """The name of the folder, and so of the table, whose file a row is from. A regular expression costs far more."""
    return F.substring_index(F.substring_index(F.col("_metadata.file_path"), "/", -2), "/", 1)


def coordinates_of_row() -> list[Column]:
    """The coordinates of a row of silver, under the names that they have everywhere else."""
    return [F.col(own).alias(name) for own, name in zip(LINEAGE_COORDINATES, COORDINATES, strict=True)]


def _read(session: SparkSession, paths: list[str], columns: pa.Schema) -> DataFrame:
    fields = from_arrow_schema(columns)
    return session.read.schema(fields).parquet(*paths) if paths else session.createDataFrame([], fields)
