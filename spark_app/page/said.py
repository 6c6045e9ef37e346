"""Numbers and times as people read them; "-" stands for what is not known."""

from __future__ import annotations

UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


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
