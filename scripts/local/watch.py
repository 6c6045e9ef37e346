"""Shows the stack until it is stopped, or with --records until all records are ingested.

Output: 0. If producer or app is down without a restart, a run with --records ends with a LocalError with its exit code;
without --records the stack stays up and shows it.
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
    """Returns once the run is complete; otherwise a signal ends it."""
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
        + (f", {report.dropped:,} were dropped by expectations" if report.dropped else "")
    )
    return 0


def is_drained(stack: Stack) -> bool:
    """True if every produced record is in silver or quarantine, or dropped, and gold includes each table."""
    if stack.code_of("producer") != 0:
        return False
    report = stack.report()
    return (
        report.updated_at > stack.ended_at("producer")
        and report.lag == 0
        and report.deferred == 0
        and report.bronze >= stack.expected
        and report.silver + report.quarantined + report.dropped >= report.bronze
        and all(rows.gold for rows in report.tables.values() if rows.silver)
    )


class _Lines:
    """Prints the table's content as lines when it has changed, without a terminal."""

    def __init__(self) -> None:
        self._shown: object = None
        self._at = 0.0

    def print_news(self, view: table.View) -> None:
        """Print every five seconds if there is a change, otherwise every minute."""
        waited = time.monotonic() - self._at
        if waited >= (LINES_SECONDS if table.news(view) != self._shown else QUIET_SECONDS):
            self.print(view)

    def print(self, view: table.View) -> None:
        self._shown, self._at = table.news(view), time.monotonic()
        print(*table.plain(view), sep="\n", flush=True)


def _await_end(stack: Stack, lines: _Lines | None = None) -> None:
    """Return when all records of --records are ingested."""
    while True:
        stack.tend()
        if stack.options.records:
            if is_drained(stack):
                return
            _require_progress(stack)
        if lines:
            lines.print_news(stack.look())
        time.sleep(LOOK_SECONDS)


def _require_progress(stack: Stack) -> None:
    """A LocalError if producer and app can no longer ingest the missing records."""
    producer, app = stack.code_of("producer"), stack.code_of("spark")
    if producer or app is not None:
        why = "the run ended before all records were in; the lines above and the logs show why"
        raise LocalError(why, producer or app or 70)
