"""Trains the class archive of the app's JVM, once on a machine: without it a start and a bump take twice the CPU time.

A JVM writes the archive only on a normal exit, and a bump kills it. So a session of its own writes it, beside the app
of the first run once that has rows. A training that failed is repeated only if something has changed.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from scripts.local import environment
from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from scripts.local.patience import STILL_S, Patience, Signs
from scripts.local.server import last_line
from spark_app.model.processes import BOUND

ARCHIVE = "PROTOLAKE_SPARK__CLASS_ARCHIVE"
QUICK = "-XX:TieredStopAtLevel=1"  # this JVM ends soon, and the archive has no compiled code
LOOK_S = 0.2


class Training:
    """The archive that the app's variables name, if they name one. Without it the app runs, too, so nothing raises."""

    def __init__(self, app: dict[str, str], log: Path, still_s: float = STILL_S) -> None:
        self.archive = Path(app.get(ARCHIVE, ""))
        self._app, self._log, self._still_s = app, log, still_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._is_over = not self.archive.name
        self._began = 0.0

    @property
    def is_ready(self) -> bool:
        return self.archive.is_file()

    def step(self) -> bool:
        """Begin, or see how it goes on; True as long as it is not over."""
        if not self._is_over:
            if self._process is None:
                self._begin()
            else:
                self._look(self._process)
        return not self._is_over

    def end(self) -> None:
        """Give up; the next run begins again."""
        self._is_over = True
        if self._process is None or self._lock is None:  # another stack may train
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._partial.unlink(missing_ok=True)
        self._lock.close()

    @property
    def _partial(self) -> Path:
        return self.archive.with_suffix(".part")

    @property
    def _failure(self) -> Path:
        """Why the last training failed."""
        return self.archive.with_suffix(".failed")

    def _begin(self) -> None:
        if self.is_ready or self._has_failed():
            self._is_over = True
            return
        if not self._try_lock():  # another stack trains
            return
        _print("training the JVM's class archive beside the app, once on this machine: a minute or two ...")
        options = " ".join(filter(None, (os.environ.get("JAVA_TOOL_OPTIONS"), QUICK)))
        more = {ARCHIVE: str(self._partial), "JAVA_TOOL_OPTIONS": options}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as file:
            self._process = process = subprocess.Popen(
                ["nice", "-n", "19", "sh", "-c", BOUND, "sh", sys.executable, "-m", "spark_app.app.training"],
                env=os.environ | environment.shared(os.environ) | self._app | more,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._began = time.monotonic()
        self._patience = Patience("training", self._log, lambda: Signs.of([process.pid], self._log), self._still_s)

    def _look(self, process: subprocess.Popen[bytes]) -> None:
        try:
            self._patience.check()
        except LocalError as error:
            return self._fail(str(error))
        code = process.poll()
        if code is None:
            return None
        if code or not self._partial.is_file():
            return self._fail(f"{last_line(self._log)} (exit code {code}, log: {self._log})")
        self._partial.replace(self.archive)
        size, seconds = self.archive.stat().st_size / 1e6, time.monotonic() - self._began
        _print(f"class archive of {size:.0f} MB written after {seconds:.0f} s: the app's next start is faster")
        self.end()

    def _fail(self, why: str) -> None:
        self.end()
        self._failure.write_text(f"{why}\n")
        _print(f"the class archive was not written, so starts take longer: {why}; to try again, delete {self._failure}")

    def _has_failed(self) -> bool:
        """True if a training failed, and its code is as it was. Another Java, or other jars, have another archive."""
        code = ROOT / "spark_app" / "app" / "training.py"
        return self._failure.is_file() and self._failure.stat().st_mtime > code.stat().st_mtime

    def _try_lock(self) -> bool:
        lock = self.archive.with_suffix(".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True


def train(app: dict[str, str], log: Path) -> None:
    """Train now, and wait."""
    training = Training(app, log)
    while training.step():
        time.sleep(LOOK_S)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
