"""The log: one event per line, as logfmt on standard error: `time=... level=... event=...`, then the event's values.

Times are UTC. Long values are cut to 500 characters; values that are not a bare printable word are quoted.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import sys
from typing import Any, TextIO

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
LONGEST_VALUE = 500
BARE = re.compile(r'[^\s"=\\]+')


class Log:
    """Writes the events at or above a level."""

    level = LEVELS["INFO"]

    def set_level(self, name: str) -> None:
        self.level = LEVELS[name]

    def debug(self, event: str, **values: Any) -> None:
        self._write("DEBUG", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._write("INFO", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._write("WARNING", event, values)

    def error(self, event: str, **values: Any) -> None:
        self._write("ERROR", event, values)

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        if LEVELS[level] < self.level:
            return
        moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        words = "".join(f" {key}={_word(value)}" for key, value in values.items())
        with contextlib.suppress(OSError):  # a log on a full disk must not stop the app
            print_line(f"time={moment}Z level={level} event={_word(event)}{words}")


def print_line(line: str, file: TextIO | None = None) -> None:
    """Print a line, on standard error if no file is given, in one write: `print` by itself writes the end of a line
    apart, so that a line of another thread or process may stand within it."""
    print(f"{line}\n", end="", file=file or sys.stderr, flush=True)


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) > LONGEST_VALUE:
        text = f"{text[:LONGEST_VALUE]}..."
    return text if BARE.fullmatch(text) and text.isprintable() else json.dumps(text)


log = Log()
