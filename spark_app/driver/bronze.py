"""Bronze as a source of records: what was landed, read again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_app.driver.opened import OpenLake
from spark_app.driver.unit import Origin
from spark_app.worker.tables import BRONZE_SCHEMA, COORDINATES

FROM_BRONZE = Origin({}, write_bronze=False, settle_in_place=True)


def read_table(session: SparkSession, opened: OpenLake, name: str) -> DataFrame | None:
    """A table of the lake by Spark; None when there is no such table."""
    path = opened.lake.table(name)
    return session.read.format("delta").load(str(path)) if (path / "_delta_log").is_dir() else None


def read_at(session: SparkSession, opened: OpenLake, coordinates: pa.Table) -> DataFrame:
    """The raw records at the coordinates, at least one; the offsets' bounds let Delta skip files."""
    wanted = session.createDataFrame(coordinates.select(COORDINATES))
    low, high = pc.min_max(coordinates["offset"]).as_py().values()
    bronze = session.read.format("delta").load(str(opened.lake.table(opened.settings.tables.bronze)))
    picked = bronze.where(F.col("offset").between(low, high)).join(F.broadcast(wanted), COORDINATES, "left_semi")
    return picked.select(*BRONZE_SCHEMA.names)
