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


def moment_of(text: Any) -> float | None:
    """ISO 8601 in seconds since 1970; without a zone it is UTC. None for what is no moment."""
    try:
        at = datetime.datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    except (OverflowError, TypeError, ValueError):
        return None
