"""Lets each worker process of a job choose its share.

Spark gives a task to any idle process. The consumer of a process has already fetched what follows its last share, so a
process that got another share would fetch it anew, and the first fetch would be in vain.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def claim(folder: str, task: int, shares: Iterable[int]) -> int:
    """The first of the shares that no other task has claimed; for a task that Spark runs again, the one that it claimed
    before. There are as many shares as tasks, so each task gets one.

    Args:
        folder: an empty folder for each job, where all of its tasks run on one machine.
        shares: all of them, the preferred ones first.
    """
    claims = [f"{folder}/{share}" for share in shares]
    for path in (path for path in claims if _owner(path) == task):
        return int(os.path.basename(path))
    for path in claims:
        try:
            os.symlink(str(task), path)  # the name and its content in one step
        except FileExistsError:
            continue
        return int(os.path.basename(path))
    raise ValueError(f"task {task} is one too many for {len(claims)} shares")


def _owner(path: str) -> int | None:
    try:
        return int(os.readlink(path))
    except FileNotFoundError:
        return None
