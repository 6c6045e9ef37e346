"""A stop that is over in time, also when the main thread is deep in a library."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import ctypes, os, signal, sys
from spark_app.app.lifecycle import StopRequest
stop = StopRequest()
stop.listen(lambda: os._exit(3), within_s=0.3)
signal.signal(signal.SIGINT, lambda *_: None)  # as a library does
stop.reinstall_signal_handlers()
print("ready", flush=True)
while sys.argv[1] == "deep":
    ctypes.CDLL(None).pause()
stop.requested.wait()
os._exit(4)
"""


def ends(how: str, number: signal.Signals) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2 if how == "deep" else 0)
        process.send_signal(number)
        return process.wait(120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_listens_ends_as_it_likes(number: signal.Signals) -> None:
    assert ends("awake", number) == 4


def test_who_cannot_listen_is_abandoned() -> None:
    assert ends("deep", signal.SIGTERM) == 3
