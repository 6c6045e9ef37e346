"""Rows of an Arrow table or array by their positions."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T", pa.Table, pa.Array)


def pick(source: T, rows: np.ndarray) -> T:
    """The rows of a table or an array, without a copy when they are all of them in order."""
    if len(rows) == len(source) and (len(rows) < 2 or bool((np.diff(rows) == 1).all())):
        return source
    return source.take(pa.array(rows))
