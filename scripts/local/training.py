"""Trains the class archive of the app's JVM, once on a machine: without it a start and a bump take twice the CPU time.

A JVM writes the archive only on a normal exit, and a bump kills it. So a temporary session writes the archive before
the first run.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.local import environment
from scripts.local.artifacts import ROOT
from scripts.local.downloads import locked
from scripts.local.server import last_line

ARCHIVE = "PROTOLAKE_SPARK__CLASS_ARCHIVE"
LONGEST_S = 240.0
QUICK = "-XX:TieredStopAtLevel=1"  # this JVM ends soon, and the archive has no compiled code


def train(app: dict[str, str]) -> None:
    """Create the archive that the app's variables name, unless it exists. The app runs without it, too, so a failed
    training is only reported."""
    archive = Path(app.get(ARCHIVE, ""))
    if not archive.name or archive.is_file():
        return
    with locked(archive.with_suffix(".lock")):
        if not archive.is_file():
            _write(archive, app)


def _write(archive: Path, app: dict[str, str]) -> None:
    began = time.monotonic()
    _print("training the JVM's class archive, once on this machine: half a minute to a minute ...")
    with tempfile.TemporaryDirectory(prefix="training-", dir=archive.parent) as name:
        partial, log = Path(name, archive.name), Path(name, "training.log")
        problem = _run(app | {ARCHIVE: str(partial)}, log)
        if problem is None:
            partial.replace(archive)
            _print(f"class archive of {archive.stat().st_size / 1e6:.0f} MB written after {_seconds(began)}")
        else:
            _print(f"the class archive was not written, so starts take longer: {problem}")


def _run(app: dict[str, str], log: Path) -> str | None:
    """Train in a process; returns why there is no archive, or None if there is one."""
    options = " ".join(filter(None, (os.environ.get("JAVA_TOOL_OPTIONS"), QUICK)))
    surroundings = os.environ | environment.shared(os.environ) | app | {"JAVA_TOOL_OPTIONS": options}
    with log.open("w") as file:
        try:
            command = [sys.executable, "-m", "spark_app.app.training"]
            code = subprocess.run(
                command, env=surroundings, cwd=ROOT, stdout=file, stderr=file, timeout=LONGEST_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return f"it was not written in {LONGEST_S:.0f} s"
    return f"{last_line(log)} (exit code {code})" if code else None


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
