"""The faked wall clock of the scenario `clocks`: in a process of its own, for it must be loaded before all else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.scenarios.clocks import DAY_S, SOURCE

pytestmark = pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="needs Linux and cc")

# A client of Kafka waits in threads, until times of day. It knows no broker, so all that it can do is wait.
PROGRAM = """
import json, os, sys, time
from confluent_kafka import Consumer

def jump(seconds):
    with open(os.environ["CAMPAIGN_CLOCK"], "w") as clock:
        clock.write(str(seconds))
    time.sleep(0.1)

def work():
    return sum(os.times()[:2])

def look():
    before, began = work(), time.monotonic()
    client.poll(0.5)
    return {"off_s": time.time() - honest(), "waited_s": time.monotonic() - began, "cpu_s": work() - before}

honest_at, began_at = time.time(), time.monotonic()
honest = lambda: honest_at + time.monotonic() - began_at
client = Consumer({"bootstrap.servers": "", "group.id": "nobody"})
seen = []
for seconds in map(int, sys.argv[1:]):
    jump(seconds)
    seen.append(look())
print(json.dumps(seen))
os._exit(0)
"""


def test_waits_go_by_the_faked_clock(tmp_path: Path) -> None:
    library, clock = tmp_path / "clock.so", tmp_path / "clock"
    clock.write_text("0")
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2"]
    subprocess.run(["cc", *flags, "-o", library, SOURCE, "-ldl"], check=True)
    jumps = [0, DAY_S, -DAY_S, 0]
    faked = {"LD_PRELOAD": str(library), "CAMPAIGN_CLOCK": str(clock)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, jumps)],
        env=os.environ | faked,
        capture_output=True,
        timeout=120,
        check=True,
    )
    for seconds, seen in zip(jumps, json.loads(done.stdout), strict=True):
        assert abs(seen["off_s"] - seconds) < 5
        assert seen["waited_s"] > 0.4
        assert seen["cpu_s"] < seen["waited_s"] / 2
