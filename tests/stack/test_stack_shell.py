"""`protolake shell` with SQL or Python of an option, a file or standard input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


def test_sql_and_python_run_and_end(new_stage: Callable[..., Stage], tmp_path: Path) -> None:
    stage = new_stage()
    stage.produce(30)
    assert stage.drain() == [ExitCode.DONE]
    file = tmp_path / "count.sql"
    file.write_text("select count(*) as rows\n  from bronze_events;\nselect ';' as mark;\n")
    for arguments, stdin in ((["-c", "select count(*) as rows from bronze_events"], ""), ([str(file)], ""), ([], file)):
        done = stage.command("shell", *arguments, stdin=stdin.read_text() if isinstance(stdin, Path) else stdin)
        assert (done.returncode, "|30  |" in done.stdout) == (ExitCode.DONE, True), (done.stdout, done.stderr)
    done = stage.command("shell", stdin="for name in tables():\n    print('table', name)\nprint('end')\n")
    assert "table bronze_events\n" in done.stdout
    assert done.stdout.endswith("end\n")
    done = stage.command("shell", "-c", "select * from no_table")
    assert (done.returncode, "TABLE_OR_VIEW_NOT_FOUND" in done.stderr) == (ExitCode.USAGE, True), done.stderr
    assert done.stderr.count("\n\tat ") == 0
    done = stage.command("shell", "-c", "drop view bronze_events")
    assert (done.returncode, "read-only" in done.stderr) == (ExitCode.USAGE, True)
