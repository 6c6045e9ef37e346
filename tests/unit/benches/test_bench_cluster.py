"""The cost of a record on a cluster is the slope between two drains, without and with the app's own process."""

from pathlib import Path

import pytest

from scripts.benches.cluster import Turn, Used, _figures
from scripts.benches.drain import Run
from scripts.benches.options import parse
from scripts.benches.progress import Progress
from scripts.benches.sides import Side
from scripts.benches.targets import CLUSTER


def _used(records: int, seconds: float, driver_seconds: float) -> Used:
    progress = Progress(Path("checkpoint"), done={0: 110.0}, _began=105.0)
    run = Run(Side("app"), 200_000, records, progress, 100.0, seconds, driver_seconds, records, records, (0, 0))
    return Used(run, seconds)


def _turn(start: float, per_million: float, driver: float) -> Turn:
    """`driver` seconds of each million records are the app's own process."""
    small, large = (_used(n * 1_000_000, start + n * per_million, 1.0 + n * driver) for n in (1, 4))
    return Turn(small, large)


def test_starts_do_not_count() -> None:
    for start in (5.0, 50.0):
        turn = _turn(start, 6.0, 1.5)
        assert turn.cost(driver=True) == pytest.approx(6.0)
        assert turn.cost(driver=False) == pytest.approx(4.5)


def test_the_ratio_with_a_target_leaves_the_process_that_plans_out() -> None:
    turns = {(2, False): [_turn(5.0, 6.0, 2.0)] * 3, (2, True): [_turn(50.0, 8.0, 3.0)] * 3}
    figures = {figure.what: figure for figure in _figures(parse(["cluster", "--workers", "2"]), turns)}
    whole = figures["CPU per record, cluster / local, 2 cores"]
    assert (whole.value, whole.target) == (pytest.approx(8 / 6), None)
    apart = figures["CPU per record without the app's own process, cluster / local, 2 cores"]
    assert (apart.value, apart.target) == (pytest.approx(5 / 4), CLUSTER)
