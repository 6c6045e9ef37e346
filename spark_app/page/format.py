"""Numbers, times, causes and values as people read them; "-" stands for what is not known."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

from spark_app.model.causes import CAUSE_HELP
from spark_app.model.text import one_line

UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
MEANINGS = {cause.value: f"{text[0].upper()}{text[1:]}".replace("`", "") for cause, text in CAUSE_HELP.items()}
UNKNOWN = "This release does not know the cause"
EXACT = 1 << 53  # beyond it a browser rounds integers
LONGEST = 500  # characters of a value


def amount(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def per_second(value: float | None) -> str:
    if value is None:
        return "-/s"
    return f"{value:,.1f}/s" if 0 < value < 10 else f"{value:,.0f}/s"


def seconds(value: float | None) -> str:
    """A duration in its largest unit."""
    if value is None:
        return "-"
    for size, unit in UNITS:
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def ago(value: float | None) -> str:
    return "none since the page started" if value is None else "now" if value < 2 else f"{seconds(value)} ago"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return "-"
    for unit in SIZES:
        if value < 1024 or unit == SIZES[-1]:
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def utc(moment: Any) -> str:
    """A moment, in seconds since 1970, to the second; "-" for what is none."""
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        return "-"
    try:
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "-"


def moment_of(text: Any) -> float | None:
    """ISO 8601 in seconds since 1970; without a zone it is UTC. None for what is no moment."""
    try:
        at = datetime.datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    except (OverflowError, TypeError, ValueError):
        return None


def reason(cause: str, detail: str = "") -> str:
    """The meaning of a cause as a sentence, with what is known of one record."""
    meaning = MEANINGS.get(cause, UNKNOWN)
    is_more = detail.replace("`", "").casefold() not in ("", meaning.casefold())
    return f"{meaning}: {detail}" if is_more else f"{meaning}."


def json_value(value: Any) -> Any:
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


def escaped(text: str) -> str:
    """Lines with all characters escaped that are not seen, or that turn the direction."""
    return "\n".join(map(one_line, text.split("\n")))
