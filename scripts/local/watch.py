"""From `up` to the end: shows the stack until it is asked to stop or, with --records, until all records are in.

Goes out: 0. A producer or an app that is down for good ends a run with --records as a LocalError with its exit code;
without --records the stack stays up and says so.
"""

import sys
import time

from rich.live import Live

from scripts.local import table
from scripts.local.errors import LocalError
from scripts.local.stack import Stack

LOOK_SECONDS = 0.5
LINES_SECONDS = 5.0


def watch(stack: Stack) -> int:
    """Returns only if there is something to end for; else a signal ends it."""
    if sys.stdout.isatty():
        with Live(get_renderable=lambda: table.renderable(stack.look()), refresh_per_second=2, transient=False):
            return _await_end(stack, LOOK_SECONDS)
    try:
        return _await_end(stack, LOOK_SECONDS, LINES_SECONDS)
    finally:
        _print_lines(stack)


def is_drained(stack: Stack) -> bool:
    """Whether every produced record is in silver or quarantine, and gold has seen each table."""
    if stack.code_of("producer") != 0:
        return False
    report = stack.report()
    return (
        report.updated_at > stack.ended_at("producer")
        and report.lag == 0
        and report.deferred == 0
        and report.bronze >= stack.expected
        and report.silver + report.quarantined >= report.bronze
        and all(rows.gold for rows in report.tables.values() if rows.silver)
    )


def _await_end(stack: Stack, every: float, lines_every: float | None = None) -> int:
    next_lines = time.monotonic()
    while True:
        if not stack.supervisor.is_alive():
            raise LocalError(f"supervisord ended; its log is {stack.supervisor.logs / 'supervisord.log'}", 70)
        if stack.options.records:
            if is_drained(stack):
                return 0
            _require_progress(stack)
        if lines_every and time.monotonic() >= next_lines:
            _print_lines(stack)
            next_lines += lines_every
        time.sleep(every)


def _require_progress(stack: Stack) -> None:
    """A LocalError if nobody is left who could get the missing records in."""
    producer, app = stack.code_of("producer"), stack.code_of("spark")
    if producer or app is not None:
        why = "the run ended before all records were in; the lines above and the logs say why"
        raise LocalError(why, producer or app or 70)


def _print_lines(stack: Stack) -> None:
    print(*table.plain(stack.look()), sep="\n", flush=True)
