"""No restart policy makes the app spin: starts an hour, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scripts.local.program import Exit, backoff_seconds
from spark_app.app.lifecycle import IMMEDIATE_STARTS, LONGEST_S, StartBackoff, pause
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.settings.models import Run
from tests.chaos.units import open_lake

HOUR_S = 3600.0
START_S = 10.0  # of Spark, until something can fail
FIRST_S = Run().backoff_s


def failed(lake: Lake) -> int:
    starts = StartBackoff(lake, FIRST_S)
    starts.begin()
    return starts.failed


def test_starts_without_a_unit_are_counted_until_one_is_decided_or_ends_well(tmp_path: object) -> None:
    lake = open_lake(tmp_path)  # type: ignore[arg-type]
    assert [failed(lake) for _ in range(3)] == [0, 1, 2]
    (lake.path(lake.manifests) / "000000000001.json").touch()
    assert [failed(lake) for _ in range(3)] == [0, 1, 2]
    StartBackoff(lake, FIRST_S).succeeded()
    assert failed(lake) == 0


def test_the_first_starts_come_at_once_and_the_wait_has_an_end() -> None:
    assert [pause(n, FIRST_S) for n in range(IMMEDIATE_STARTS)] == [0] * IMMEDIATE_STARTS
    assert [pause(IMMEDIATE_STARTS + n, FIRST_S) for n in range(4)] == [5, 10, 20, 40]
    assert pause(10**9, FIRST_S) == LONGEST_S
    assert pause(10**9, 0) == 0


def docker(exits: list[Exit]) -> float:
    """`restart: on-failure`: 100 ms that double up to a minute, and begin anew once a container was up ten seconds."""
    wait = 0.1
    for one in exits:
        wait = 0.1 if one.seconds >= 10 else min(60.0, 2 * wait)
    return wait


def starts_in_hour(policy: Callable[[list[Exit]], float], code: ExitCode, lasts_s: float, hour: int) -> int:
    """How often the app is started in that hour when each start ends with the code after so many seconds."""
    now, found, exits, count = 0.0, 0, list[Exit](), 0
    while now < (hour + 1) * HOUR_S:
        found += now >= hour * HOUR_S
        began = now
        now += pause(count, FIRST_S) + lasts_s
        count += 1
        exits.append(Exit(now, code, now - began, False))
        if code.held:
            return found  # the container is held, the local supervisor leaves it down
        now += policy(exits)
    return found


@pytest.mark.parametrize("policy", [docker, backoff_seconds], ids=["docker", "local"])
@pytest.mark.parametrize(
    ("code", "lasts_s"),
    [
        (ExitCode.CONFIGURATION, 0.5),  # a bad setting
        (ExitCode.CONFIGURATION, Run().connect_timeout_s),  # a topic that is missing, a login that is refused
        (ExitCode.UNREACHABLE, START_S + Run().connect_timeout_s),  # a registry that is dead
    ],
)
def test_at_most_six_starts_an_hour(policy: Callable[[list[Exit]], float], code: ExitCode, lasts_s: float) -> None:
    assert max(starts_in_hour(policy, code, lasts_s, hour) for hour in range(3)) <= 6


@pytest.mark.parametrize("policy", [docker, backoff_seconds], ids=["docker", "local"])
@pytest.mark.parametrize("lasts_s", [0.5, START_S])
def test_a_bug_at_every_start_does_not_spin_either(policy: Callable[[list[Exit]], float], lasts_s: float) -> None:
    assert starts_in_hour(policy, ExitCode.BUG, lasts_s, 0) <= 15
    assert starts_in_hour(policy, ExitCode.BUG, lasts_s, 1) <= 6
