"""prepare.sh as every script sources it, in a folder of its own, with a uv that installs nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.errors import CONFIGURATION

SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/local/prepare.sh"
prepare
echo prepared
"""
UV = """#!/bin/sh
[ "$1" = --version ] && exit 0
echo $$ >>"$UV_CALLS"
echo "Installed 2 packages in 1ms" >&2
echo " + a==1" >&2
while [ -e "$UV_CALLS.hold" ]; do sleep 0.05; done
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of which nothing is prepared yet."""
    root = tmp_path / "a clone"
    (root / "scripts" / "local").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "local" / "prepare.sh", root / "scripts" / "local")
    (root / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:0\nb==2\n")
    for path, text in {root / "scripts" / "run": SCRIPT, tmp_path / "bin" / "uv": UV}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PROTOLAKE_PYTHON", sys.executable)
    return root


def start(checkout: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [checkout / "scripts" / "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(checkout: Path) -> "tuple[int, str]":
    script = start(checkout)
    try:
        _, said = script.communicate(timeout=120)
    finally:
        end(script)
    return script.returncode, said


def end(script: "subprocess.Popen[str]") -> None:
    if script.poll() is None:
        os.killpg(script.pid, signal.SIGKILL)
        script.wait()


@pytest.fixture
def held(checkout: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A script that is at its work of installing, until `calls.hold` is removed."""
    hold = tmp_path / "calls.hold"
    hold.touch()
    script = start(checkout)
    try:
        while not (tmp_path / "calls").exists():
            assert script.poll() is None, script.communicate()
            time.sleep(0.05)
        yield script
    finally:
        hold.unlink(missing_ok=True)
        end(script)


def test_it_prints_what_it_does_and_is_done_once(checkout: Path, tmp_path: Path) -> None:
    code, said = run(checkout)
    assert code == 0, said
    assert "preparing .venv: 2 packages" in said
    assert "Installed 2 packages" in said
    assert "a==1" not in said
    assert run(checkout) == (0, "")
    assert len((tmp_path / "calls").read_text().split()) == 1


def test_bytecode_is_kept_where_the_environment_forbids_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = checkout / "scripts" / "run"
    script.write_text(SCRIPT + "exec \"$PYTHON\" -c 'import sys; print(sys.dont_write_bytecode)'\n")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = subprocess.run([script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "prepared\nFalse\n"), done.stderr


@pytest.mark.parametrize("kind", ["a file", "a folder that takes nothing"])
def test_a_cache_that_cannot_be_written_is_named(checkout: Path, kind: str) -> None:
    cache = checkout / ".cache"
    if kind == "a file":
        cache.touch()
    else:
        if not Path("/proc/self").exists():
            pytest.skip("no folder in which not even root may write")
        cache.symlink_to("/proc")
    code, said = run(checkout)
    assert code == CONFIGURATION
    assert said.startswith(f"run: cannot write {checkout}/.cache/preparing (")
    assert said.count("\n") == 1


@pytest.mark.parametrize("pid", ["", f"{os.getppid()}\n"], ids=["without a pid", "with the pid of another program"])
def test_what_a_killed_script_left_behind_is_no_lock(checkout: Path, pid: str) -> None:
    (checkout / ".cache" / "prepare.lock").mkdir(parents=True)  # as it was made once
    (checkout / ".cache" / "prepare.lock" / "pid").write_text(pid)
    (checkout / ".cache" / "preparing").write_text(pid)
    assert run(checkout)[0] == 0


def test_a_second_script_prints_for_whom_it_waits_and_installs_nothing(
    checkout: Path, tmp_path: Path, held: "subprocess.Popen[str]"
) -> None:
    second = start(checkout)
    try:
        assert second.stderr
        assert second.stderr.readline() == f"process {held.pid} is preparing .venv: waiting for it ...\n"
        (tmp_path / "calls.hold").unlink()
        assert second.communicate(timeout=60)[0] == "prepared\n"
    finally:
        end(second)
    assert len((tmp_path / "calls").read_text().split()) == 1


def test_a_killed_script_whose_installer_lives_on_is_waited_for(
    checkout: Path, tmp_path: Path, held: "subprocess.Popen[str]"
) -> None:
    os.kill(held.pid, signal.SIGKILL)
    held.wait()
    second = start(checkout)
    try:
        assert second.stderr
        assert "waiting for it" in second.stderr.readline()
        (tmp_path / "calls.hold").unlink()
        assert second.communicate(timeout=60)[0] == "prepared\n"
    finally:
        end(second)
