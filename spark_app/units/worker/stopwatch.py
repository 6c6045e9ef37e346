"""Where the time of a task goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal, get_args

Step = Literal["read", "decode", "check", "project", "write"]
STEPS: tuple[Step, ...] = get_args(Step)


class Stopwatch:
    """Hands the time from one step to another: every moment belongs to one step, so the steps add up to the task.

    Attributes:
        seconds: each step -> wall time until now, except since the last change of the step.
    """

    def __init__(self) -> None:
        """Start, with the step "read"."""
        self.seconds: dict[str, float] = dict.fromkeys(STEPS, 0.0)
        self._step: Step = "read"
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Inside of it the time is that of `step`, afterwards again that of the step before."""
        before = self._step
        self._turn(step)
        yield
        self._turn(before)

    def stop(self) -> dict[str, float]:
        """`seconds` until now."""
        self._turn(self._step)
        return self.seconds

    def _turn(self, step: Step) -> None:
        now = time.perf_counter()
        self.seconds[self._step] += now - self._since
        self._step, self._since = step, now
