"""Computes aggregates from silver files, with Python workers or Spark SQL.

Python workers compute the aggregates for which Arrow gives exactly Spark SQL's results. Spark SQL computes the others,
and reads the files that the workers cannot read; its error is the one that is reported.

One job of Spark SQL reads all tables with the same fields. If a field does not suit its function in one table (a sum
over text that is no number), it is NULL in that table. A sum of integers is exact: if one exceeds 64 bits, the column
of its table is `WIDE_SUM`. If a job fails, its tables are split in halves until the failing tables are isolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from spark_app.followers.gold import worker_tasks
from spark_app.followers.gold.aggregates import Aggregate, Grouping, source_of
from spark_app.followers.gold.merging import narrow
from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import Path
from spark_app.model.gold_functions import GOLD_FUNCTIONS
from spark_app.settings.models import Settings
from spark_app.units.driver.reader import FOLDER, read_rows
from spark_app.units.worker.table_rows import split_by_value

TABLE = "_protolake_table"
SUMMED = "_protolake_summed_"  # + gold column: the number of values in its sum
WIDE = "decimal(38,0)"

Read = Callable[[list[str]], DataFrame]  # routing names -> the rows to aggregate, with `TABLE`


class Computed(NamedTuple):
    """By routing name: the table of one row per key, or the error of a failed table."""

    parts: dict[str, pa.Table]
    failed: dict[str, Exception]


class AggregateComputer:
    """Aggregates per key, for many tables at once. Files and fields are by routing name, and so are the results."""

    def __init__(self, session: SparkSession, storage: Storage, settings: Settings):
        self._session = session
        self._storage = storage
        self._layout = settings.tables.layout
        self._spec = GoldSpec.of(settings)

    def of_files(self, files: dict[str, list[str]], fields: dict[str, pa.Schema]) -> Computed:
        """Aggregates of the rows of the files."""
        groupings = {name: self._grouping(fields[name]) for name in files}
        suited = {name: files[name] for name, grouping in groupings.items() if grouping.is_exact_in_arrow()}
        found = worker_tasks.aggregate(self._session, self._storage, suited, groupings) if suited else {}
        computed = Computed({name: narrow(part) for name, part in found.items() if part.num_rows}, {})
        for schema, names in _alike((name for name in files if name not in found), fields):
            self._compute(names, partial(self._read, files, schema), computed)
        return computed

    def of_touched_keys(
        self, new: dict[str, list[str]], rows: dict[str, list[str]], fields: dict[str, pa.Schema]
    ) -> Computed:
        """Aggregates of the keys in the `new` files, over all silver files of their tables (`rows`)."""
        key = F.col(f"`{self._spec.key}`")
        computed = Computed({}, {})

        def read(schema: pa.Schema, names: list[str]) -> DataFrame:
            touched = self._read(new, schema, names)
            touched = touched.select(key.alias("touched_key"), F.col(TABLE).alias("touched_table")).distinct()
            same = (F.col(TABLE) == F.col("touched_table")) & key.eqNullSafe(F.col("touched_key"))
            return self._read(rows, schema, names).join(touched, same, "left_semi")

        for schema, names in _alike(new, fields):
            self._compute(names, partial(read, schema), computed)
        return computed

    def _grouping(self, fields: pa.Schema) -> Grouping:
        spec = self._spec
        declared = spec.aggregates.items()
        wanted = tuple(Aggregate(name, how.function, spec.field_of(how)) for name, how in declared)
        return Grouping(spec.key, wanted, fields)

    def _compute(self, names: list[str], read: Read, computed: Computed) -> None:
        """Compute all tables in one job; if it fails, each half in a job of its own, down to single tables.

        Raises:
            Exception: the disk is full or the JVM has ended, so the error concerns no single table.
        """
        try:
            computed.parts.update(self._collect(read, names))
        except (PySparkException, Py4JJavaError) as error:
            if is_full(error):
                raise
            if len(names) == 1:
                self._session.range(1).collect()  # raises if Spark itself has ended: then the table is not the cause
                computed.failed[names[0]] = error
                return
            middle = len(names) // 2
            for some in (names[:middle], names[middle:]):
                self._compute(some, read, computed)

    def _read(self, files: dict[str, list[str]], fields: pa.Schema, names: list[str]) -> DataFrame:
        """The fields of all files in one DataFrame, with the table's name in `TABLE`. Missing columns are NULL."""
        keys = [key for name in names for key in files[name]]
        rows = read_rows(self._session, self._storage, keys, from_arrow_schema(_to_read(fields)))
        named = (F.col(".".join(f"`{part}`" for part in source_of(field))).alias(field.name) for field in fields)
        return rows.select(*named, F.col(FOLDER).alias(TABLE))

    def _collect(self, read: Read, names: list[str]) -> dict[str, pa.Table]:
        parts = self._aggregate(read(names), names)
        beyond = [name for name, part in parts.items() if _is_beyond(part)]
        if beyond:
            parts |= self._aggregate(read(beyond), beyond, WIDE)
        return {name: narrow(part.select(_result(part))) for name, part in parts.items()}

    def _aggregate(self, rows: DataFrame, names: Iterable[str], sums: str | None = None) -> dict[str, pa.Table]:
        """Routing name -> one row per key, with a `SUMMED` column for each sum of integers. `sums` is the type in which
        integers are summed; None = their own type."""
        columns = []
        for name, aggregate in self._spec.aggregates.items():
            function, field = GOLD_FUNCTIONS[aggregate.function], self._spec.field_of(aggregate)
            value = _suited(rows, field, function.accepts) if field else F.lit(1)
            if function.widens and isinstance(rows.schema[field].dataType, T.IntegralType):
                columns.append(F.count(value).alias(f"{SUMMED}{name}"))
                value = value.cast(sums) if sums else value
            columns.append(function.spark(F, value).alias(name))
        result = rows.groupBy(TABLE, F.col(f"`{self._spec.key}`").alias(self._spec.key)).agg(*columns).toArrow()
        name_of = {self._layout.silver_of(name): name for name in names}
        return {name_of[table]: rows for table, rows in split_by_value(result, TABLE)}


