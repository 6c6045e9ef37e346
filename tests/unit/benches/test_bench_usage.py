"""CPU time is counted of every process below a command, whoever waits for it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.benches import usage
from scripts.local.artifacts import ROOT

BURN = """
import os, signal, sys, time

def burn(seconds):
    while time.process_time() < seconds:
        pass
"""
# What each burns is counted once, wherever it falls.
WAITED = BURN + "burn(0.2)\nif os.fork() == 0:\n    burn(0.4)\n    os._exit(0)\nos.wait()"
ORPHAN = BURN + "if os.fork() == 0:\n    time.sleep(0.2)\n    burn(0.6)\n    os._exit(0)"
IGNORED = BURN + (
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif os.fork() == 0:\n    burn(0.6)\n    time.sleep(1)\n"
    "    os._exit(0)\ntry:\n    os.wait()\nexcept ChildProcessError:\n    pass"
)


@contextmanager
def _reaped(folder: Path) -> Iterator[usage.Meter]:
    yield usage.Reaped(folder)


@pytest.fixture(params=["best", "rusage"])
def meter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[usage.Meter]:
    with usage.meter() if request.param == "best" else _reaped(tmp_path) as found:
        yield found


@pytest.mark.parametrize("program", [WAITED, ORPHAN, IGNORED], ids=["waited", "orphan", "ignored"])
def test_what_every_process_below_used_is_counted_once(meter: usage.Meter, program: str) -> None:
    subprocess.run(meter.command([sys.executable, "-c", program]), check=True, cwd=ROOT)
    assert 0.55 < meter.cpu_seconds() < 1.1


def test_a_meter_ends_as_its_command_did(meter: usage.Meter) -> None:
    done = subprocess.run(meter.command([sys.executable, "-c", "raise SystemExit(65)"]), check=False, cwd=ROOT)
    assert done.returncode == 65


def test_a_command_that_runs_has_an_account_and_a_pid(meter: usage.Meter) -> None:
    program = BURN + "burn(0.4)\nprint(os.getpid(), flush=True)\nsys.stdin.read()"
    command = meter.command([sys.executable, "-c", program])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = int(process.stdout.readline())
        assert meter.pid(process.pid) == said
        assert 0.35 < meter.so_far(process.pid) < 0.8


def test_nothing_stays_of_a_meter() -> None:
    with usage.meter() as found:
        subprocess.run(found.command(["true"]), check=True, cwd=ROOT)
        place = found.folder if isinstance(found, usage.Cgroup) else found._cpu_file.parent  # type: ignore[attr-defined]
        assert place.exists()
    assert not place.exists()


def test_an_error_of_what_is_measured_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the topic's file"), usage.meter():
        raise FileNotFoundError("the topic's file")


def test_a_process_that_only_the_cgroup_knows_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "LEFT_S", 0.1)
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "cgroup.procs").write_text(f"{gone.pid}\n")
    usage.Cgroup(tmp_path).remove()
    assert tmp_path.exists()
