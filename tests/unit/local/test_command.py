"""The scripts of single commands: they take the lake, and become the app's command."""

import subprocess
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ROOT / "scripts" / script, *arguments], capture_output=True, text=True, timeout=120)


def test_status_of_a_lake_that_is_named(tmp_path: Path) -> None:
    done = run("status", "--lake", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "not healthy: no status yet\n")


def test_settings_shows_those_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_TABLES__MAX_TABLES", "7")
    done = run("settings", "--lake", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "tables.max_tables = 7\n" in done.stdout
    assert f"lake.path = {str(tmp_path)!r}\n" in done.stdout
