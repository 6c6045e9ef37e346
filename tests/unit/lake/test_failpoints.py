"""Each durable step has a point before and after it, and none can be met by accident."""

import ast
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.lake.files import failpoints

APP = Path(__file__).parents[3] / "spark_app"
DELTA = {"create_from_unit", "append_unit", "begin_by_rows", "replace_rows", "renew_by_unit", "write_deltalake"}
DELTA |= {"add_columns", "set_table_properties", "replace_files", "vacuum", "cleanup_metadata", "execute"}
DELTA.add("commit_rows")
WRITERS = {"write_durably", "write_quickly"}  # the step is their fourth argument


def calls() -> Iterator[tuple[str, ast.Call, list[ast.expr]]]:
    """(place, call, the steps of the `around` blocks that it is in) of the whole app."""
    for path in sorted(APP.rglob("*.py")):
        yield from _calls(ast.parse(path.read_text()), path.relative_to(APP).as_posix(), [])


def _calls(node: ast.AST, where: str, within: list[ast.expr]) -> Iterator[tuple[str, ast.Call, list[ast.expr]]]:
    if isinstance(node, ast.With):
        within = within + [step for item in node.items for step in _steps(item.context_expr)]
    if isinstance(node, ast.Call):
        yield f"{where}:{node.lineno}", node, within
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, where, within)


def _steps(context: ast.expr) -> list[ast.expr]:
    return [c.args[0] for c in ast.walk(context) if isinstance(c, ast.Call) and ast.unparse(c.func).endswith("around")]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _is_delta(call: ast.Call) -> bool:
    module_of_ours = isinstance(call.func, ast.Name) and call.func.id == "execute"
    statement = _name(call) == "execute" and bool(call.args)  # DuckDB's; that of a merge has no arguments
    return _name(call) in DELTA and not module_of_ours and not statement


def test_every_commit_is_between_two_points() -> None:
    assert [where for where, call, within in calls() if _is_delta(call) and not within] == []
    assert sum(_is_delta(call) for _, call, _ in calls()) >= 8


def test_every_file_that_must_last_names_its_step() -> None:
    """Or says, with None, that the app goes on correctly without it."""
    for where, call, _ in calls():
        if _name(call) in WRITERS:
            given = [*call.args[3:4], *(k.value for k in call.keywords if k.arg == "step")]
            assert len(given) == 1, where


OTHER_UNITS = ("loss", "renew", "resume", "takeover")


def test_the_listed_steps_are_those_of_the_code() -> None:
    found = {ast.unparse(step) for _, _, within in calls() for step in within}
    for _, call, _ in calls():
        named = [k.value for k in call.keywords if k.arg == "step"]
        if _name(call) in WRITERS:
            found |= {ast.unparse(a) for a in [*call.args[3:4], *named]}
        elif _name(call) == "SpooledTable":
            found |= set(map(ast.unparse, named))
    literal = {ast.literal_eval(text) for text in found if re.fullmatch(r"'[^']*'", text)}
    assert literal == {step for step in failpoints.STEPS if step.split(".")[0] not in (*failpoints.UNITS, *OTHER_UNITS)}
    assert found - {repr(step) for step in literal} == {
        "f'{manifest.kind}.manifest'",
        "_step(manifest, name)",
        "step",
        "self._step",
        "None",
    }


DIES = """
import sys
from pathlib import Path
from spark_app.lake.files import failpoints
failpoints.arm(sys.argv[1])
with failpoints.around("ledger"):
    Path(sys.argv[1], "done").touch()
"""


@pytest.mark.parametrize(
    ("allowed", "listed", "code", "done", "left"),
    [
        ("on", ["ledger.before", "tables.before"], -signal.SIGKILL, False, ["tables.before"]),
        ("on", ["ledger.after"], -signal.SIGKILL, True, []),
        ("on", ["tables.after"], 0, True, ["tables.after"]),
        ("on", None, 0, True, None),
        ("yes", ["ledger.before"], 0, True, ["ledger.before"]),
        (None, ["ledger.before"], 0, True, ["ledger.before"]),
    ],
)
def test_a_point_needs_both_keys_and_is_met_once(
    tmp_path: Path, allowed: str | None, listed: list[str] | None, code: int, done: bool, left: list[str] | None
) -> None:
    file = tmp_path / failpoints.FILE
    file.parent.mkdir()
    if listed is not None:
        file.write_text(json.dumps(listed))
    env = {} if allowed is None else {failpoints.ALLOWED: allowed}
    command = [sys.executable, "-c", DIES, str(tmp_path)]
    assert subprocess.run(command, cwd=APP.parent, env=env, timeout=60).returncode == code
    assert (tmp_path / "done").exists() == done
    assert (json.loads(file.read_text()) if file.exists() else None) == left


def test_a_point_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / failpoints.FILE
    file.parent.mkdir()
    file.write_text('["ledger"]')
    env = {failpoints.ALLOWED: "on"}
    command = [sys.executable, "-c", DIES, str(tmp_path)]
    done = subprocess.run(command, cwd=APP.parent, env=env, timeout=60, capture_output=True, text=True)
    assert "names unknown failpoints: ledger" in done.stderr
