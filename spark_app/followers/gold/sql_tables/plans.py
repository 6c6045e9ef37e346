"""Decides from Spark's plan of a statement how its table is kept up.

fold       one aggregate with functions that merge, over rows of silver: new rows are aggregated and merged
append     rows of silver that are filtered and changed one by one: those of new rows are added
recompute  everything else
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from spark_app.followers.gold.sql_tables.statements import nodes
from spark_app.settings.gold import Aggregate
from spark_app.units.spark.jvm import analyzed_plan, each, kind_of

Mode = Literal["fold", "append", "recompute"]
# Nodes that give for each row of a source rows that depend on this row alone.
BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "Generate", "Union"}
FOLDING = {"count", "min", "max", "sum"}  # by the names that Spark prints: try_sum is another function
# Functions whose value depends on when, where or by whom the query is run; those that Spark calls not deterministic
# are refused besides.
VOLATILE = {
    *("CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentUser"),
    *("SessionUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone", "SparkVersion"),
}
LEAVES = {"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "LogicalRDD", "LogicalRelation"}
# In Spark's text of a type; a name of a field has a colon behind it.
WRONG_TYPE = re.compile(r"(?:^|[<,:])(?:void|interval|timestamp_ntz|variant|time\()(?!\w*:)")
BAD_IN_NAMES = " ,;{}()\n\t="
NAMED = {
    "Join": "it joins tables",
    "Sort": "it has an ORDER BY",
    "GlobalLimit": "it has a LIMIT",
    "Distinct": "it has DISTINCT",
    "Window": "it has functions over windows of rows",
    "WithCTE": "it has a WITH",
    "Aggregate": "its aggregate is not the last step, as with HAVING",
}


class Refused(Exception):
    """The query cannot make a table."""


@dataclass(frozen=True)
class Plan:
    """How a table is kept up.

    Attributes:
        why: the reason, for people.
        columns: of the table.
        key: with `fold`, the columns that group the rows.
        aggregates: with `fold`, column -> its function.
    """

    mode: Mode
    why: str
    columns: pa.Schema
    key: tuple[str, ...] = ()
    aggregates: dict[str, Aggregate] = field(default_factory=dict)


def plan_of(rows: DataFrame, sources: Collection[str], growing: Collection[str]) -> Plan:
    """
    Args:
        sources: the tables that the query may read; their views are the leaves of the plan.
        growing: those of them whose rows do not change.

    Raises:
        Refused: the query depends on more than its tables, or its columns cannot be those of a table.
    """
    plan = analyzed_plan(rows)
    found = list(nodes(plan, lambda node: _source_of(node) not in sources))
    read = {_source_of(node) for node in found} & set(sources)
    steps = [node for node in found if _source_of(node) not in sources]
    _check(steps)
    columns, is_aggregate = _columns(rows), kind_of(plan) == "Aggregate"
    whys = [f"rows of {name} change" for name in sorted(read.difference(growing))]
    whys += [] if read else ["it reads no table"]
    whys += [f"{name} has a collation" for name, kind in rows.dtypes if "collate" in kind]
    whys += _beyond_rows(steps[1:] if is_aggregate else steps)
    if whys:
        return Plan("recompute", whys[0], columns)
    return _fold(plan, columns) if is_aggregate else Plan("append", "each row of silver gives rows by itself", columns)


def _fold(plan: Any, columns: pa.Schema) -> Plan:
    grouping, selected = list(each(plan.groupingExpressions())), []
    key, aggregates = [], dict[str, Aggregate]()
    for one in each(plan.aggregateExpressions()):
        inner = one.child() if kind_of(one) == "Alias" else one
        if any(inner.semanticEquals(group) for group in grouping):
            key.append(one.name())
            selected.append(inner)
            continue
        function = str(inner.aggregateFunction().prettyName()) if kind_of(inner) == "AggregateExpression" else ""
        if function not in FOLDING or inner.isDistinct():
            return Plan("recompute", f"{one.name()} cannot be merged from an old and a new value", columns)
        aggregates[one.name()] = Aggregate(function=function, field=one.name())
    if not all(any(inner.semanticEquals(group) for inner in selected) for group in grouping):
        return Plan("recompute", "a column of GROUP BY is not in the SELECT", columns)
    nested = next((one.name for one in columns if pa.types.is_nested(one.type)), None)
    if nested or not aggregates:
        why = f"{nested} is nested" if nested else "it has no aggregate function"
        return Plan("recompute", why, columns)
    functions = ", ".join(sorted({one.function for one in aggregates.values()}))
    return Plan("fold", f"new rows are merged by {functions}", columns, tuple(key), aggregates)


def _beyond_rows(steps: list[Any]) -> Iterator[str]:
    """What keeps a plan from being one of single rows."""
    for node in steps:
        kind = kind_of(node)
        if kind not in BY_ROW:
            yield NAMED.get(kind, f"it has a step that needs all rows ({kind})")
        if any("Subquery" in kind_of(one) or kind_of(one) == "Exists" for one in _expressions(node)):
            yield "it has a subquery"


def _check(steps: list[Any]) -> None:
    for node in steps:
        if kind_of(node) == "Sample":
            raise Refused("TABLESAMPLE gives other rows each time, so no run could be repeated: leave it out")
        if not node.children().size() and kind_of(node) not in LEAVES:
            raise Refused(f"it reads what is no table of the lake ({kind_of(node)})")
        for one in _expressions(node):
            differs = not one.deterministic() and all(inner.deterministic() for inner in each(one.children()))
            if kind_of(one) in VOLATILE or differs:
                raise Refused(
                    f"{one.prettyName()}() gives another value each time, so no run could be repeated: leave it out"
                )


def _columns(rows: DataFrame) -> pa.Schema:
    names = [one.casefold() for one in rows.columns]
    for name in rows.columns:
        if names.count(name.casefold()) > 1:
            raise Refused(f"the column {name} is there twice: give one another name by AS")
        if any(character in BAD_IN_NAMES for character in name):
            raise Refused(f"the column {name} needs a name: write AS and one without spaces and brackets")
    for name, kind in rows.dtypes:
        if WRONG_TYPE.search(kind):
            raise Refused(f"the column {name} has the type {kind}, which tables of the lake have not: CAST it")
    columns = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema([one.with_nullable(True) for one in columns])  # of a literal, too: the next statement may differ


def _source_of(node: Any) -> str:
    """The name of the view that a node is; "" if it is none."""
    return str(node.desc().identifier().table()) if kind_of(node) == "View" else ""


def _expressions(node: Any) -> Iterator[Any]:
    left = list(each(node.expressions()))
    while left:
        one = left.pop()
        yield one
        left += each(one.children())
