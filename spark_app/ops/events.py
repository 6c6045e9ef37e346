"""Log lines: one event each, as logfmt on standard error. Values that come from records are quoted and cut."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from typing import Any

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
LONGEST_VALUE = 500


class Log:
    """Writes events at or above a level."""

    level = LEVELS["INFO"]

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
        moment = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
        words = "".join(f" {key}={_word(value)}" for key, value in values.items())
        with contextlib.suppress(OSError):  # a log on a full disk must not end what it is about
            print(f"{moment} {level:<7} {event}{words}", file=sys.stderr, flush=True)


def _word(value: Any) -> str:
    """A word without spaces, or JSON: what comes out is one value to whoever reads the line, whatever came in."""
    if isinstance(value, str):
        text = value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}..."
        plain = text.isprintable() and not set(' "') & set(text) and not text.startswith(("[", "{"))
        return text if plain else json.dumps(text)
    text = json.dumps(value, default=str, separators=(",", ":"))
    return text if len(text) <= LONGEST_VALUE else json.dumps(f"{text[:LONGEST_VALUE]}...")


log = Log()
