"""Compares the tables with a fresh job from bronze: in which table each record is, and with what content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.lake.files.storage import Storage
from spark_app.model.record_schemas import COORDINATES
from spark_app.units.driver.reader import FOLDER, coordinates_of_row, read_rows

PRESENT, MISSING, DIFFERING = "present", "missing", "differing"
DOUBLED, PHANTOM = "doubled", "phantom"
REPLAYABLE, WAITING, KEPT_OUT = "replayable", "waiting", "kept out"
EXPECTED, ACTUAL, RESOLVED = "expected", "actual", "resolved"  # sides: fresh job, tables, `resolved_events`

TYPES = (T.StringType(), T.StringType(), T.IntegerType(), T.LongType())
COORDINATE_TYPES = T.StructType([T.StructField(name, kind) for name, kind in zip(COORDINATES, TYPES, strict=True)])
JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "true"}


@dataclass(frozen=True)
class Range:
    """The records of a topic partition from `first` (included) to `end` (excluded)."""

    topic: str
    topic_id: str | None
    partition: int
    first: int
    end: int

    def condition(self, prefix: str = "") -> Column:
        offset = F.col(f"{prefix}offset")
        same = (F.col(f"{prefix}topic") == self.topic) & F.col(f"{prefix}topic_id").eqNullSafe(F.lit(self.topic_id))
        return same & (F.col(f"{prefix}partition") == self.partition) & (offset >= self.first) & (offset < self.end)


def within(ranges: Sequence[Range], prefix: str = "") -> Column:
    """Whether a row's coordinates are in one of the ranges; `prefix` is "_" in silver."""
    inside = reduce(lambda one, other: one | other, (r.condition(prefix) for r in ranges), F.lit(False))
    return F.coalesce(inside, F.lit(False))


@dataclass
class Silver:
    """Files of one silver table: those of the fresh job (expected) and those of the table, by their keys."""

    schema: pa.Schema
    expected: list[str] = field(default_factory=list)
    actual: list[str] = field(default_factory=list)


def locate_silver(
    session: SparkSession, storage: Storage, tables: Iterable[Silver], ranges: Sequence[Range]
) -> list[DataFrame]:
    """Read coordinates, table, side and content hash of the silver rows; the folder of a file names its table.

    Tables of one schema are read together, so that the number of Spark jobs does not grow with the tables.
    """
    groups: dict[str, Silver] = {}
    for table in tables:
        group = groups.setdefault(str(table.schema), Silver(table.schema))
        group.expected += table.expected
        group.actual += table.actual
    located = []
    for group in groups.values():
        schema = from_arrow_schema(group.schema)
        for keys, side in ((group.expected, EXPECTED), (group.actual, ACTUAL)):
            if keys:
                rows = read_rows(session, storage, keys, schema).where(within(ranges, "_"))
                located.append(
                    rows.select(*coordinates_of_row(), *_located_in(F.col(FOLDER), side, _fingerprint(schema)))
                )
    return located


def locate_others(rows: DataFrame, table: str, side: str) -> DataFrame:
    """Coordinates, table and side of rows outside silver. Only their presence counts: the content hash is 0."""
    return rows.select(*COORDINATES, *_located_in(F.lit(table), side, F.lit(0).cast("bigint")))


def _located_in(table: Column, side: str, fingerprint: Column) -> list[Column]:
    return [table.alias("table"), F.lit(side).alias("side"), fingerprint.alias("fingerprint")]


def _fingerprint(schema: T.StructType) -> Column:
    """The hash of a row's content; a column that a file lacks is NULL. The hash skips NULL, hence the flags."""
    parts = []
    for part in schema.fields:
        if part.name == "_definition":  # a row keeps the expectations that it was checked by
            continue
        column = F.col(f"`{part.name}`")
        nested = isinstance(part.dataType, T.StructType | T.ArrayType | T.MapType)
        value = F.to_json(F.struct(_ordered(column, part.dataType)), JSON) if nested else column
        parts += [value, column.isNull()]
    return F.xxhash64(*parts)


