"""The wheel that `pip install .` makes: it has the command and all that the app reads beside its code."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from spark_app.lake.lake import Lake
from spark_app.page.files import make_folders
from tests.support.pages import first_view

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


def test_the_command_runs_without_the_clone(installed: Path, tmp_path: Path) -> None:
    [points] = installed.glob("*.dist-info/entry_points.txt")
    assert "protolake = spark_app.__main__:main" in points.read_text()
    command = [sys.executable, "-c", "from spark_app.__main__ import main; main()", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True)
    [metadata] = installed.glob("*.dist-info/METADATA")
    version = next(line.split()[1] for line in metadata.read_text().splitlines() if line.startswith("Version:"))
    assert (done.stdout, done.returncode) == (f"protolake {version}\n", 0), done.stderr


def test_a_kind_of_sink_of_another_package_finds_the_protocol(installed: Path, tmp_path: Path) -> None:
    example = ROOT / "docs" / "examples" / "sinks"
    code = """if True:
        import json, sqlite3
        from protolake.sinks.testing import check
        from sqlite_sink import SqliteSink
        rows = lambda: [json.loads(row) for [row] in sqlite3.connect("rows.db").execute("SELECT row FROM rows")]
        check(SqliteSink, {"path": "rows.db"}, rows)"""
    path = f"{installed}:{example}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_page_of_the_wheel_has_its_views(installed: Path, tmp_path: Path) -> None:
    lake, here = Lake(tmp_path / "lake"), tmp_path / "here"
    make_folders(lake)
    here.mkdir()
    command = [sys.executable, "-c", "from spark_app.__main__ import main; main()", "page"]
    answer = first_view(command, {"PYTHONPATH": str(installed)}, here, lake)
    assert (answer.status_code, "Protolake" in answer.text) == (200, True)
    assert list(here.iterdir()) == []


def test_every_file_that_is_no_code_is_there_too(installed: Path) -> None:
    ours = {
        path.relative_to(ROOT) for path in (ROOT / "spark_app").rglob("*") if path.suffix in (".properties", ".proto")
    }
    assert len(ours) == 2
    assert [path for path in ours if not (installed / path).is_file()] == []
