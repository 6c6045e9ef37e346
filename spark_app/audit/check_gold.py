"""Checks gold: computes each key's row with Arrow from the version of silver that gold includes."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_app.audit.gold_rows import CREDIBLE, WATERMARK, GoldRows
from spark_app.audit.snapshot import Snapshot, Table
from spark_app.audit.verdict import GOLD as GOLD_ROWS
from spark_app.audit.verdict import Verdict
from spark_app.model.gold_functions import STATE
from spark_app.model.table_names import GOLD
from spark_app.settings.gold import Aggregate, GoldTable
from spark_app.tables.sql.names import columns_in

OF_NUMBERS, OF_ORDER = ("sum", "mean", "median", "quantile"), ("min", "max")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ODD_NUMBER = re.compile(r"[+-]?(nan|inf|infinity|.*[0-9.][dDfF])", re.IGNORECASE)  # Spark's cast may accept it
PRECISE = 1e-9  # sums of floating-point numbers depend on the order of the rows
OF_A_MEAN = Decimal("0.0001")  # a mean of decimals is rounded

NOT_YET = "gold tables are behind silver, and silver's log no longer shows by how much"
NO_GOLD = "gold tables do not exist yet"
OTHER_COLUMNS = "gold tables have other columns than the settings define"
ANY_ORDER = "gold cells have sums beyond a double, which depend on the order of the rows"
NO_ORDER = "gold columns aggregate a type that the audit cannot order or add"

# The error of a rank that one sketch of a hundred exceeds, as a part of all values, and the mean error of a count. One
# of many keys may exceed it by far, but not by this factor.
KLL_ERROR, HLL_ERROR, WIDTH = 0.0072, 0.0163, 5
DEPENDS = object()  # a value that depends on the order of the rows


class Between(NamedTuple):
    """Where an approximate value has to be."""

    low: float
    high: float


class NotComparable(ValueError):
    """The aggregate cannot be computed here."""


def check_gold(snapshot: Snapshot, verdict: Verdict) -> None:
    """Check the gold tables of every silver table that has what they need."""
    settings = snapshot.settings
    usual = GoldTable(aggregates=settings.gold.columns)
    due = {snapshot.layout.silver_of(name): name for name in set(snapshot.names.values())}
    for kind, own in {GOLD: usual, **settings.gold.tables}.items():
        needed = [*own.keys(settings.event.key), *([settings.event.time] if own.window else [])]
        needed += columns_in(own.where) if own.where else ()
        for silver_name, name in sorted(due.items()):
            silver, gold_name = snapshot.tables.get(silver_name), snapshot.layout.gold_of(name, kind)
            if silver is not None and all(snapshot.path_of(silver, field) for field in needed):
                _check_kind(snapshot, silver, gold_name, kind, own, verdict)


def _check_kind(snapshot: Snapshot, silver: Table, name: str, kind: str, own: GoldTable, verdict: Verdict) -> None:
    gold, last = snapshot.tables.get(name), _unit_of(snapshot, silver)
    folded = max(snapshot.folded.get(kind, 0), _unit_of(snapshot, gold, "/gold") if gold else 0)
    version = silver if last <= folded else silver.as_of(folded)
    if gold is None and last > folded:
        verdict.note(NO_GOLD)
    elif version is None:
        verdict.note(NOT_YET)
    else:
        _check_table(snapshot, version, gold, name, own, verdict)


def _unit_of(snapshot: Snapshot, table: Table, writer: str = "") -> int:
    """The last unit that the table includes, from its Delta transactions."""
    return int(table.delta.transaction_version(f"{snapshot.identity}{writer}") or 0)


def _check_table(
    snapshot: Snapshot, silver: Table, gold: Table | None, name: str, own: GoldTable, verdict: Verdict
) -> None:
    key, time = own.keys(snapshot.settings.event.key), snapshot.settings.event.time
    fields = {column: one.field or ("" if one.function == "count" else time) for column, one in own.aggregates.items()}
    time_path = snapshot.path_of(silver, time) if own.window else ()
    if own.window and not pa.types.is_timestamp(_type_at(silver, time_path)):
        return None
    rows = GoldRows(snapshot, silver, key, own, set(fields.values()) - {""})
    aggregates = dict(own.aggregates)
    if own.window:
        aggregates[WATERMARK], fields[WATERMARK] = Aggregate(function="max"), CREDIBLE
    sketches = {f"{STATE}{column}" for column, one in aggregates.items() if one.approximate}
    if gold is not None and set(gold.schema.names) != {*rows.group, *aggregates, *sketches}:
        return verdict.note(OTHER_COLUMNS)
    expected: dict[Any, dict[str, Any]] = {}
    groups = [expected.setdefault(tuple(map(_key, values)), {}) for values in rows.keys]
    for column, aggregate in aggregates.items():
        try:
            for group, found in zip(groups, _of_groups(rows, fields[column], aggregate), strict=True):
                group[column] = found
        except NotComparable:
            verdict.note(NO_ORDER)
    actual = [] if gold is None else gold.read().to_pylist()
    found_rows = [(tuple(_key(row[column]) for column in rows.group), row) for row in actual]
    _compare(expected, found_rows, name, verdict)


def _of_groups(rows: GoldRows, field: str, aggregate: Aggregate) -> list[Any]:
    """The values of one aggregate; `field` "" = of all rows.

    Raises:
        NotComparable: Arrow cannot order or add the values as Spark does.
    """
    function, count = aggregate.function, len(rows.keys)
    if function == "count":
        counted = rows.numbers[rows.of(field).is_valid().to_numpy()] if field else rows.numbers
        return list(np.bincount(counted, minlength=count).tolist())
    values = _suited(rows.of(field), function)
    if function in OF_ORDER and not pa.types.is_floating(values.type):
        parts = pa.table({"group": rows.numbers, "value": values}).group_by("group").aggregate([("value", function)])
        return list(parts.sort_by("group")[f"value_{function}"].to_pylist())
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ordered = values.take(pa.array(np.argsort(rows.numbers, kind="stable")))
    sizes = np.bincount(rows.numbers, minlength=count)
    compute = _bounds if aggregate.approximate else _aggregate
    return [
        compute(ordered.slice(end - size, size).drop_null(), aggregate)
        for size, end in zip(sizes.tolist(), np.cumsum(sizes).tolist(), strict=True)
    ]


def _type_at(table: Table, path: tuple[str, ...]) -> pa.DataType:
    inside: Any = pa.struct(list(table.schema))
    for part in path:
        inside = inside.field(part).type
    return inside


def _compare(
    expected: dict[Any, dict[str, Any]], actual: list[tuple[Any, dict[str, Any]]], name: str, verdict: Verdict
) -> None:
    there, rows = Counter(key for key, _ in actual), dict(actual)
    verdict.add(GOLD_ROWS, name, map(_text, expected.keys() - rows.keys()), "missing")
    verdict.add(GOLD_ROWS, name, map(_text, rows.keys() - expected.keys()), "not in silver")
    verdict.add(GOLD_ROWS, name, (_text(value) for value, count in there.items() if count > 1), "more than one row")
    for value in expected.keys() & rows.keys():
        known = {column: due for column, due in expected[value].items() if due is not DEPENDS}
        verdict.note(ANY_ORDER, len(expected[value]) - len(known))
        wrong = [column for column, due in known.items() if not same(due, rows[value][column])]
        if wrong:
            verdict.add(GOLD_ROWS, name, [_text(value)], ", ".join(wrong))


def _text(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))


def _suited(values: Any, function: str) -> Any:
    """The field in the type that the function needs; all NULL if its type does not suit the function."""
    kind = values.type
    if function in OF_NUMBERS and pa.types.is_string(kind):
        return pa.array([_number(text) for text in values.to_pylist()], pa.float64())
    if function in OF_NUMBERS and not _is_number(kind):
        return pa.nulls(len(values), pa.float64())
    if function in OF_ORDER and "map<" in str(kind):
        return pa.nulls(len(values), pa.string())
    if function not in OF_NUMBERS and pa.types.is_nested(kind):
        raise NotComparable
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _number(text: str | None) -> float | None:
    if text is None or NUMBER.fullmatch(text.strip()):
        return None if text is None else float(text)
    if ODD_NUMBER.fullmatch(text.strip()):
        raise NotComparable
    return None


def _bounds(values: pa.Array, aggregate: Aggregate) -> Any:
    """What an approximate value lies within; None if it has no value."""
    if aggregate.function == "distinct":
        count = _aggregate(values, aggregate)
        return Between(count * (1 - WIDTH * HLL_ERROR) - 1, count * (1 + WIDTH * HLL_ERROR) + 1)
    numbers = np.sort([number for number in map(float, values.to_pylist()) if not math.isnan(number)])
    if not len(numbers):
        return None
    middle, wide = (0.5 if aggregate.q is None else aggregate.q) * len(numbers), WIDTH * KLL_ERROR * len(numbers) + 1
    low, high = (int(min(max(at, 0), len(numbers) - 1)) for at in (middle - wide, math.ceil(middle + wide)))
    return Between(float(numbers[low]), float(numbers[high]))


def _aggregate(values: pa.Array, aggregate: Aggregate) -> Any:
    """The aggregate of values without NULLs. Without values it is NULL (`distinct`: 0). NaN is the greatest number."""
    function = aggregate.function
    if function == "distinct":
        return (
            len({_key(value) for value in values.to_pylist()})
            if pa.types.is_floating(values.type)
            else len(values.unique())
        )
    if not len(values):
        return None
    if function in OF_ORDER:
        return (min if function == "min" else max)(values.to_pylist(), key=_nan_last)
    if function == "sum":
        return _sum(values.to_pylist()) if pa.types.is_floating(values.type) else sum(values.to_pylist())
    if pa.types.is_decimal(values.type) and function == "mean":
        return sum(values.to_pylist()) / Decimal(len(values))
    numbers = [float(value) for value in values.to_pylist()]
    if function == "mean":
        return _mean(numbers)
    if function in ("median", "quantile"):
        return _quantile(numbers, 0.5 if aggregate.q is None else aggregate.q)
    raise ValueError(f"the audit does not know the function {function}")


def _sum(numbers: list[float]) -> Any:
    if any(map(math.isnan, numbers)) or {math.inf, -math.inf} <= set(numbers):
        return math.nan
    finite = [number for number in numbers if math.isfinite(number)]
    if sum(map(abs, finite)) == math.inf:
        return DEPENDS
    return math.fsum(numbers)


def _mean(numbers: list[float]) -> Any:
    total = _sum(numbers)
    return total if total is DEPENDS else total / len(numbers)


def _quantile(numbers: list[float], part: float) -> float:
    """Between two numbers the nearer one counts more."""
    ordered = sorted(numbers, key=_nan_last)
    at = part * (len(ordered) - 1)
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low if low == high else low + (high - low) * (at - math.floor(at))


def _nan_last(number: float) -> tuple[bool, float]:
    return math.isnan(number), number


def _key(value: Any) -> Any:
    """A hashable key in which all NaNs are equal and -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return repr(value) if isinstance(value, list | dict) else value


def same(due: Any, found: Any) -> bool:
    """Whether the values are equal; floating-point numbers and decimals may differ by rounding."""
    if isinstance(due, Between):
        return found is not None and due.low <= float(found) <= due.high
    if due is None or found is None or isinstance(due, str | bytes | bool | datetime.datetime):
        return bool(due == found)
    if isinstance(due, float) or isinstance(found, float):
        one, other = float(due), float(found)
        return math.isclose(one, other, rel_tol=PRECISE, abs_tol=PRECISE) or (math.isnan(one) and math.isnan(other))
    if isinstance(due, Decimal) and due != due.to_integral_value():
        return bool(abs(due - Decimal(found)) <= OF_A_MEAN)
    return bool(due == found)
