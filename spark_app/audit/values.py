"""Compares the columns of rows with their expected values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.audit.expected import Json, plain, plain_value

EXACT = 2**53  # a double has every whole number up to here


class DoesNotFit(ValueError):
    """The column cannot store the value unchanged."""


def differing(expected: Sequence[Any], kind: pa.DataType | None, actual: pa.Array) -> np.ndarray:
    """Which values of the column differ from the expected ones.

    Args:
        kind: the Arrow type of the expected values; None if they are nested or JSON.
    """
    if kind == actual.type:
        return unequal(pa.array(expected, kind), actual)
    found = [plain(value, actual.type) for value in actual.to_pylist()]
    return np.array([not _same(e, f, actual.type) for e, f in zip(expected, found, strict=True)], bool)


def unequal(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Which values differ; NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0."""
    nulls = pc.and_(one.is_null(), other.is_null())
    if pa.types.is_floating(one.type):
        nans = pc.and_(pc.is_nan(one), pc.is_nan(other)).fill_null(False)
        same = pc.or_(pc.equal(one.view(pa.int64()), other.view(pa.int64())).fill_null(False), nans)
    else:
        same = pc.equal(one, other).fill_null(False)
    return np.asarray(pc.invert(pc.or_(same, nulls)))


def mark(wrong: np.ndarray, differ: np.ndarray, why: str) -> None:
    """Set the reason in `wrong` for differing rows that have none yet; "" = no reason."""
    wrong[differ & (wrong == "")] = why


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a column of the type can store the value unchanged."""
    try:
        carried(value, kind)
    except DoesNotFit:
        return False
    return True


def _same(expected: Any, found: Any, kind: pa.DataType) -> bool:
    try:
        return bool(carried(expected, kind) == found)
    except DoesNotFit:
        return False


def carried(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of the type has it, in the form that `plain` returns.

    Raises:
        DoesNotFit: the column cannot store it unchanged.
    """
    return plain_value(fitted(value, kind))


def fitted(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of the type has it; maps are sorted lists of pairs, and JSON is not text yet.

    Raises:
        DoesNotFit: the column cannot store it unchanged.
    """
    if value is None:
        return None
    if pa.types.is_decimal(kind) and isinstance(value, dict):
        return _fitted_decimal(value, kind)
    if pa.types.is_struct(kind):
        return _fitted_struct(value, kind)
    if pa.types.is_map(kind) and isinstance(value, list):
        return sorted(([fitted(k, kind.key_type), fitted(v, kind.item_type)] for k, v in value), key=repr)
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fitted(item, kind.value_type) for item in value]
    if isinstance(value, list | dict) or pa.types.is_nested(kind):
        raise DoesNotFit
    return _fitted_scalar(value, kind)


def _fitted_struct(value: Any, kind: pa.DataType) -> dict[str, Any]:
    names = [kind.field(position).name for position in range(kind.num_fields)]
    if not isinstance(value, dict) or not {name for name, one in value.items() if one is not None} <= set(names):
        raise DoesNotFit
    return {name: fitted(value.get(name), kind.field(name).type) for name in names}


def _fitted_decimal(value: dict[str, Any], kind: pa.Decimal128Type) -> Decimal:
    """The number of a `confluent.type.Decimal` whose integer has at most 38 digits."""
    if value.keys() != {"value", "precision", "scale"} or not isinstance(value["value"] or b"", bytes):
        raise DoesNotFit
    integer, scale = int.from_bytes(value["value"] or b"", "big", signed=True), value["scale"] or 0
    if abs(integer) >= 10**38 or (integer and abs(scale) > 100):
        raise DoesNotFit
    exact = integer and integer * Fraction(10) ** (kind.scale - scale)
    if exact != int(exact) or abs(exact) >= 10**kind.precision:
        raise DoesNotFit
    return Decimal(f"{int(exact)}E-{kind.scale}")


def _fitted_scalar(value: Any, kind: pa.DataType) -> Any:
    own = _type_of(value)
    if own == kind:
        return value
    if isinstance(value, Json):
        raise DoesNotFit
    convert = CHANGES.get((own, kind))
    if convert is None:
        raise DoesNotFit
    try:
        changed = convert(value)
    except (ValueError, OverflowError):
        raise DoesNotFit from None
    return changed


def _type_of(value: Any) -> pa.DataType:
    return next(kind for python, kind in TYPES if isinstance(value, python))


def _real(value: int) -> float:
    if abs(value) > EXACT:
        raise ValueError
    return float(value)


def _whole(value: float) -> int:
    number = int(value)
    if number != value or abs(number) > EXACT:
        raise ValueError
    return number


def _integer(value: Decimal) -> int:
    number = int(value)
    if number != value or not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _flag(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError
    return bool(value)


INTEGER, BIG, FLAG, TEXT, BYTES = pa.int64(), pa.decimal128(20, 0), pa.bool_(), pa.string(), pa.binary()
REAL, MOMENT = pa.float64(), pa.timestamp("us", "UTC")
TYPES: list[tuple[Any, pa.DataType]] = [
    (bool, FLAG),
    (int, INTEGER),
    (float, REAL),
    (Decimal, BIG),
    (str, TEXT),
    (Json, TEXT),
    (bytes, BYTES),
    (object, MOMENT),
]
CHANGES: dict[tuple[pa.DataType, pa.DataType], Any] = {
    (INTEGER, BIG): Decimal,
    (BIG, INTEGER): _integer,
    (FLAG, INTEGER): int,
    (INTEGER, FLAG): _flag,
    (INTEGER, TEXT): str,
    (TEXT, BYTES): str.encode,
    (BYTES, TEXT): bytes.decode,
    (INTEGER, REAL): _real,
    (REAL, INTEGER): _whole,
}
