"""The functions of gold's columns: what each accepts, how Spark and Arrow compute it, and how new values are merged.

All code but the audit's, which has its own, derives from this table. It loads neither Spark nor Arrow, because settings
read the names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Merge = Literal["+", "least", "greatest"]


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
        counts_rows: without a field it is one of all rows, and it is never NULL.
        widens: its column of integers becomes DECIMAL(38,0) once a value exceeds 64 bits.
    """

    comment: str
    spark: Callable[[Any, Any], Any]
    accepts: Literal["any", "numbers", "ordered"] = "any"
    arrow: ByArrow | None = None
    merge: Merge | None = None
    counts_rows: bool = False
    widens: bool = False


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
    "distinct": GoldFunction("Number of distinct values of {}", lambda spark, column: spark.countDistinct(column)),
    "median": GoldFunction("Median of {}", lambda spark, column: spark.median(column), accepts="numbers"),
}
