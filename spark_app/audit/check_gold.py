"""Checks gold: computes each key's row with Arrow from the version of silver that gold includes."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_app.audit.snapshot import Snapshot, Table
from spark_app.audit.verdict import GOLD, Verdict
from spark_app.settings.models import Aggregate

OF_NUMBERS, OF_ORDER = ("sum", "mean", "median"), ("min", "max")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ODD_NUMBER = re.compile(r"[+-]?(nan|inf|infinity|.*[0-9.][dDfF])", re.IGNORECASE)  # Spark's cast may accept it
BY_ARROW = {"min": "min", "max": "max"}
PRECISE = 1e-9  # sums of floating-point numbers depend on the order of the rows
OF_A_MEAN = Decimal("0.0001")  # a mean of decimals is rounded
BATCH = 1 << 20  # rows aggregated at once

NOT_YET = "gold tables are behind silver, and silver's log no longer shows by how much"
NO_GOLD = "gold tables do not exist yet"
OTHER_COLUMNS = "gold tables have other columns than the settings define"
ANY_ORDER = "gold cells have sums beyond a double, which depend on the order of the rows"
NO_ORDER = "gold columns aggregate a type that the audit cannot order or add"


DEPENDS = object()  # a value that depends on the order of the rows


class NotComparable(ValueError):
    """The aggregate cannot be computed here."""


def check_gold(snapshot: Snapshot, verdict: Verdict) -> None:
    """Check the gold table of every silver table that has the key."""
    key, layout = snapshot.settings.event.key, snapshot.layout
    due = {layout.silver_of(name): layout.gold_of(name) for name in set(snapshot.names.values())}
    for silver_name, gold_name in sorted(due.items()):
        silver, gold = snapshot.tables.get(silver_name), snapshot.tables.get(gold_name)
        if silver is None or not snapshot.path_of(silver, key):
            continue
        folded = max(snapshot.folded, _unit_of(snapshot, gold, "/gold") if gold else 0)
        last = _unit_of(snapshot, silver)
        if gold is None and last > folded:
            verdict.note(NO_GOLD)
            continue
        version = silver if last <= folded else silver.as_of(folded)
        if version is None:
            verdict.note(NOT_YET)
            continue
        _check_table(snapshot, version, gold, gold_name, verdict)


def _unit_of(snapshot: Snapshot, table: Table, writer: str = "") -> int:
    """The last unit that the table includes, from its Delta transactions."""
    return int(table.delta.transaction_version(f"{snapshot.identity}{writer}") or 0)


def _check_table(snapshot: Snapshot, silver: Table, gold: Table | None, name: str, verdict: Verdict) -> None:
    key, aggregates = snapshot.settings.event.key, snapshot.settings.gold.columns
    key_path = snapshot.path_of(silver, key)
    actual = [] if gold is None else gold.read().to_pylist()
    if gold is not None and set(gold.schema.names) != {key, *aggregates}:
        return verdict.note(OTHER_COLUMNS)
    expected: dict[Any, dict[str, Any]] = {}
    for column, aggregate in aggregates.items():
        field = aggregate.field or ("" if aggregate.function == "count" else snapshot.settings.event.time)
        try:
            for value, found in compute(silver, key_path, snapshot.path_of(silver, field), bool(field), aggregate):
                expected.setdefault(value, {})[column] = found
        except NotComparable:
            verdict.note(NO_ORDER)
    there = Counter(_key(row[key]) for row in actual)
    rows = {_key(row[key]): row for row in actual}
    verdict.add(GOLD, name, map(str, expected.keys() - rows.keys()), "missing")
    verdict.add(GOLD, name, map(str, rows.keys() - expected.keys()), "not in silver")
    verdict.add(GOLD, name, (str(value) for value, count in there.items() if count > 1), "more than one row")
    for value in expected.keys() & rows.keys():
        known = {column: due for column, due in expected[value].items() if due is not DEPENDS}
        verdict.note(ANY_ORDER, len(expected[value]) - len(known))
        wrong = [column for column, due in known.items() if not same(due, rows[value][column])]
        if wrong:
            verdict.add(GOLD, name, [str(value)], ", ".join(wrong))


def compute(
    silver: Table, key: tuple[str, ...], field: tuple[str, ...], of_field: bool, aggregate: Aggregate
) -> Iterator[tuple[Any, Any]]:
    """(key, value) of one aggregate over all rows.

    Args:
        key, field: paths in silver; () = silver does not have it.
        of_field: False = the aggregate is one of rows.

    Raises:
        NotComparable: Arrow cannot order or add the values as Spark does.
    """
    function = aggregate.function
    if not of_field:
        yield from _fold(silver, _columns(key, ()), _counted, _add)
    elif function == "count":
        yield from _fold(silver, _columns(key, field), _of_field, _add)
    else:
        yield from _whole(silver, key, field, function)


def _columns(key: tuple[str, ...], field: tuple[str, ...]) -> dict[str, ds.Expression]:
    """What is read, by the names *key* and *field*."""
    return {name: ds.field(path) for name, path in (("key", key), ("field", field)) if path}


def _parts(silver: Table, columns: Mapping[str, ds.Expression]) -> Iterator[pa.Table]:
    for batch in silver.batches(columns):
        for first in range(0, batch.num_rows, BATCH):
            yield pa.Table.from_batches([batch.slice(first, BATCH)])


def _fold(silver: Table, columns: Mapping[str, ds.Expression], count: Any, add: Any) -> Iterator[tuple[Any, Any]]:
    total: dict[Any, Any] = {}
    for part in _parts(silver, columns):
        for value, found in count(part):
            total[value] = add(total[value], found) if value in total else found
    yield from total.items()


def _add(one: int, other: int) -> int:
    return one + other


def _counted(part: pa.Table) -> Iterator[tuple[Any, int]]:
    for item in part["key"].value_counts().to_pylist():
        yield _key(item["values"]), item["counts"]


def _of_field(part: pa.Table) -> Iterator[tuple[Any, int]]:
    valid = part["field"].is_valid() if "field" in part.column_names else pa.chunked_array([np.zeros(len(part), bool)])
    grouped = (
        pa.table({"key": part["key"], "valid": valid.cast(pa.int64())}).group_by("key").aggregate([("valid", "sum")])
    )
    for row in grouped.to_pylist():
        yield _key(row["key"]), row["valid_sum"]


def _whole(silver: Table, key: tuple[str, ...], field: tuple[str, ...], function: str) -> Iterator[tuple[Any, Any]]:
    rows = silver.read(_columns(key, field))
    values = _suited(rows["field"] if field else pa.nulls(len(rows), pa.string()), function)
    if not pa.types.is_floating(values.type) and not pa.types.is_floating(rows["key"].type) and function in BY_ARROW:
        return (yield from _by_arrow(rows["key"], values, BY_ARROW[function]))
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    encoded = rows["key"].combine_chunks().dictionary_encode(null_encoding="encode")
    codes, keys = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(keys) + 1))
    ordered = values.take(pa.array(order))
    found: dict[Any, list[pa.Array]] = {}
    for position, value in enumerate(keys):
        found.setdefault(_key(value), []).append(
            ordered.slice(starts[position], starts[position + 1] - starts[position])
        )
    for value, parts in found.items():
        yield value, _aggregate(pa.concat_arrays(parts).drop_null(), function)


def _by_arrow(keys: pa.ChunkedArray, values: Any, function: str) -> Iterator[tuple[Any, Any]]:
    found = pa.table({"key": keys, "value": values}).group_by("key").aggregate([("value", function)])
    for key, value in zip(found["key"].to_pylist(), found[f"value_{function}"].to_pylist(), strict=True):
        yield _key(key), value


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


def _aggregate(values: pa.Array, function: str) -> Any:
    """The aggregate of values without NULLs. Without values it is NULL (`distinct`: 0). NaN is the greatest number."""
    if function == "distinct":
        return (
            len({_key(value) for value in values.to_pylist()})
            if pa.types.is_floating(values.type)
            else len(values.unique())
        )
    if not len(values):
        return None
    if function in OF_ORDER:
        return _extreme(values, function)
    if function == "sum":
        return _sum(values.to_pylist()) if pa.types.is_floating(values.type) else sum(values.to_pylist())
    if pa.types.is_decimal(values.type) and function == "mean":
        return sum(values.to_pylist()) / Decimal(len(values))
    numbers = [float(value) for value in values.to_pylist()]
    if function == "mean":
        return _mean(numbers)
    if function == "median":
        return _median(numbers)
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


def _median(numbers: list[float]) -> float:
    ordered = sorted(numbers, key=lambda number: (math.isnan(number), number))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else low + (high - low) / 2


def _extreme(values: pa.Array, function: str) -> Any:
    if pa.types.is_floating(values.type):
        return (min if function == "min" else max)(values.to_pylist(), key=lambda number: (math.isnan(number), number))
    if pa.types.is_string(values.type):
        values = values.cast(pa.binary())  # by bytes, as Delta's readers order text
        found = pc.min_max(values)[function].as_py()
        return found.decode()
    return pc.min_max(values)[function].as_py()


def _key(value: Any) -> Any:
    """A hashable key in which all NaNs are equal and -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return repr(value) if isinstance(value, list | dict) else value


def same(due: Any, found: Any) -> bool:
    """Whether the values are equal; floating-point numbers and decimals may differ by rounding."""
    if due is None or found is None or isinstance(due, str | bytes | bool | datetime.datetime):
        return bool(due == found)
    if isinstance(due, float) or isinstance(found, float):
        one, other = float(due), float(found)
        return math.isclose(one, other, rel_tol=PRECISE, abs_tol=PRECISE) or (math.isnan(one) and math.isnan(other))
    if isinstance(due, Decimal) and due != due.to_integral_value():
        return bool(abs(due - Decimal(found)) <= OF_A_MEAN)
    return bool(due == found)
