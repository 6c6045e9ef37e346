"""Values of DuckDB as JSON values that a browser shows as they are."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

EXACT = 1 << 53  # beyond it a browser rounds integers
LONGEST = 500  # characters of a value


def plain(value: Any) -> Any:
    """NULL, numbers and booleans as such, and anything else as text: times as in ISO 8601, bytes in hex, nested values
    as JSON. Numbers that JSON or a browser does not know exactly are text, too. Long texts are cut."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return shortened(bytes(value[: LONGEST // 2 + 1]).hex())
    found = _inside(value)
    if isinstance(found, dict | list):
        return shortened(json.dumps(found, ensure_ascii=False))
    return shortened(found) if isinstance(found, str) else found


def shortened(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _inside(value: Any) -> Any:
    """A value as JSON has it, with nested ones."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(_inside(key)): _inside(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_inside(one) for one in value]
    return str(value)
