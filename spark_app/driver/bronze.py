"""Bronze as a source of records: what was landed, read again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.driver.opened import OpenLake
from spark_app.driver.unit import Origin
from spark_app.worker.tables import BRONZE_SCHEMA, COORDINATES

FROM_BRONZE = Origin({}, write_bronze=False, settle_in_place=True)


def read_table(session: SparkSession, opened: OpenLake, name: str) -> DataFrame | None:
    """A table of the lake by Spark; None when there is no such table."""
    path = opened.lake.table(name)
    return session.read.format("delta").load(str(path)) if (path / "_delta_log").is_dir() else None


def read_at(session: SparkSession, opened: OpenLake, coordinates: pa.Table) -> DataFrame:
    """The raw records at the coordinates, at least one.

    From the files, for their statistics are at hand: Spark's Delta reader takes seconds to begin, and no batch runs
    meanwhile.
    """
    low, high = pc.min_max(coordinates["offset"]).as_py().values()
    paths = opened.committer.tables.files_between(opened.settings.tables.bronze, "offset", low, high)
    bronze = session.read.schema(from_arrow_schema(BRONZE_SCHEMA)).parquet(*paths)
    wanted = F.broadcast(session.createDataFrame(coordinates.select(COORDINATES)))
    picked = bronze.where(F.col("offset").between(low, high)).join(wanted, COORDINATES, "left_semi")
    return picked.select(*BRONZE_SCHEMA.names)
