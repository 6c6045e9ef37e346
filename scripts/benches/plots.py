"""Plots of the published results: throughput against other programs, freshness over time, and cost by stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from scripts.benches.sides import APP, BASE
from scripts.benches.targets import AGE_P50, AGE_P99, STEADY_GAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THROUGHPUT, FRESHNESS, STAGES = "throughput.png", "freshness.png", "stages.png"
EVEN = {"versions": 1, "bad": 0.0, "skew": 0.0}  # only such topics are plotted; games and kind differ
AGES = ("p50", "p95", "p99")
# Microseconds of CPU a record by stage when Spark's Kafka source read for the workers: profiled at a00e4ee, 2 cores.
BEFORE = {
    "flat": {"Kafka to Arrow": 7.7, "decoding": 0.2, "strict judging": 0.3, "routing and files": 1.6},
    "rich": {"Kafka to Arrow": 23.5, "decoding": 3.5, "strict judging": 5.4, "routing and files": 10.1},
}
# The measurement separates these stages, but the difference of two long runs is imprecise for a short stage.
NOW = {"routing and files": ("routing, and silver's files", "bronze's files")}
Entry = Mapping[str, Any]
Lines = dict[str, dict[int, float]]  # label -> number of tables -> records/s of the app / those of the other side


def draw(entries: Sequence[Entry], folder: Path) -> list[str]:
    """Write the plots for which there are results; returns the names of the files."""
    drawn = []
    if lines := throughput(entries):
        _save(folder / THROUGHPUT, lambda axes: _draw_throughput(axes, lines))
        drawn.append(THROUGHPUT)
    if latest := next((entry for entry in reversed(entries) if _is_promised(entry)), None):
        _save(folder / FRESHNESS, lambda axes: _draw_freshness(axes, latest))
        drawn.append(FRESHNESS)
    if staged := next((entry for entry in reversed(entries) if entry["bench"] == "stages"), None):
        _draw_stages(folder / STAGES, staged)
        drawn.append(STAGES)
    return drawn


def throughput(entries: Iterable[Entry]) -> Lines:
    """The latest ratio for each other side of `drain`, earlier commits of the app left out, and number of tables. Rates
    of several runs are not compared: the same machine is several times slower on some days."""
    lines: Lines = defaultdict(dict)
    for entry in entries:
        if entry["bench"] == "drain" and entry["topic"].items() >= EVEN.items():
            for label, ratio in _ratios(entry):
                lines[label][entry["topic"]["games"]] = ratio
    return dict(lines)


def _ratios(entry: Entry) -> Iterator[tuple[str, float]]:
    rates = defaultdict(list)
    for run in entry["runs"]:
        rates[run["side"], run["batch_records"]].append(run["rate"])
    for (side, records), found in rates.items():
        if side != APP and not side.startswith(f"{BASE}:"):
            label = f"{side}, {entry['topic']['message']} events, {records:,} a batch"
            yield label, median(own / other for own, other in zip(rates[APP, records], found, strict=True))


def _draw_throughput(axes: Axes, lines: Lines) -> None:
    from matplotlib import colormaps  # imported late: it takes a second to load
    from matplotlib.ticker import LogLocator

    axes.set_prop_cycle(color=colormaps["tab20"](range(20)))
    for label, rates in sorted(lines.items()):
        axes.plot(*zip(*sorted(rates.items()), strict=True), marker="o", label=label)
    axes.axhline(1, linestyle=":", color="gray")
    axes.set(xscale="log", yscale="log", xlabel="silver tables", ylabel="records per second of the app / of the other")
    tables = sorted({number for rates in lines.values() for number in rates})
    axes.set_xticks(tables, [f"{number:,}" for number in tables])
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.minorticks_off()


def _is_promised(entry: Entry) -> bool:
    """True for a freshness result with enough games for the targets to apply."""
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


def costs(entry: Entry) -> dict[str, dict[str, list[float]]]:
    """Kind of event -> stage -> microseconds of CPU per record, with Spark's Kafka source and with reading workers."""
    return {
        kind: {
            stage: [us, sum(median(entry["stages"][kind][part]) for part in NOW.get(stage, (stage,)))]
            for stage, us in before.items()
        }
        for kind, before in BEFORE.items()
    }


def _draw_stages(path: Path, entry: Entry) -> None:
    from matplotlib.figure import Figure

    found = costs(entry)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, (kind, stages) in zip(figure.subplots(len(found), 1), found.items(), strict=True):
        left = [0.0, 0.0]
        for stage, us in stages.items():
            axes.barh(["before", "now"], us, left=left, label=stage)
            left = [one + more for one, more in zip(left, us, strict=True)]
        axes.bar_label(axes.containers[-1], [f" {total:.1f} us" for total in left])
        axes.set(xlim=(0, 1.15 * max(left)), ylabel=f"{kind} event")
        axes.invert_yaxis()
    axes.set_xlabel("microseconds of CPU a record")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    figure.savefig(path, metadata={"Software": None})


def _save(path: Path, fill: Callable[[Axes], None]) -> None:
    from matplotlib.figure import Figure  # imported late, too

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    fill(axes)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    figure.savefig(path, metadata={"Software": None})  # so that the same results give the same bytes
