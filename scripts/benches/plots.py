"""Pictures of the published results: throughput by the number of tables, and freshness over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from scripts.benches.targets import AGE_P50, AGE_P99, STEADY_GAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THROUGHPUT, FRESHNESS = "throughput.png", "freshness.png"
EVEN = {"versions": 1, "bad": 0.0, "skew": 0.0}  # topics that differ in the number of games and the kind of event only
AGES = ("p50", "p95", "p99")
Entry = Mapping[str, Any]
Lines = dict[str, dict[int, float]]  # label -> number of tables -> records per second


def draw(entries: Sequence[Entry], folder: Path) -> list[str]:
    """Write what there are results for; the names of the files."""
    drawn = []
    if lines := throughput(entries):
        _save(folder / THROUGHPUT, lambda axes: _draw_throughput(axes, lines))
        drawn.append(THROUGHPUT)
    if latest := next((entry for entry in reversed(entries) if _is_promised(entry)), None):
        _save(folder / FRESHNESS, lambda axes: _draw_freshness(axes, latest))
        drawn.append(FRESHNESS)
    return drawn


def throughput(entries: Iterable[Entry]) -> Lines:
    """The latest of each side and number of tables: whole batches of `tables`, sides of `drain`."""
    lines: Lines = defaultdict(dict)
    for entry in entries:
        if entry["bench"] == "tables":
            for case in entry["cases"]:
                lines[f"app, a batch of {entry['records']:,}"][case["tables"]] = entry["records"] / case["median"]
        elif entry["bench"] == "drain" and entry["topic"].items() >= EVEN.items():
            for label, rate in _rates(entry).items():
                lines[label][entry["topic"]["games"]] = rate
    return dict(lines)


def _rates(entry: Entry) -> dict[str, float]:
    rates = defaultdict(list)
    for run in entry["runs"]:
        label = f"{run['side']}, topic of {entry['topic']['message']} events, {run['batch_records']:,} a batch"
        rates[label].append(run["rate"])
    return {label: median(found) for label, found in rates.items()}


def _draw_throughput(axes: Axes, lines: Lines) -> None:
    from matplotlib import colormaps  # late: it takes a second to load
    from matplotlib.ticker import LogLocator

    axes.set_prop_cycle(color=colormaps["tab20"](range(20)))
    for label, rates in sorted(lines.items()):
        axes.plot(*zip(*sorted(rates.items()), strict=True), marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel="silver tables", ylabel="records per second")
    tables = sorted({number for rates in lines.values() for number in rates})
    axes.set_xticks(tables, [f"{number:,}" for number in tables])
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.minorticks_off()


def _is_promised(entry: Entry) -> bool:
    """Whether it is of freshness, with so many games that the targets count."""
    return entry["bench"] == "freshness" and bool(entry["topic"]["games"] <= STEADY_GAMES)


def _draw_freshness(axes: Axes, entry: Entry) -> None:
    minutes, *ages = zip(*(part[: 1 + len(AGES)] for part in entry["parts"]), strict=True)
    for name, seconds in zip(AGES, ages, strict=True):
        axes.plot(minutes, seconds, marker="o", label=name)
    for target in (AGE_P50, AGE_P99):
        axes.axhline(target.limit, linestyle=":", color="gray")
    axes.set(xlabel="minutes", ylabel="seconds from produced to visible", ylim=(0, None))
    what = f"{entry['rate']:,} records per second of {entry['topic']['games']} games"
    axes.set_title(f"{what}; dotted: targets for p50 and p99")


def _save(path: Path, fill: Callable[[Axes], None]) -> None:
    from matplotlib.figure import Figure  # late, too

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    fill(axes)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    figure.savefig(path, metadata={"Software": None})  # the same results give the same bytes
