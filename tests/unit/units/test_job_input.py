"""Tasks that choose their shares: each share has one task, and a task that runs again has the share that it had."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_app.units.driver.job_input import claim

TASKS = 8


@given(st.lists(st.permutations(range(TASKS)), min_size=TASKS, max_size=TASKS), st.permutations(range(TASKS)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_each_task_gets_the_first_share_that_is_left_and_keeps_it(
    tmp_path_factory: pytest.TempPathFactory, wishes: list[list[int]], order: list[int]
) -> None:
    folder, left = str(tmp_path_factory.mktemp("claims")), set(range(TASKS))
    claimed = {}
    for task in order:
        claimed[task] = claim(folder, task, wishes[task])
        assert claimed[task] == next(share for share in wishes[task] if share in left)
        left.remove(claimed[task])
    for task in order:
        assert claim(folder, task, wishes[task - 1]) == claimed[task]


def test_tasks_at_once_never_share(tmp_path: Path) -> None:
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        with ThreadPoolExecutor(TASKS) as pool:
            found = list(pool.map(lambda task, at=str(folder): claim(at, task, range(TASKS)), range(TASKS)))
        assert sorted(found) == list(range(TASKS))
        assert {os.readlink(folder / str(share)): share for share in found} == {
            str(task): share for task, share in enumerate(found)
        }


def test_a_task_too_many_is_an_error(tmp_path: Path) -> None:
    assert claim(str(tmp_path), 0, [0]) == 0
    with pytest.raises(ValueError, match="task 1 is one too many for 1 shares"):
        claim(str(tmp_path), 1, [0])