def _ordered(value: Column, kind: T.DataType) -> Column:
    """The value with its maps as sorted lists: the order of a map's entries does not matter."""
    if "map<" not in kind.simpleString():
        return value
    if isinstance(kind, T.StructType):
        fields = [_ordered(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType):
        inner = kind.elementType
        return F.transform(value, lambda item: _ordered(item, inner))
    assert isinstance(kind, T.MapType)
    of = kind.valueType
    entries = F.transform(
        F.map_entries(value), lambda e: F.struct(e["key"].alias("key"), _ordered(e["value"], of).alias("value"))
    )
    return F.array_sort(entries)


def classify(
    session: SparkSession, located: Sequence[DataFrame], quarantine: str, deferred: str, by_rules: str, more: list[str]
) -> pa.Table:
    """Classify the records.

    Args:
        located: rows of `locate_silver` and `locate_others`.
        by_rules: stands for the tables of records that an expectation keeps out of silver; the fresh job checks no
            expectations.
        more: the names of all other tables in `located`.

    Returns:
        One row per record: coordinates, `expected`, `actual`, `state`. `expected` is the table where the record
        should be, NULL if the fresh job has no row of it; `actual` is the table where it is, NULL if it is in none.
        A replayed record whose row is missing and that the fresh job quarantines is `differing`: quarantine cannot
        open it again.
    """
    names = pa.array([quarantine, deferred, by_rules, *more])
    numbers = session.createDataFrame(pa.table({"table": names, "number": range(len(names))}))
    rows = reduce(DataFrame.unionByName, located).join(F.broadcast(numbers), "table")
    silver = F.col("number") > 2
    expected, actual = F.col("side") == EXPECTED, F.col("side") == ACTUAL
    found = (
        rows.groupBy(*COORDINATES)  # only numbers are aggregated: for the maximum of a text Spark would sort all rows
        .agg(
            F.count(F.when(expected, 1)).alias("wanted"),
            F.count(F.when(actual, 1)).alias("found"),
            F.count(F.when(F.col("side") == RESOLVED, 1)).alias("resolved"),
            F.max(F.when(expected, F.col("number"))).alias("expected"),
            F.max(F.when(actual & silver, F.col("number"))).alias("in_silver"),
            F.max(F.when(actual & ~silver, F.col("number"))).alias("elsewhere"),
            F.max(F.when(expected, F.col("fingerprint"))).alias("content"),
            F.max(F.when(actual, F.col("fingerprint"))).alias("found_content"),
        )
        .where("wanted + found > 0")
        .withColumn("actual", F.coalesce("in_silver", "elsewhere"))
    )
    same = (F.col("expected") == F.col("actual")) & F.col("content").eqNullSafe(F.col("found_content"))
    refused, waits = F.col("expected") == 0, F.col("expected") == 1
    state = (
        F.when((F.col("wanted") > 1) | (F.col("found") > 1), DOUBLED)
        .when(F.col("wanted") == 0, PHANTOM)
        .when((F.col("found") == 0) & (F.col("resolved") > 0) & refused, DIFFERING)
        .when(F.col("found") == 0, MISSING)
        .when(same, PRESENT)
        .when(F.col("in_silver").isNull() & (F.col("elsewhere") == 2), KEPT_OUT)
        .when(F.col("in_silver").isNotNull(), DIFFERING)
        .when((F.col("actual") == 0) & ~waits, REPLAYABLE)
        .otherwise(WAITING)
    )
    classified = found.select(*COORDINATES, "expected", "actual", state.alias("state")).toArrow()
    for column in ("expected", "actual"):
        at = classified.column_names.index(column)
        classified = classified.set_column(at, column, names.take(classified[column].combine_chunks()))
    return classified
