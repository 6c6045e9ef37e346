"""Compares a gold table with its expected content, column by column in Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CLOSE = 1e-9  # relative: floating-point sums depend on the order of the rows


def differing_keys(found: pa.Table, due: pa.Table, key: str) -> list[Any]:
    """Keys whose row differs, is missing, is doubled or should not exist. NaN equals NaN."""
    counted = found[key].value_counts()
    doubled = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    strange = found[key].filter(pc.is_null(pc.index_in(found[key], value_set=due[key])))
    at = pc.index_in(due[key], value_set=found[key])
    same = np.asarray(at.is_valid()) & _same_rows(found.take(at), due)
    wrong = due[key].filter(pa.array(~same))
    return list(dict.fromkeys([*wrong.to_pylist(), *strange.to_pylist(), *doubled.to_pylist()]))


def _same_rows(found: pa.Table, due: pa.Table) -> np.ndarray:
    """For each row of `due` whether the row of `found` at the same position is equal."""
    if set(found.column_names) != set(due.column_names):
        return np.zeros(due.num_rows, bool)
    same: np.ndarray = np.logical_and.reduce([_same(found[name], due[name]) for name in due.column_names])
    return same


def _same(found: pa.ChunkedArray, due: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_nested(due.type):
        return np.array([one == other for one, other in zip(found.to_pylist(), due.to_pylist(), strict=True)], bool)
    neither = pc.and_(found.is_null(), due.is_null())
    try:
        equal = _close(found, due) if _is_floating(found, due) else pc.equal(found, due)
    except pa.ArrowException:  # the types cannot be compared
        equal = pa.scalar(False)
    same: np.ndarray = np.broadcast_to(np.asarray(pc.or_(neither, pc.fill_null(equal, False))), len(due))
    return same


def _is_floating(found: pa.ChunkedArray, due: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_floating(found.type) or pa.types.is_floating(due.type))


def _close(found: pa.ChunkedArray, due: pa.ChunkedArray) -> pa.Array:
    one, other = (column.cast(pa.float64()).to_numpy() for column in (found, due))  # NULL is NaN here
    valid = pc.and_(found.is_valid(), due.is_valid())
    return pc.and_(valid, pa.array(np.isclose(one, other, rtol=CLOSE, atol=0.0, equal_nan=True)))
