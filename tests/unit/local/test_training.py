"""Training the class archive before the first run: what surrounds the app's own part of it, which scripts stand for."""

import os
import sys
from pathlib import Path

import pytest

from scripts.local import environment, training
from scripts.local.java import Java


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
        training.train({training.ARCHIVE: str(archive)})
    assert archive.read_text() == "classes\n"
    assert (tmp_path / "calls").read_text() == "-m spark_app.app.training\n"


def test_who_has_no_archive_trains_none(tmp_path: Path, other_python: Path) -> None:
    training.train({"PROTOLAKE_LAKE__PATH": str(tmp_path)})  # the script is not there: running it would fail


def test_a_training_that_fails_stops_nobody_and_leaves_nothing(
    tmp_path: Path, other_python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archives" / "spark.jsa"
    archive.parent.mkdir()
    _fill(other_python, 'echo half > "$PROTOLAKE_SPARK__CLASS_ARCHIVE"; echo "no Java" >&2; exit 3')
    training.train({training.ARCHIVE: str(archive)})
    assert os.listdir(archive.parent) == ["spark.lock"]
    assert "the class archive was not written, so starts take longer: no Java (exit code 3)" in capsys.readouterr().err


def test_a_training_that_hangs_is_ended(
    tmp_path: Path, other_python: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "LONGEST_S", 1.0)
    _fill(other_python, "exec sleep 60")
    training.train({training.ARCHIVE: str(tmp_path / "spark.jsa")})
    assert "it was not written in 1 s" in capsys.readouterr().err


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
