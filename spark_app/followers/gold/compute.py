"""Computes aggregates from silver files, with Python workers or Spark SQL.

Python workers compute the aggregates for which Arrow gives exactly Spark SQL's results. Spark SQL computes the others,
and reads the files that the workers cannot read; its error is the one that is reported.

One job of Spark SQL reads all tables with the same fields. If a field does not suit its function in one table (a sum
over text that is no number), it is NULL in that table. A sum of integers is exact: if one exceeds 64 bits, the column
of its table is `WIDE_SUM`. If a job fails, its tables are split in halves until the failing tables are isolated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

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
from spark_app.followers.gold.input_rows import ALL_ROWS, WINDOW_END, WINDOW_START
from spark_app.followers.gold.merging import narrow
from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake.files.disk import is_full
from spark_app.lake.files.storage import Storage
from spark_app.model.columns import Path
from spark_app.model.gold_functions import GOLD_FUNCTIONS, STATE
from spark_app.model.table_names import TableNames
from spark_app.settings.gold import Aggregate as Setting
from spark_app.units.driver.reader import FOLDER, read_rows
from spark_app.units.worker.table_rows import split_by_value

TABLE = "_protolake_table"
TOUCHED = "_protolake_touched_"  # + column of the key
SUMMED = "_protolake_summed_"  # + gold column: the number of values in its sum
WIDE = "decimal(38,0)"
OLD = "_protolake_old_"  # + column of gold
SESSION = "_protolake_session"

Files = Mapping[str, list[str]]  # routing name -> keys
Read = Callable[[list[str]], DataFrame]  # routing names -> the rows to aggregate, with `TABLE`


class Computed(NamedTuple):
    """By routing name: the table of one row per key, or the error of a failed table. A table is empty if no row
    counts."""

    parts: dict[str, pa.Table]
    failed: dict[str, Exception]


class AggregateComputer:
    """Aggregates per key, for many tables at once. Files and fields are by routing name, and so are the results."""

    def __init__(self, session: SparkSession, storage: Storage, layout: TableNames, spec: GoldSpec):
        self._session = session
        self._storage = storage
        self._layout = layout
        self._spec = spec

    def of_files(self, files: Files, fields: dict[str, pa.Schema], gold: Files = MappingProxyType({})) -> Computed:
        """Aggregates of the rows of the files. Sketches are merged with those in the files of `gold` tables."""
        groupings = {name: self._grouping(fields[name]) for name in files}
        suited = {name: files[name] for name, grouping in groupings.items() if grouping.is_exact_in_arrow()}
        found = worker_tasks.aggregate(self._session, self._storage, suited, groupings) if suited else {}
        computed = Computed({name: narrow(part) for name, part in found.items()}, {})
        for schema, names in _alike((name for name in files if name not in found), fields):
            self._compute(names, partial(self._read, files, schema), computed, gold)
        return computed

    def of_touched_keys(self, new: Files, rows: Files, fields: dict[str, pa.Schema]) -> Computed:
        """Aggregates of the keys in the `new` files, over all silver files of their tables (`rows`)."""
        names_of_key = (TABLE, *self._spec.touched)
        computed = Computed({}, {})

        def read(schema: pa.Schema, names: list[str]) -> DataFrame:
            touched = self._read(new, schema, names)
            touched = touched.select(*_prefixed(names_of_key, TOUCHED)).distinct()
            return self._read(rows, schema, names).join(touched, _same(names_of_key, TOUCHED), "left_semi")

        for schema, names in _alike(new, fields):
            self._compute(names, partial(read, schema), computed, {})
        return computed

    def _grouping(self, fields: pa.Schema) -> Grouping:
        spec = self._spec
        declared = spec.columns.items()
        wanted = tuple(Aggregate(name, how.function, spec.field_of(how)) for name, how in declared)
        return Grouping(spec.group, wanted, fields, spec.input_rows(fields))

    def _compute(self, names: list[str], read: Read, computed: Computed, gold: Files) -> None:
        """Compute all tables in one job; if it fails, each half in a job of its own, down to single tables.

        Raises:
            Exception: the disk is full or the JVM has ended, so the error concerns no single table.
        """
        try:
            computed.parts.update(self._collect(read, gold, names))
        except (PySparkException, Py4JJavaError) as error:
            if is_full(error):
                raise
            if len(names) == 1:
                self._session.range(1).collect()  # raises if Spark itself has ended: then the table is not the cause
                computed.failed[names[0]] = error
                return
            middle = len(names) // 2
            for some in (names[:middle], names[middle:]):
                self._compute(some, read, computed, gold)

    def _read(self, files: Files, fields: pa.Schema, names: list[str]) -> DataFrame:
        """The fields of all files in one DataFrame, with the table's name in `TABLE`. Missing columns are NULL."""
        keys = [key for name in names for key in files[name]]
        rows = read_rows(self._session, self._storage, keys, from_arrow_schema(_to_read(fields)))
        named = (F.col(".".join(f"`{part}`" for part in source_of(field))).alias(field.name) for field in fields)
        rows, inputs = rows.select(*named, F.col(FOLDER).alias(TABLE)), self._spec.input_rows(fields)
        if inputs == ALL_ROWS:
            return rows

        def pick(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from inputs.of(pa.Table.from_batches([batch])).to_batches()

        return rows.mapInArrow(pick, from_arrow_schema(inputs.schema(pa.schema([*fields, (TABLE, pa.string())]))))

    def _collect(self, read: Read, gold: Files, names: list[str]) -> dict[str, pa.Table]:
        parts = self._aggregate(read(names), gold, names)
        beyond = [name for name, part in parts.items() if _is_beyond(part)]
        if beyond:
            parts |= self._aggregate(read(beyond), gold, beyond, WIDE)
        return {name: narrow(part.select(self._spec.all_columns)) for name, part in parts.items()}

    def _with_sketches(self, rows: DataFrame, gold: list[str]) -> DataFrame:
        """The rows with sketches of new rows merged with those of gold, and with their values.

        Args:
            gold: the files of gold tables whose sketches are merged.
        """
        if not self._spec.sketched:
            return rows
        states = [STATE + name for name in self._spec.sketched]
        if gold:
            group = self._spec.group
            fields = [T.StructField(name, rows.schema[name].dataType) for name in (*group, *states)]
            old = read_rows(self._session, self._storage, gold, T.StructType(fields))
            before, after = self._layout.pattern_of(self._spec.kind).split("{name}")
            silver = self._layout.silver.replace("{name}", "$1")
            table = F.regexp_replace(F.col(FOLDER), f"^{before}(.*){after}$", silver)
            old = old.select(table.alias(f"{OLD}{TABLE}"), *_prefixed((*group, *states), OLD))
            rows = rows.join(old, _same((TABLE, *group), OLD), "left")
        for name, aggregate in self._spec.sketched.items():
            sketch = GOLD_FUNCTIONS[aggregate.function].sketch
            assert sketch is not None
            state = F.col(f"`{STATE}{name}`")
            if gold:
                before_it = F.col(f"`{OLD}{STATE}{name}`")
                state = F.coalesce(sketch.merge(F, before_it, state), state, before_it)
            rows = rows.withColumn(STATE + name, state)
            part = 0.5 if aggregate.q is None else aggregate.q
            rows = rows.withColumn(name, sketch.read(F, F.col(f"`{STATE}{name}`"), part))
        return rows.drop(*(f"{OLD}{name}" for name in (TABLE, *self._spec.group, *states)))

    def _aggregate(
        self, rows: DataFrame, gold: Files, names: list[str], sums: str | None = None
    ) -> dict[str, pa.Table]:
        """Routing name -> one row per key, with a `SUMMED` column for each sum of integers. `sums` is the type in which
        integers are summed; None = their own type."""
        columns = []
        for name, aggregate in self._spec.columns.items():
            function, field = GOLD_FUNCTIONS[aggregate.function], self._spec.field_of(aggregate)
            value = _suited(rows, field, function.accepts) if field else F.lit(1)
            if function.widens and isinstance(rows.schema[field].dataType, T.IntegralType):
                columns.append(F.count(value).alias(f"{SUMMED}{name}"))
                value = value.cast(sums) if sums else value
            kind = rows.schema[field].dataType.simpleString() if field else "int"
            columns.append(_computed(aggregate, value, kind).alias(name))
        key = [F.col(f"`{name}`").alias(name) for name in self._spec.touched]
        if self._spec.gap_s:
            window = F.session_window(F.col(f"`{self._spec.time}`"), f"{self._spec.gap_s} seconds").alias(SESSION)
            grouped = rows.groupBy(TABLE, *key, window).agg(*columns)
            bounds = (F.col(f"{SESSION}.start").alias(WINDOW_START), F.col(f"{SESSION}.end").alias(WINDOW_END))
            others = (F.col(f"`{name}`") for name in grouped.columns if name != SESSION)
            found = grouped.select(*others, *bounds)
        else:
            found = rows.groupBy(TABLE, *key).agg(*columns)
        result = self._with_sketches(found, [key for name in names for key in gold.get(name, ())]).toArrow()
        name_of = {self._layout.silver_of(name): name for name in names}
        nothing = dict.fromkeys(name_of.values(), result.schema.empty_table().drop_columns([TABLE]))
        return nothing | {name_of[table]: rows for table, rows in split_by_value(result, TABLE)}


def _to_read(fields: pa.Schema) -> pa.Schema:
    """The columns of silver that have the fields; of structs only what is needed."""
    found = [pa.schema([])]
    for field in fields:
        column, *inside = source_of(field)
        kind = functools.reduce(lambda inner, name: pa.struct([(name, inner)]), reversed(inside), field.type)
        found.append(pa.schema([(column, kind)]))
    return pa.unify_schemas(found, promote_options="permissive")


def _is_beyond(part: pa.Table) -> bool:
    """Whether a sum of integers exceeds 64 bits: it is NULL although it has values."""
    sums = [name for name in part.column_names if name.startswith(SUMMED)]
    return any(
        pc.any(pc.and_(pc.is_null(part[name.removeprefix(SUMMED)]), pc.greater(part[name], 0))).as_py() for name in sums
    )


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


def _prefixed(names: Iterable[str], prefix: str) -> list[Column]:
    return [F.col(f"`{name}`").alias(f"{prefix}{name}") for name in names]


def _same(names: Iterable[str], prefix: str) -> Column:
    """Whether the columns are equal to those with the prefix; NULL equals NULL."""
    equal = (F.col(f"`{name}`").eqNullSafe(F.col(f"`{prefix}{name}`")) for name in names)
    return functools.reduce(Column.__and__, equal)


def _computed(aggregate: Setting, value: Column, kind: str) -> Column:
    function = GOLD_FUNCTIONS[aggregate.function]
    made: Column
    if aggregate.approximate and function.sketch:
        made = function.sketch.make(F, function.sketch.casts(value, kind))
    else:
        made = function.spark(F, value, *([aggregate.q] if function.has_q else []))
    return made


def _alike(names: Iterable[str], fields: dict[str, pa.Schema]) -> list[tuple[pa.Schema, list[str]]]:
    """(fields, names of the tables with these fields)."""
    found: dict[tuple[pa.Schema, tuple[Path, ...]], list[str]] = {}
    for name in names:
        found.setdefault((fields[name], tuple(map(source_of, fields[name]))), []).append(name)
    return [(schema, alike) for (schema, _), alike in found.items()]
