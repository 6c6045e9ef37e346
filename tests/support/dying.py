"""A process that executes a request of a lake and whose JVM is killed on the way: `python -m tests.support.dying`.

Arguments: the lake, the request's id, in which step to kill ("conclude", or its number counted from the start of this
process; 0 = in none), and how many seconds after that step began.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode, ProtolakeError
from spark_app.recovery import requests
from spark_app.recovery.executor import execute
from spark_app.recovery.rebuild import Rebuild
from spark_app.recovery.replay import Replay
from spark_app.settings import config
from spark_app.units.driver import ingest
from spark_app.units.spark import jvm

AT_ONCE = 250  # records of a step, so that a request has many


def kill_jvm(delay: float) -> None:
    pid = jvm.jvm_pid()
    assert pid is not None
    threading.Timer(delay, os.kill, (pid, signal.SIGKILL)).start()


def arm(kind: type[Any], what: str, delay: float) -> None:
    """Kill the JVM in a step of a job."""
    name = "conclude" if what == "conclude" else "step"
    real: Callable[[Any], Any] = getattr(kind, name)
    begun = 0

    def step(job: Any) -> Any:
        nonlocal begun
        begun += 1
        if what in ("conclude", str(begun)):
            kill_jvm(delay)
        return real(job)

    setattr(kind, name, step)


def main(root: str, request_id: str, what: str, delay: str) -> int:
    ingest.MOST_AT_ONCE = AT_ONCE
    for kind in (Replay, Rebuild):
        arm(kind, what, float(delay))
    lake = Lake(root)
    lake.lease.acquire()
    request = next(request for request in requests.pending(lake) if request.id == request_id)
    try:
        print(json.dumps(execute(config.load(), lake, request)))
    except ProtolakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        jvm.end(clean=False, last=False)
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
