"""The scripts of single commands: they take the lake, and become the app's command."""

import subprocess
from pathlib import Path

import pytest

from scripts.local import command
from scripts.local.artifacts import ROOT
from scripts.local.bump import note
from scripts.local.command import lake_variable
from scripts.local.options import parse


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


def test_any_command_of_the_app_can_be_run() -> None:
    assert run("protolake", "--version").stdout.startswith("protolake ")
    assert "--available-now" in run("protolake", "run", "--help").stdout


@pytest.mark.parametrize("form", ["--settings {}", "--settings={}"])
def test_a_settings_file_may_name_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.delenv("PROTOLAKE_LAKE__PATH", raising=False)
    file = tmp_path / "mine.toml"
    file.write_text('[lake]\npath = "/lakes/orders"\n')
    arguments = ["status", *form.format(file).split()]
    assert lake_variable(arguments) == {"PROTOLAKE_LAKE__PATH": "/lakes/orders"}
    assert lake_variable(["settings", "--check", str(file)]) == {"PROTOLAKE_LAKE__PATH": "/lakes/orders"}
    monkeypatch.setattr(command, "STATE", tmp_path)
    assert lake_variable(["status"]) == {"PROTOLAKE_LAKE__PATH": str(ROOT / "lake")}
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", "/lakes/other")
    assert lake_variable(arguments) == {"PROTOLAKE_LAKE__PATH": "/lakes/other"}


def test_a_command_takes_the_lake_of_the_stack_that_was_started_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PROTOLAKE_LAKE__PATH", raising=False)
    monkeypatch.setattr(command, "STATE", tmp_path)
    of_clone, of_stack = ({"PROTOLAKE_LAKE__PATH": str(path)} for path in (ROOT / "lake", tmp_path / "orders"))
    assert lake_variable(["audit"]) == of_clone
    (tmp_path / "run").mkdir()
    note(parse(["--state", str(tmp_path), "--lake", str(tmp_path / "orders")]))
    assert lake_variable(["audit"]) == of_stack
    assert capsys.readouterr().err.startswith(f"audit: the lake {tmp_path}/orders of the stack")
    assert lake_variable(["audit", "--lake", "elsewhere"]) == lake_variable(["run"]) == of_clone
    note(parse(["--state", str(tmp_path)]))
    assert lake_variable(["audit"]) == of_clone
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["lake = 3", "[lake]\npath = 3", "no toml", None])
def test_the_command_itself_refuses_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("PROTOLAKE_LAKE__PATH", raising=False)
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text)
    assert lake_variable(["status", "--settings", str(file)]) == {}
