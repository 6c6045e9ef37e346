"""A server as a local process: a start that is checked, a stop that is final. The stack and the tests use it.

Input: a state folder and a loopback port. Output: a process that answers, with data and log below the state folder. A
failed start is a LocalError with the last error in the server's log.
"""

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil  # type: ignore[import-untyped]

from scripts.local import java as javas
from scripts.local.artifacts import ROOT
from scripts.local.java import Java
from scripts.local.patience import STILL_S, Patience, Signs
from scripts.local.ports import free_port, require_free
from scripts.local.program import Program, attended
from spark_app.model.text import one_line

# With C1 only, a server starts in half the CPU time; neither server is the bottleneck of a laptop's stack.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


class Server(ABC):
    """One server; port 0 chooses a free one. Use `start` ... `stop`, or a context manager."""

    name: ClassVar[str]
    option: ClassVar[str]

    def __init__(self, state: Path, port: int = 0, java: Java | None = None) -> None:
        self.state, self.port = state.absolute(), port or free_port()
        self._java, self._process = java, None

    _java: Java | None
    _process: subprocess.Popen[bytes] | None

    @cached_property
    def java(self) -> Java:
        return self._java or javas.find()

    @property
    def folder(self) -> Path:
        """The folder of the server's data."""
        return self.state / self.name

    @property
    def log(self) -> Path:
        return self.state / "logs" / f"{self.name}.log"

    @abstractmethod
    def prepare(self) -> None:
        """Create the files that the process needs; may be called again."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command of the process, after `prepare`."""

    @abstractmethod
    def is_ready(self) -> bool:
        """True if this server, and no other one on the same port, answers."""

    def check_port(self) -> None:
        require_free(self.port, self.name, self.option)

    def program(self) -> Program:
        """The server as a program of the stack."""
        return Program(self.name, self.command(), grace=3.0, relaunch="always")

    def start(self, still_s: float = STILL_S) -> Self:
        """Start the process and wait until it is ready."""
        self.check_port()
        self.prepare()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        path = Program(self.name, self.command(), relaunch="never").write(self.state / "run")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                attended(path),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                start_new_session=True,  # a Ctrl-C at the terminal must only reach the tests
            )
        self._await_ready(self._process, still_s)
        return self

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end; returns when it has ended."""
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Send SIGKILL, as in a crash; `start` starts the server again with its data."""
        if self._process:
            for child in psutil.Process(self._process.pid).children():
                child.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def pid(self) -> int | None:
        """The process id of the server itself while it runs."""
        children = psutil.Process(self._process.pid).children() if self._process else []
        return children[0].pid if children else None

    def patience(self, attendant: Callable[[], int], still_s: float = STILL_S) -> Patience:
        """With its start. `attendant` gives the process id of its attendant."""
        return Patience(self.name, self.log, lambda: Signs.of([attendant()], self.log, self.port), still_s)

    def _await_ready(self, process: subprocess.Popen[bytes], still_s: float) -> None:
        patience = self.patience(lambda: process.pid, still_s)
        try:
            while not self.is_ready():
                if process.poll() is not None:
                    raise patience.error(f"it ended with exit code {process.returncode}")
                patience.check()
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def last_line(log: Path) -> str:
    """The last useful line of a log, without stack traces; control characters are escaped."""
    lines = log.read_text(errors="replace").splitlines()[-200:] if log.is_file() else []
    messages = [line.strip() for line in lines if line.strip() and not line.startswith((" ", "\t", "Caused by", "}"))]
    return one_line(messages[-1][:300]) if messages else "(its log is empty)"
