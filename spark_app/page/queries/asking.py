"""Asks a child process one question, as JSON, and gets one answer."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import spark_app
from spark_app.units.worker.block_pandas import block_pandas

CODE = Path(spark_app.__file__).parents[1]
CPU_S = 60
CANCELLED = "it was cancelled"
MEMORY = (
    1 << 30
)  # bytes of one process; DuckDB may use 512 MB of it, but what it computes for one value escapes that limit


class Child:
    """A process that is asked one question. Another thread may end it meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def ask(self, module: str, question: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        """The answer of `python -m MODULE`; {"failed": why} if there is none."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", module]
        try:
            with self._lock:
                if self._ended:
                    return {"failed": CANCELLED}
                self._process = process = subprocess.Popen(
                    command, cwd=CODE, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
                )
            with process:
                try:
                    said, _ = process.communicate(json.dumps(question), within_s)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return {"failed": f"it takes more than {within_s:.0f} s"}
            answer: dict[str, Any] = json.loads(said)
        except (OSError, ValueError):
            return {"failed": CANCELLED if self._ended else "its process ended without an answer"}
        return answer

    def end(self) -> None:
        """End the process, or let none begin."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.returncode is None:
                self._process.kill()


def ask(module: str, question: Mapping[str, Any], within_s: float) -> dict[str, Any]:
    """The answer of a process that nobody ends early, as of `Child.ask`."""
    return Child().ask(module, question, within_s)


def reply(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the question on standard input. This process can write no files from now on, and has 60 s of CPU and 1 GiB
    of memory, and loads no pandas. If the machine or the container runs out of memory, it ends before others do."""
    limits = {
        resource.RLIMIT_CPU: CPU_S,
        resource.RLIMIT_DATA: MEMORY,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    for what, most in limits.items():
        resource.setrlimit(what, (most, most))
    block_pandas()
    print(json.dumps(answer(json.load(sys.stdin))))
