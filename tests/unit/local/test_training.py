"""Training the class archive beside the first run: what surrounds the app's own part of it, which scripts stand for."""

import os
import sys
import time
from pathlib import Path

import pytest

from scripts.local import environment
from scripts.local.artifacts import ROOT
from scripts.local.java import Java
from scripts.local.training import ARCHIVE, Training, train


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run instead of this Python: a script to be filled in."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def _fill(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)


def test_an_archive_is_trained_once(tmp_path: Path, other_python: Path) -> None:
    archive = tmp_path / "spark.jsa"
    _fill(other_python, f'echo "$@" >> "{tmp_path}/calls"; echo classes > "$PROTOLAKE_SPARK__CLASS_ARCHIVE"')
    for _ in range(2):
        train({ARCHIVE: str(archive)}, tmp_path / "log")
    assert archive.read_text() == "classes\n"
    assert (tmp_path / "calls").read_text() == "-m spark_app.app.training\n"


def test_who_has_no_archive_trains_none(tmp_path: Path, other_python: Path) -> None:
    train({"PROTOLAKE_LAKE__PATH": str(tmp_path)}, tmp_path / "log")  # the script is not there: running it would fail


def test_a_training_that_failed_stops_nobody_and_is_repeated_only_when_its_code_has_changed(
    tmp_path: Path, other_python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, log = tmp_path / "archives" / "spark.jsa", tmp_path / "log"
    archive.parent.mkdir()
    failing = 'echo half > "$PROTOLAKE_SPARK__CLASS_ARCHIVE"; echo "no Java" >&2; exit 3'
    _fill(other_python, f'echo once >> "{tmp_path}/calls"; {failing}')
    for _ in range(2):
        train({ARCHIVE: str(archive)}, log)
    assert sorted(os.listdir(archive.parent)) == ["spark.failed", "spark.lock"]
    assert (tmp_path / "calls").read_text() == "once\n"
    said = capsys.readouterr().err
    assert f"so starts take longer: no Java (exit code 3, log: {log}); to try again, delete " in said
    changed = (ROOT / "spark_app" / "app" / "training.py").stat().st_mtime
    os.utime(archive.with_suffix(".failed"), (changed - 1, changed - 1))
    train({ARCHIVE: str(archive)}, log)
    assert (tmp_path / "calls").read_text() == "once\n" * 2


def test_a_training_that_writes_nothing_has_failed(tmp_path: Path, other_python: Path) -> None:
    _fill(other_python, "exit 0")
    train({ARCHIVE: str(tmp_path / "spark.jsa")}, tmp_path / "log")
    assert (tmp_path / "spark.failed").exists()


def test_a_training_that_hangs_is_ended(tmp_path: Path, other_python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _fill(other_python, f'echo $$ > "{tmp_path}/pid"; exec sleep 600')
    training = Training({ARCHIVE: str(tmp_path / "spark.jsa")}, tmp_path / "log", still_s=2.0)
    while training.step():
        time.sleep(0.1)
    assert "it made no progress for 2 s" in capsys.readouterr().err
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_two_stacks_train_one_archive(tmp_path: Path, other_python: Path) -> None:
    _fill(other_python, f'echo once >> "{tmp_path}/calls"; exec sleep 600')
    app = {ARCHIVE: str(tmp_path / "spark.jsa")}
    first, second = Training(app, tmp_path / "log"), Training(app, tmp_path / "log2")
    try:
        assert [first.step(), second.step(), second.step()] == [True, True, True]
        assert not (tmp_path / "log2").exists()
        first.end()
        assert not (tmp_path / "spark.failed").exists()  # a stop is no failure
        assert second.step()
        assert (tmp_path / "log2").exists()
    finally:
        first.end()
        second.end()


def test_jars_that_were_installed_anew_have_another_archive(tmp_path: Path) -> None:
    home, jars = tmp_path / "java", tmp_path / "jars"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    jars.mkdir()
    (jars / "a.jar").touch()
    before = environment.class_archive(Java(home, 25, "25.0.2"), jars)
    assert before == environment.class_archive(Java(home, 25, "25.0.2"), jars)
    os.utime(jars / "a.jar", (0, 0))
    assert before != environment.class_archive(Java(home, 25, "25.0.2"), jars)
