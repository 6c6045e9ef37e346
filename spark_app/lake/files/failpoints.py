"""Failpoints: a test can kill the app before or after each step that must survive a crash.

Two conditions must hold, so that no failpoint is armed by accident: the environment variable PROTOLAKE_FAILPOINTS=on,
and a file `<lake>/_protolake/failpoints.json` that lists points such as "ingest.manifest.before". The process kills
itself with SIGKILL at the first listed point that it reaches; the point is removed from the list first. With
PROTOLAKE_FAILPOINTS=stop it stops itself with SIGSTOP instead, and goes on when it is sent SIGCONT.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from spark_app.model.errors import ConfigurationError

ALLOWED = "PROTOLAKE_FAILPOINTS"
SIGNALS = {"on": signal.SIGKILL, "stop": signal.SIGSTOP}
FILE = "_protolake/failpoints.json"
UNITS = ("ingest", "deferred", "replay", "rebuild")
STEPS_OF_A_UNIT = ("manifest", "commit.first", "commit.middle", "commit.last")
STEPS = (
    *(f"{kind}.{step}" for kind in UNITS for step in STEPS_OF_A_UNIT),
    "resume.manifest",
    "takeover.manifest",
    "renew.manifest",
    "renew.commit.first",
    "loss.manifest",
    "loss.commit.first",
    "aside",
    "identity",
    "rules",
    "definitions",
    "reference",
    "field_ids",
    "began",
    "taken.began",
    "taken",
    "taken.merge",
    "checkpoint",
    "batch",
    "columns",
    "finished",
    "synced",
    "cursor",
    "mend",
    "attempt",
    "pass",
    "file",
    "descriptors",
    "ledger",
    "tables",
    "leave",
    "compact",
    "properties",
    "vacuum",
    "round",
    "clean_log",
    "forget",
    "gold.merge",
    "gold.replace",
    "gold.state",
    "sql.state",
    "events.commit",
    "sink.plan",
    "sink.state",
    "sink.tables",
    "spool",
    "spool.forget",
    "settings",
    "request",
    "progress",
    "answer",
)
POINTS = tuple(f"{step}.{side}" for step in STEPS for side in ("before", "after"))

_file: Path | None = None
_armed: set[str] = set()
_dying = threading.Lock()


def arm(root: str | Path) -> None:
    """Read the armed failpoints of this lake. Every process that works on the lake calls this.

    Raises:
        ConfigurationError: the file lists an unknown failpoint.
    """
    global _file, _armed
    if os.environ.get(ALLOWED) in SIGNALS:
        _file = Path(root) / FILE
        with contextlib.suppress(FileNotFoundError, ValueError):
            _armed = set(json.loads(_file.read_text()))
        unknown = _armed - set(POINTS)
        if unknown:
            raise ConfigurationError(f"{_file} names unknown failpoints: {', '.join(sorted(unknown))}")


@contextlib.contextmanager
def around(step: str) -> Iterator[None]:
    """The two failpoints of a step of `STEPS`: before and after the block."""
    _meet(f"{step}.before")
    yield
    _meet(f"{step}.after")


def _meet(point: str) -> None:
    if point not in _armed or _file is None:
        return
    with _dying:
        listed = set(json.loads(_file.read_text()))
        if point not in listed:
            return  # another process of this app has already reached the point
        temporary = _file.with_suffix(".tmp")
        temporary.write_text(json.dumps(sorted(listed - {point})))
        os.replace(temporary, _file)
        sent = SIGNALS[os.environ[ALLOWED]]
        os.kill(os.getpid(), sent)
        if sent is signal.SIGKILL:
            signal.pause()