def _to_read(fields: pa.Schema) -> pa.Schema:
    """The columns of silver that have the fields; of structs only what is needed."""
    tree: dict[str, Any] = {}
    for field in sorted(fields, key=lambda field: len(source_of(field))):
        *above, last = source_of(field)
        at: Any = tree
        for name in above:
            at = at.setdefault(name, {}) if isinstance(at, dict) else at
        if isinstance(at, dict):  # otherwise a struct around it is read whole
            at[last] = field.type
    return pa.schema(_fields_of(tree))


def _fields_of(tree: dict[str, Any]) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.struct(_fields_of(one)) if isinstance(one, dict) else one) for name, one in tree.items()]


def _is_beyond(part: pa.Table) -> bool:
    """Whether a sum of integers exceeds 64 bits: it is NULL although it has values."""
    sums = [name for name in part.column_names if name.startswith(SUMMED)]
    return any(
        pc.any(pc.and_(pc.is_null(part[name.removeprefix(SUMMED)]), pc.greater(part[name], 0))).as_py() for name in sums
    )


def _result(part: pa.Table) -> list[str]:
    return [name for name in part.column_names if not name.startswith(SUMMED)]


def _suited(rows: DataFrame, field: str, takes: str) -> Column:
    """The field in the type that the function needs, or NULL: each table has its own types, and a type that does not
    suit must not fail the job of all tables."""
    kind = rows.schema[field].dataType
    if takes == "numbers" and isinstance(kind, T.StringType):
        return F.col(f"`{field}`").try_cast("double")
    if takes == "numbers" and not isinstance(kind, T.NumericType):
        return F.lit(None).cast("double")
    if takes == "ordered" and "map<" in kind.simpleString():
        return F.lit(None).cast("string")
    return F.col(f"`{field}`")


def _alike(names: Iterable[str], fields: dict[str, pa.Schema]) -> list[tuple[pa.Schema, list[str]]]:
    """(fields, names of the tables with these fields)."""
    found: dict[tuple[pa.Schema, tuple[Path, ...]], list[str]] = {}
    for name in names:
        found.setdefault((fields[name], tuple(map(source_of, fields[name]))), []).append(name)
    return [(schema, alike) for (schema, _), alike in found.items()]
