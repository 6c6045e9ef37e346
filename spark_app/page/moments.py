"""Moments as people read them, in UTC."""

from __future__ import annotations

import datetime
from typing import Any


def utc(moment: Any) -> str:
    """A moment, in seconds since 1970, to the second; "-" for what is none."""
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        return "-"
    try:
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "-"
