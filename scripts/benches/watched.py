"""Measures what the page costs: the age of records and the CPU of the app, with the page open in browsers and without.

The sides take turns. The app writes its events on both. CPU of the page and of the browsers is no part of the app's.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.benches import result, usage
from scripts.benches.freshness import WARMTH_S, measure, percentiles
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.servers import spawn, stop
from scripts.benches.targets import PAGE_AGE, PAGE_CPU, PAGE_MEMORY


@dataclass
class Watched:
    """What was seen of the pages: the most MiB, cores used in each run, seconds until each browser showed the page."""

    mib: int = 0
    cores: list[float] = field(default_factory=list)
    paints: list[float] = field(default_factory=list)


def run(options: Options) -> Result:
    """Measure both sides in turns, print."""
    rows, watched = [], Watched()
    found: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    for number in range(options.rounds):
        for side, runs in found.items():
            beside = (lambda lake: _open_page(lake, options, watched)) if side == "with" else _no_page
            watch, cpu = measure(options, beside)
            p50, _, p99, _ = percentiles(watch.ages.between(WARMTH_S, options.seconds))
            runs.append((p50, p99, cpu["app"]))
            rows.append([number + 1, side, *runs[-1]])
    result.show(["round", "page", "p50 s", "p99 s", "cores of the app"], rows)
    worst = max(p50 for p50, *_ in found["without"])
    usual = {side: statistics.median(cores for *_, cores in runs) for side, runs in found.items()}
    figures = [
        Figure(PAGE_AGE.what, statistics.median(p50 for p50, *_ in found["with"]) / worst, PAGE_AGE),
        Figure(PAGE_CPU.what, usual["with"] / usual["without"], PAGE_CPU),
        Figure(PAGE_MEMORY.what, watched.mib, PAGE_MEMORY),
        Figure.of("cores used by the page", watched.cores),
        Figure.of("seconds until a browser shows the page", watched.paints),
    ]
    details = {"rate": options.rate, "seconds": options.seconds, "browsers": options.browsers}
    return Result(figures, details | {"runs": found})


@contextlib.contextmanager
def _no_page(lake: Path) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _open_page(lake: Path, options: Options, watched: Watched) -> Iterator[None]:
    """The page of a lake in browsers; what is seen of it is put into `watched`."""
    settings = {"PROTOLAKE_LAKE__PATH": str(lake), "PROTOLAKE_PAGE__PORT": "0"}
    with usage.meter() as meter:
        page = spawn(["-m", "spark_app", "page"], settings, subprocess.PIPE, meter=meter)
        assert page.stdout
        address = page.stdout.readline().strip()
        browsing = ["-m", "scripts.benches.browsing", address, str(options.browsers)]
        looking = spawn(browsing, {}, subprocess.PIPE)
        assert looking.stdout
        try:
            watched.paints += [float(looking.stdout.readline()) for _ in range(options.browsers)]
            before = meter.so_far(page.pid)
            yield
            watched.cores.append((meter.so_far(page.pid) - before) / options.seconds)
            watched.mib = max(watched.mib, psutil.Process(meter.pid(page.pid)).memory_info().rss >> 20)
        finally:
            stop(looking)
            stop(page)
