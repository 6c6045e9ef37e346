"""Runs scenarios in parallel: each in its own process, on its own servers. A scenario mostly waits for one app, which
keeps one core busy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scripts.local.artifacts import ROOT
from tests.chaos.options import Options, of_one


def play(options: Options, note: Callable[[str, float], None] = lambda name, seconds: None) -> list[str]:
    """Run all; returns the names of those that did not exit with 0. `note` gets the others and their seconds. An
    interruption ends them all."""
    running: list[subprocess.Popen[bytes]] = []

    def play_one(name: str) -> int:
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "tests.chaos", *of_one(options, name)], cwd=ROOT)
        running.append(process)
        if not process.wait():
            note(name, time.monotonic() - began)
        return process.returncode

    pool = ThreadPoolExecutor(options.lanes)
    codes = {name: pool.submit(play_one, name) for name in options.names}
    try:
        return [name for name, code in codes.items() if code.result()]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
