"""A plugin of pytest for runs that can be resumed: `-p tests.passed` leaves out the tests that the file
PROTOLAKE_TESTS_PASSED names, and adds those that pass, one JSON line each."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

left_out: set[str] = set()
took: defaultdict[str, float] = defaultdict(float)
failed: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """All processes of a run leave out the same tests: those that had passed when it began."""
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    lines = [] if given else _file().read_text().splitlines()
    left_out.update(given["passed"] if given else (json.loads(line)["test"] for line in lines))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["passed"] = sorted(left_out)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In a worker of xdist, its parent writes."""
    took[report.nodeid] += report.duration
    if report.failed:
        failed.add(report.nodeid)
    elif report.when == "teardown" and report.nodeid not in failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with _file().open("a") as file:
            file.write(json.dumps({"test": report.nodeid, "seconds": round(took[report.nodeid], 1)}) + "\n")


def _file() -> Path:
    return Path(os.environ["PROTOLAKE_TESTS_PASSED"])
