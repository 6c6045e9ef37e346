"""What a stop says while it goes on, with real programs that take their time."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from scripts.local import environment
from scripts.local.claim import Claim
from scripts.local.options import parse
from scripts.local.program import Program
from scripts.local.stack import Stack

SLOW = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(3), sys.exit(0)))
open("ready", "w").close()
while True:
    time.sleep(1)
"""
QUICK = """
import time
open("going", "w").close()
time.sleep(600)
"""


@pytest.mark.timeout(120)
def test_a_stop_names_what_has_ended_and_what_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = Claim(tmp_path / "state")
    assert claim.acquire()
    stack = Stack(parse(["--state", str(tmp_path / "state"), "--lake", str(tmp_path / "lake")]), claim)
    programs = [
        Program("spark", [sys.executable, "-c", SLOW], folder=str(tmp_path), grace=20.0),
        Program("producer", [sys.executable, "-c", QUICK], folder=str(tmp_path)),
    ]
    try:
        stack.supervisor.start(programs, environment.shared(os.environ), claim.file.fileno())
        deadline = time.monotonic() + 60
        while not ((tmp_path / "ready").exists() and (tmp_path / "going").exists()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        capsys.readouterr()
    finally:
        stack.down()
        claim.release()
    lines = [re.sub(r"\d+ s", "N s", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "stopping producer, spark ...",
        "producer ended after N s, spark still running",
        "the Spark app finishes its batch and gold: N s at most",
        "spark ended after N s",
    ]
    assert stack.supervisor.processes() == []
