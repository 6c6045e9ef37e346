"""The functions of gold's columns: what each accepts, how Spark and Arrow compute it, and how new values are merged.

All code but the audit's, which has its own, derives from this table. It loads neither Spark nor Arrow, because settings
read the names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Merge = Literal["+", "least", "greatest"]
WINDOW_COLUMNS = ("window_start", "window_end", "_watermark")  # of gold tables with windows
STATE = "_sketch_"  # + gold column: the sketch of an approximate one
KLL_SIZE = 400  # the rank of a value is wrong by 0.7 % in one of a hundred sketches, at most
HLL_BITS = 12  # a count is wrong by 1.6 % on average


class ByArrow(NamedTuple):
    """How Arrow computes what Spark would.

    Attributes:
        types: the fields for which it gives exactly that: "plain" ones are not nested, of "integers" the signed ones,
            and of "ordered" ones those that are no floating-point numbers.
        rows: Arrow's function of rows.
        parts: Arrow's function of the results of several parts.
    """

    types: Literal["plain", "integers", "ordered"]
    rows: str
    parts: str


class Sketch(NamedTuple):
    """How Spark makes, merges and reads a sketch in the format of Apache DataSketches. The first argument of each but
    `casts` is the module `pyspark.sql.functions`.

    Attributes:
        casts: gives the values that it takes of a column and the name of the column's type.
        read: its last argument is `q`.
    """

    casts: Callable[[Any, str], Any]
    make: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any, Any], Any]
    read: Callable[[Any, Any, float], Any]


HASHED = ("int", "bigint", "string", "binary")
KLL = Sketch(
    lambda column, kind: column.cast("double"),
    lambda spark, column: spark.kll_sketch_agg_double(column, KLL_SIZE),
    lambda spark, one, other: spark.kll_sketch_merge_double(one, other),
    lambda spark, column, q: spark.when(
        spark.kll_sketch_get_n_double(column) > 0, spark.kll_sketch_get_quantile_double(column, spark.lit(q))
    ),
)
HLL = Sketch(
    lambda column, kind: column if kind in HASHED else column.cast("string"),
    lambda spark, column: spark.hll_sketch_agg(column, HLL_BITS),
    lambda spark, one, other: spark.hll_union(one, other),
    lambda spark, column, q: spark.coalesce(spark.hll_sketch_estimate(column), spark.lit(0)),
)


class GoldFunction(NamedTuple):
    """A function of the values of a key. NULL is no value.

    Attributes:
        comment: of its column; {} is the field.
        spark: gives Spark's column of a column; its first argument is the module `pyspark.sql.functions`. It must give
            NULL, never an error, because one job computes many tables.
        accepts: "numbers" also reads text as a double; "ordered" is all but a map. Another field is NULL.
        arrow: None if Arrow's values may differ from Spark's.
        merge: how the old and a new value of a key give that of all rows; None if they do not, also if a value can be
            NULL although there are rows. If any column of gold has none, changed keys are computed from all their rows.
        sketch: gives about the same value; None if there is none.
        has_q: it needs the part of the values below its value, of 0 to 1, which `spark` and `comment` get, too.
        counts_rows: without a field it is one of all rows, and it is never NULL.
        widens: its column of integers becomes DECIMAL(38,0) once a value exceeds 64 bits.
    """

    comment: str
    spark: Callable[..., Any]
    accepts: Literal["any", "numbers", "ordered"] = "any"
    arrow: ByArrow | None = None
    merge: Merge | None = None
    counts_rows: bool = False
    widens: bool = False
    sketch: Sketch | None = None
    has_q: bool = False


GOLD_FUNCTIONS = {
    "count": GoldFunction(
        "Number of values of {}",
        lambda spark, column: spark.count(column),
        arrow=ByArrow("plain", "count", "sum"),
        merge="+",
        counts_rows=True,
    ),
    "sum": GoldFunction(
        "Sum of {}",
        lambda spark, column: spark.try_sum(column),
        accepts="numbers",
        arrow=ByArrow("integers", "sum", "sum"),
        merge="+",
        widens=True,
    ),
    "min": GoldFunction(
        "Smallest {}",
        lambda spark, column: spark.min(column),
        accepts="ordered",
        arrow=ByArrow("ordered", "min", "min"),
        merge="least",
    ),
    "max": GoldFunction(
        "Largest {}",
        lambda spark, column: spark.max(column),
        accepts="ordered",
        arrow=ByArrow("ordered", "max", "max"),
        merge="greatest",
    ),
    "mean": GoldFunction("Mean of {}", lambda spark, column: spark.mean(column), accepts="numbers"),
    "distinct": GoldFunction(
        "Number of distinct values of {}",
        lambda spark, column: spark.countDistinct(column),
        sketch=HLL,
    ),
    "median": GoldFunction(
        "Median of {}",
        lambda spark, column: spark.median(column),
        accepts="numbers",
        sketch=KLL,
    ),
    "quantile": GoldFunction(
        "Quantile {q} of {}",
        lambda spark, column, q: spark.percentile(column, q),
        accepts="numbers",
        sketch=KLL,
        has_q=True,
    ),
}
