"""How the session is configured, as far as that needs no JVM."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from scripts.local.artifacts import ROOT
from spark_app.settings.models import Settings
from spark_app.units.spark import options

SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.parametrize(
    ("mode", "length", "held"),
    [(0o700, 50, "true"), (0o700, 90, "false"), (0o750, 50, "false"), (0o777, 50, "false")],
    ids=["private", "too long for a socket's path", "open to a group", "open to all"],
)
def test_sockets_are_only_where_nobody_else_can_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, length: int, held: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("t" * length)
    folder.mkdir()
    folder.chmod(mode)
    assert options.of(Settings(), folder)[SOCKETS] == held
    assert list(folder.iterdir()) == []


def test_a_temporary_folder_that_is_missing_is_left_to_spark(tmp_path: Path) -> None:
    assert options.of(Settings(), tmp_path / "missing")[SOCKETS] == "false"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="the kernel is asked by setpriv")
def test_what_stands_for_the_jvm_dies_with_its_python() -> None:
    """A JVM that hangs does not see that its standard input has ended, and `sleep` does not look at it."""
    start = (
        "from spark_app.units.spark import launcher; import time;"
        "print(launcher.of('').popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", start], cwd=ROOT, stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout
        pid = int(python.stdout.readline())
        deadline = time.monotonic() + 60
        while not sleeps(pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        python.kill()
    while sleeps(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sleeps(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return bool(process.name() == "sleep" and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
