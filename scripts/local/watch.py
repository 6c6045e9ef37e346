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
QUIET_SECONDS = 60.0


def watch(stack: Stack) -> int:
    """Returns only if there is something to end for; else a signal ends it."""
    if sys.stdout.isatty():
        with Live(get_renderable=lambda: table.renderable(stack.look()), refresh_per_second=2, transient=False):
            _await_end(stack)
    else:
        lines = _Lines()
        try:
            _await_end(stack, lines)
        finally:
            lines.print(stack.look())
    report = stack.report()
    print(
        f"all {stack.options.records:,} records are in the lake: "
        f"silver has {report.silver:,} rows, quarantine {report.quarantined:,}"
    )
    return 0


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


class _Lines:
    """Where there is no terminal: what the table would show, once it has changed."""

    def __init__(self) -> None:
        self._said: object = None
        self._at = 0.0

    def print_news(self, view: table.View) -> None:
        """Every five seconds if there is news, else every minute."""
        waited = time.monotonic() - self._at
        if waited >= (LINES_SECONDS if table.news(view) != self._said else QUIET_SECONDS):
            self.print(view)

    def print(self, view: table.View) -> None:
        self._said, self._at = table.news(view), time.monotonic()
        print(*table.plain(view), sep="\n", flush=True)


def _await_end(stack: Stack, lines: _Lines | None = None) -> None:
    """Returns when all records of --records are in."""
    while True:
        if stack.supervisor.dead():
            raise LocalError(f"the attendant of {stack.supervisor.dead()[0]} was killed: start the stack again", 70)
        if stack.options.records:
            if is_drained(stack):
                return
            _require_progress(stack)
        if lines:
            lines.print_news(stack.look())
        time.sleep(LOOK_SECONDS)


def _require_progress(stack: Stack) -> None:
    """A LocalError if nobody is left who could get the missing records in."""
    producer, app = stack.code_of("producer"), stack.code_of("spark")
    if producer or app is not None:
        why = "the run ended before all records were in; the lines above and the logs show why"
        raise LocalError(why, producer or app or 70)
