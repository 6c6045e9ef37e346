"""Sends requests to a child process, as lines of JSON, and gets a response to each."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import spark_app
from spark_app.units.worker.block_pandas import block_pandas

CODE = Path(spark_app.__file__).parents[1]
CPU_S = 60
CANCELLED = "it was cancelled"
# Bytes of one process. DuckDB may use 512 MB of it, but what it computes for one value escapes that limit.
MEMORY = 1 << 30


class Child:
    """A process for one request. Another thread may end it meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def run(self, module: str, request: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        """The response of `python -m MODULE`; {"failed": why} if there is none."""
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
                    output, _ = process.communicate(json.dumps(request), within_s)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return {"failed": f"it takes more than {within_s:.0f} s"}
            response: dict[str, Any] = json.loads(output)
        except (OSError, ValueError):
            return {"failed": CANCELLED if self._ended else "its process ended without an answer"}
        return response

    def end(self) -> None:
        """End the process, or let none begin."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.returncode is None:
                self._process.kill()


class LastingChild:
    """A process for one request after the other, of one thread. The first request starts it, and so does one after its
    end. It ends with this process."""

    def __init__(self, module: str):
        self._command = [sys.executable, "-m", module]
        self._process: subprocess.Popen[str] | None = None

    def request(self, content: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        """The response; {"failed": why} if there is none."""
        pipe = subprocess.PIPE
        try:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    self._command, cwd=CODE, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
                )
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            too_late = threading.Timer(within_s, process.kill)
            too_late.start()
            try:
                process.stdin.write(f"{json.dumps(content)}\n")
                process.stdin.flush()
                response: dict[str, Any] = json.loads(process.stdout.readline())
            finally:
                too_late.cancel()
        except (OSError, ValueError):
            return {"failed": f"its process ended, or took more than {within_s:.0f} s"}
        return response


def serve_requests(respond: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Respond to the requests on standard input. This process can write no files from now on, and has 60 s of CPU and
    1 GiB of memory, and loads no pandas. If the machine or the container runs out of memory, it ends before others
    do."""
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
    for request in sys.stdin:
        print(json.dumps(respond(json.loads(request))), flush=True)
        if time.process_time() > CPU_S / 2:
            break  # the next request gets a new process, which has time for it
