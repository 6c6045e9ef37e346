"""Measures what a sink costs ingest: CPU of the app and the age of records, with `deliver` beside it and without. It
sends each row of silver to a REST service.

The sides take turns. CPU of `deliver` and of the service is no part of the app's.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.benches import result, usage
from scripts.benches.freshness import WARMTH_S, measure, percentiles
from scripts.benches.options import Options
from scripts.benches.rest import open_service
from scripts.benches.result import Figure, Result
from scripts.benches.servers import spawn, stop
from scripts.benches.targets import DELIVER_AGE, DELIVER_CPU
from scripts.local.errors import LocalError
from spark_app.followers.sinks import state
from spark_app.lake.lake import Lake

SINK, WRONG = "bench", 65


def run(options: Options) -> Result:
    """Measure both sides in turns, print."""
    rows, cores = [], list[float]()
    found: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    with open_service() as url:
        rest = {"url": url, "allow_private": True}
        settings = {"PROTOLAKE_SINKS": json.dumps({SINK: {"rest": rest, "rows_per_call": 100}})}
        for number in range(options.rounds):
            for side, runs in found.items():
                own = settings if side == "with" else {}
                watch, cpu = measure(options, partial(_deliver, settings=own, options=options, cores=cores), own)
                p50, _, p99, _ = percentiles(watch.ages.between(WARMTH_S, options.seconds))
                runs.append((p50, p99, cpu["app"]))
                rows.append([number + 1, side, *runs[-1]])
    result.show(["round", "sink", "p50 s", "p99 s", "cores of the app"], rows)
    usual = {side: statistics.median(cores for *_, cores in runs) for side, runs in found.items()}
    ages = {side: [p99 for _, p99, _ in runs] for side, runs in found.items()}
    apart = statistics.median(ages["with"]) - statistics.median(ages["without"])
    spread = max(ages["without"]) - min(ages["without"])
    figures = [
        Figure(DELIVER_CPU.what, usual["with"] / usual["without"], DELIVER_CPU),
        Figure(DELIVER_AGE.what, apart / spread, DELIVER_AGE),
        Figure.of("cores used by deliver", cores),
    ]
    return Result(figures, {"rate": options.rate, "seconds": options.seconds, "runs": found})


@contextlib.contextmanager
def _deliver(lake: Path, settings: dict[str, str], options: Options, cores: list[float]) -> Iterator[None]:
    """The process of the sinks of these settings, if there are any."""
    if not settings:
        yield
        return
    with usage.meter() as meter:
        process = spawn(["-m", "spark_app", "deliver"], settings | {"PROTOLAKE_LAKE__PATH": str(lake)}, meter=meter)
        try:
            yield
            cores.append(meter.so_far(process.pid) / options.seconds)
            if not state.read(Lake(lake), SINK).get("accepted"):
                raise LocalError("no row was delivered", WRONG)
        finally:
            stop(process)
