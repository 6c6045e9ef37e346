"""How a command ends: its message of an error, and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import time

from spark_app.app import children
from spark_app.lake.files.store_errors import is_store_error, reason
from spark_app.lake.lease import Lease
from spark_app.model.errors import ExitCode, LeaseLost, ProtolakeError, UnreachableError
from spark_app.model.log import log, print_line

HELD_LOG_EVERY_S = 60.0


def report(error: ProtolakeError) -> ExitCode:
    print_line(f"protolake: {error}")
    return error.exit_code


def cause_of_end(error: ProtolakeError, lease: Lease) -> ProtolakeError:
    """The error, or that the lake was taken over: what an old process misses then, the new one may have removed."""
    if error.exit_code is ExitCode.LOSS and lease.epoch:
        try:
            lease.check()
        except LeaseLost as lost:
            return lost
        except OSError:
            return UnreachableError(f"{error}, or so it looked while the object store did not answer")
    return error


def report_unexpected(error: Exception) -> ExitCode:
    """Report an error of a library: the object store cannot be reached, or it is a bug."""
    if is_store_error(error):
        return report(UnreachableError(reason(error)))
    log.error("bug", type=type(error).__name__, reason=str(error))
    return ExitCode.BUG


def hold(code: ExitCode, reason: str) -> None:
    """Stay up, unhealthy, so that no restart policy spins where only an operator can help. The lake is free and the
    JVM gone: whoever repairs the lake need not stop this process first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(ExitCode.DONE))
    if "spark_app.units.spark.jvm" in sys.modules:
        sys.modules["spark_app.units.spark.jvm"].end(clean=False, last=False)
    children.kill_all(children.descendants(os.getpid()))
    while True:
        print_line(f"protolake: held with exit code {int(code)}: {reason}")
        time.sleep(HELD_LOG_EVERY_S)


def leave(code: ExitCode) -> None:
    """End at once: everything is durable. After a clean stop the JVM may still write its class archive."""
    from spark_app.units.spark import jvm

    jvm.end(clean=code == ExitCode.DONE)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)
