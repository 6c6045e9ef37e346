"""What some work costs, for tests that a cost does not grow out of bounds."""

import time
import timeit
from collections.abc import Callable


def least_cpu(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the process for the cheapest of several runs, with garbage collection off: other threads of a long
    run of tests, and the garbage of earlier ones, may take more than the work itself."""
    return min(timeit.repeat(work, timer=time.process_time, repeat=times, number=1))
