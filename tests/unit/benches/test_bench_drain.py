"""What a run says of itself, and what is said of the app against others: by rounds, with the start."""

from pathlib import Path

import pytest

from scripts.benches.drain import Run, _figures
from scripts.benches.progress import Progress
from scripts.benches.shape import Shape
from scripts.benches.sides import Side
from scripts.benches.targets import EARLIER, FLAT, LEAN, LEAN_CPU

RECORDS = 4_000_000
APP, LEAN_COPY, EARLIER_APP = Side("app"), Side("lean"), Side("base", "a00e4ee")


def _run(side: Side, seconds: float, cpu_seconds: float) -> Run:
    """Half of the time is the start."""
    progress = Progress(Path("checkpoint"), done={0: 100 + seconds}, _began=100 + seconds / 2)
    return Run(
        side, 1_000_000, RECORDS, progress, 100.0, cpu_seconds, 1.0, RECORDS, RECORDS, (8 * RECORDS, 4 * RECORDS)
    )


def test_time_runs_from_the_start_of_the_process_and_cpu_time_to_its_end() -> None:
    run = _run(APP, 20.0, 24.0)
    assert (run.seconds, run.progress.seconds, run.rate, run.cpu_us) == (20.0, 10.0, 200_000, pytest.approx(6.0))
    found = run.found()
    assert (found["bronze_bytes"], found["silver_bytes"], found["start_seconds"]) == (8.0, 4.0, 10.0)


def test_ratios_are_of_sides_that_took_turns() -> None:
    runs = [
        *(_run(APP, seconds, cpu) for seconds, cpu in ((10, 20), (20, 40), (40, 80))),
        *(_run(LEAN_COPY, seconds, cpu) for seconds, cpu in ((15, 20), (20, 60), (80, 240))),
        *(_run(EARLIER_APP, 50, cpu) for cpu in (40, 100, 160)),
    ]
    figures = {figure.what: figure for figure in _figures(runs, [LEAN_COPY, EARLIER_APP], Shape(RECORDS))}
    size = "1,000,000 a batch"
    wall, cpu = (figures[f"{what}, app / lean, {size}"] for what in ("records/s", "records per CPU second"))
    assert (wall.value, wall.spread, wall.target) == (1.5, (1.0, 2.0), LEAN[FLAT])
    assert (cpu.value, cpu.spread, cpu.target) == (1.5, (1.0, 3.0), LEAN_CPU[FLAT])
    less = figures[f"CPU per record, app / base:a00e4ee, {size}"]
    assert (less.value, less.spread, less.target) == (0.5, (0.4, 0.5), EARLIER[FLAT])
    own = figures[f"us of CPU a record, lean, {size}"]
    assert (own.value, own.spread) == (15.0, (5.0, 60.0))
