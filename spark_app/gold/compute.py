"""From silver files to aggregates: all that gold asks of Spark.

One job reads the tables that have the same fields. A field that does not suit its function in one table (a sum over
text that is no number) is NULL there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.driver.reader import folder_of_row
from spark_app.gold.definition import Definition
from spark_app.settings import Aggregate, Settings
from spark_app.worker.tables import split_by_value

TABLE = "_protolake_table"
FUNCTIONS: dict[str, Callable[[Column], Column]] = {
    "count": F.count,
    "sum": F.sum,
    "min": F.min,
    "max": F.max,
    "mean": F.mean,
    "distinct": F.countDistinct,
    "median": F.median,
}
OF_NUMBERS, OF_ORDER = ("sum", "mean", "median"), ("min", "max")


class Calculator:
    """Aggregates per key, for many tables at once. Files and fields are by routing name, and so are the results."""

    def __init__(self, session: SparkSession, settings: Settings):
        self._session = session
        self._layout = settings.tables.layout
        self._definition = Definition.of(settings)

    def of_files(self, files: dict[str, list[str]], fields: dict[str, pa.Schema]) -> dict[str, pa.Table]:
        """Aggregates of the rows of the files."""
        parts: dict[str, pa.Table] = {}
        for schema, names in _alike(files, fields):
            parts |= self._collect(self._read({name: files[name] for name in names}, schema), names)
        return parts

    def of_touched_keys(
        self, new: dict[str, list[str]], rows: dict[str, list[str]], fields: dict[str, pa.Schema]
    ) -> dict[str, pa.Table]:
        """Aggregates over all `rows` of the keys that the new files touch."""
        key = self._definition.key
        parts: dict[str, pa.Table] = {}
        for schema, names in _alike(new, fields):
            touched = self._read({name: new[name] for name in names}, schema)
            touched = touched.select(F.col(key).alias("touched_key"), F.col(TABLE).alias("touched_table")).distinct()
            same = (F.col(TABLE) == F.col("touched_table")) & F.col(key).eqNullSafe(F.col("touched_key"))
            found = self._read({name: rows[name] for name in names}, schema).join(touched, same, "left_semi")
            parts |= self._collect(found, names)
        return parts

    def _read(self, files: dict[str, list[str]], fields: pa.Schema) -> DataFrame:
        """The fields of all files in one DataFrame, with the table's name. Missing columns are NULL."""
        paths = [path for group in files.values() for path in group]
        rows = self._session.read.schema(from_arrow_schema(fields)).parquet(*paths)
        return rows.withColumn(TABLE, folder_of_row())

    def _collect(self, rows: DataFrame, names: Iterable[str]) -> dict[str, pa.Table]:
        columns = [self._column(rows, name, aggregate) for name, aggregate in self._definition.aggregates.items()]
        result = rows.groupBy(TABLE, self._definition.key).agg(*columns).toArrow()
        name_of = {self._layout.silver_of(name): name for name in names}
        return {name_of[table]: rows for table, rows in split_by_value(result, TABLE)}

    def _column(self, rows: DataFrame, name: str, aggregate: Aggregate) -> Column:
        field = self._definition.field_of(aggregate)
        value = _suited(rows, field, aggregate.function) if field else F.lit(1)
        return FUNCTIONS[aggregate.function](value).alias(name)


def _suited(rows: DataFrame, field: str, function: str) -> Column:
    """The field as the function takes it, NULL where it cannot: each table has types of its own, and one that does not
    suit must not end the gold of all."""
    kind = rows.schema[field].dataType
    if function in OF_NUMBERS and isinstance(kind, T.StringType):
        return F.col(field).try_cast("double")
    if function in OF_NUMBERS and not isinstance(kind, T.NumericType):
        return F.lit(None).cast("double")
    if function in OF_ORDER and "map<" in kind.simpleString():
        return F.lit(None).cast("string")
    return F.col(field)


def _alike(names: Iterable[str], fields: dict[str, pa.Schema]) -> list[tuple[pa.Schema, list[str]]]:
    """The tables by their fields."""
    found: dict[pa.Schema, list[str]] = {}
    for name in names:
        found.setdefault(fields[name], []).append(name)
    return list(found.items())
