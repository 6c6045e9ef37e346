"""What people and machines are told: log lines, the status file, exit codes."""

import contextlib
import datetime
import io
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError

from spark_app.app.text import status_lines
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.model import errors
from spark_app.model.causes import CAUSE_HELP, Cause
from spark_app.model.errors import ExitCode, ProtolakeError
from spark_app.model.log import LEVELS, LONGEST_VALUE, Log
from spark_app.model.reports import Report
from spark_app.model.table_names import GOLD, TableNames
from spark_app.units.driver.status import STALE_S, Status, StatusSources, now, problem
from tests.chaos.units import open_lake
from tests.support.examples import examples

ROOT = Path(__file__).parents[3]
PAIR = re.compile(r'([^\s"=]+)=([^\s"=]+|"(?:[^"\\]|\\.)*")')  # of logfmt, without its bare keys
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProtolakeError)]


@given(st.text(max_size=40) | st.sampled_from(["x\n12:00:00.000 ERROR   fake", "\x1b[2J", 'a" b="c', "\u2028", "a\rb"]))
@examples()
def test_a_value_cannot_forge_a_log_line(value: str) -> None:
    line = written(reason=value, table="t")
    assert line.isprintable()
    found = parsed(line)
    assert MOMENT.fullmatch(found.pop("time"))
    assert found == {"level": "INFO", "event": "an event", "reason": value, "table": "t"}


@given(
    st.lists(st.text(max_size=20), max_size=3) | st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2)
)
@examples(0.3)
def test_a_list_of_values_cannot_forge_a_log_line(value: Any) -> None:
    line = written(tables=value)
    assert line.isprintable()
    assert json.loads(parsed(line)["tables"]) == value


def test_lines_of_several_threads_do_not_run_into_each_other() -> None:
    code = """
import threading
from spark_app.model.log import log
def say(name):
    for number in range(300):
        log.info("a line", thread=name, number=number)
threads = [threading.Thread(target=say, args=(name,)) for name in "abcd"]
[one.start() for one in threads]
[one.join() for one in threads]
"""
    unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=unbuffered, cwd=ROOT, capture_output=True, text=True)
    found = [parsed(line) for line in done.stderr.splitlines()]
    assert sorted((one["thread"], int(one["number"])) for one in found) == [(n, i) for n in "abcd" for i in range(300)]


def parsed(line: str) -> dict[str, str]:
    """The pairs of a line that is logfmt and nothing else."""
    pairs = list(PAIR.finditer(line))
    assert " ".join(pair.group() for pair in pairs) == line
    return {key: json.loads(value) if value[0] == '"' else value for key, value in (pair.groups() for pair in pairs)}


HOSTILE = [
    *(
        "x\r\n12:00:00.000 ERROR   fake reason=none",
        "\x1b[2J\x1b]0;title\x07",
        "a\0b",
        "\u202eevil\u2066",
        "\u2028\u2029\x85",
    ),
    *(
        'a" key="b',
        "a key=b",
        "[1, 2",
        '{"a"',
        "[",
        "\\",
        '\\"',
        "=",
        "",
        " ",
        "x" * 10**6,
        '"' * 10**6,
        "\ud800",
        "\x7f\x9b31m",
    ),
]
VALUES = st.text(max_size=40) | st.sampled_from(HOSTILE) | st.integers() | st.none() | st.booleans()


@given(
    st.lists(
        VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=9), VALUES, max_size=2), max_size=4
    )
)
@examples(5)
def test_each_line_parses_into_the_values_that_were_logged(values: list[Any]) -> None:
    line = written(**{f"k{number}": value for number, value in enumerate(values)})
    assert line.isprintable()
    assert len(line) < 100 + len(values) * 12 * LONGEST_VALUE
    found = parsed(line)
    assert [found[f"k{number}"] for number in range(len(values))] == [shown(value) for value in values]


def shown(value: Any) -> str:
    """What the line says of a value: all but text is JSON, and long ones are cut."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def written(**values: Any) -> str:
    """The one line that the log writes for an event."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        Log().info("an event", **values)
    text = out.getvalue()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text[:-1]


def test_a_long_value_is_cut() -> None:
    assert len(written(reason="x" * 10**6)) < LONGEST_VALUE + 100


def test_levels_below_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.level = LEVELS["WARNING"]
    log.info("no")
    log.warning("yes")
    assert "yes" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("state", "reason", "age_s", "words"),
    [
        ("running", None, 0, None),
        ("running", None, STALE_S + 5, "was not updated"),
        ("waiting", "broker b does not answer", 0, "waiting: broker b"),
        ("held", "unit 3 has a gap", 0, "held: unit 3"),
        ("stopped", None, 0, "stopped"),
        ("starting", None, 0, "starting"),
    ],
)
def test_health(state: str, reason: str | None, age_s: float, words: str | None) -> None:
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    found = problem({"state": state, "reason": reason, "updated_at": moment.isoformat()})
    assert found is None if words is None else words in (found or "")


def test_no_status_is_not_healthy() -> None:
    assert problem(None) == "no status yet"


def test_a_status_counts_and_survives_a_restart(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    status = Status(lake, TableNames())
    failed = {"warn": 2, "quarantine": 1}
    report = Report(bronze=5, silver={"a": 3}, quarantine={"expect_failed": 1}, deferred=1)
    report.merge(Report(schema_ids={"a": {"7": 3}}, by_action={"a": failed}, steps={"read": 0.0625}))
    report.merge(Report(steps={"read": 0.0625, "write": 0.00049}))
    status.batch_done(1, report, 0.5)
    status.end("stopped", None, bump=True)
    value = read_json(lake.storage, lake.status)
    assert problem(value) == "stopped: not running"
    assert (value["bronze"], value["deferred"], value["quarantine"]) == (5, 1, {"expect_failed": 1})
    assert value["tables"] == {"a": {"silver": 3, "gold": 0, "schema_ids": {"7": 3}, "failed": failed}}
    assert value["batch"]["steps"] == {"read": 0.125, "write": 0.0}
    again = Status(lake, TableNames())
    # A start that is held looks at no table.
    assert (again.value["bronze"], again.value["tables"]) == (value["bronze"], value["tables"])
    again.set_rows({"bronze_events": 5, "silver_a_events": 3}, {"a": "a"})
    assert (again.value["starts"], again.value["bumps"]) == (2, 1)
    assert (again.value["tables"]["a"]["schema_ids"], again.value["tables"]["a"]["failed"]) == ({"7": 3}, failed)


@pytest.mark.parametrize(("ends", "lines"), [("by a kill", 1), ("stopped", 0), ("held", 0)])
def test_a_start_after_a_kill_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str, lines: int
) -> None:
    lake = open_lake(tmp_path)
    status = Status(lake, TableNames())
    status.start()
    status.batch_done(1, Report(), 0.5)
    status.end("held" if ends == "by a kill" else ends, None)
    if ends == "by a kill":  # what it wrote before
        write_quickly(lake.storage, lake.status, status.value | {"state": "running"}, None)
    capsys.readouterr()
    again = Status(lake, TableNames())
    again.start()
    again.end("stopped", None)
    assert capsys.readouterr().err.count("the last run was killed") == lines


def test_the_age_of_a_batch_is_that_of_its_newest_record(tmp_path: Path) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    status.batch_done(1, Report(newest=round((time.time() - 7200) * 1e6)), 0.1)
    assert 7200 <= status.value["age_s"] < 7300


def test_a_status_of_an_earlier_release_has_no_rows_by_action(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    old = {"tables": {"a": {"silver": 3, "gold": 1, "schema_ids": {}}}, "starts": 1}
    write_quickly(lake.storage, lake.status, old, step=None)
    status = Status(lake, TableNames())
    status.set_rows({"silver_a_events": 3}, {"a": "a"})
    status.batch_done(1, Report(bronze=2, silver={"a": 1}, dropped=1, by_action={"a": {"drop": 1}}), 0.1)
    assert status.value["tables"]["a"] == {"silver": 4, "gold": 0, "schema_ids": {}, "failed": {"drop": 1}}


def test_a_reason_goes_with_its_cause_and_with_no_other(tmp_path: Path) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    status.waiting("broker b: there is no topic t")
    status.waiting("registry r: refused")
    status.end_wait("broker b: there is no topic t")
    assert (status.value["state"], status.value["reason"]) == ("waiting", "registry r: refused")
    status.end_wait("registry r: refused")
    assert (status.value["state"], status.value["reason"]) == ("starting", None)


def test_people_read_a_status_without_values_of_python(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    status = Status(lake, TableNames())
    assert not re.search("None|[{}]", "\n".join(status_lines(status.value)))
    report = Report(bronze=5_000, silver={"a": 3}, quarantine={"frame_short": 1_000}, schema_ids={"a": {"7": 3}})
    status.batch_done(1, report, 0.5)
    status.gold_done(GOLD, {}, {"gold_a_player_agg": "its silver is damaged"})
    status.end("stopped", None)
    lines = status_lines(read_json(lake.storage, lake.status))
    assert any(line.startswith("last batch  5,000 records in 0.5 s at 20") for line in lines)
    assert "quarantine  1,000 open (frame_short 1,000)" in lines
    assert "lost        0 offsets in 0 ranges, accepted" in lines
    assert "gold        gold_a_player_agg failed, and is recomputed later: its silver is damaged" in lines
    assert lines[-2].split() == ["table", "silver", "rows", "gold", "rows", "schema", "versions"]
    assert lines[-1].split() == ["a", "3", "0", "id", "7", "3"]
    assert status_lines(None) == []
    assert status_lines(None, "http://p/") == ["page        http://p/"]
    assert status_lines(status.value, "http://p/")[1] == "page        http://p/"


def test_rows_that_fail_expectations_are_counted_by_expectation(tmp_path: Path) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    status.set_quarantine({"frame_short": 1, "dropped": 4})
    rules = {"known": [7, 3], "high": [10, 0]}
    status.batch_done(
        1, Report(bronze=10, silver={"a": 5}, dropped=5, expectations={"a": rules, "b": {"high": [1, 1]}}), 1
    )
    status.recovered(Report(bronze=2, silver={"a": 2}), {"dropped": 2})
    lines = status_lines(status.value)
    assert "quarantine  1 open (frame_short 1)" in lines
    assert lines[lines.index("dropped     7 by expectations") + 1 :][:2] == [
        "expectation high: 1 of 12 rows fail",
        "expectation known: 3 of 10 rows fail",
    ]


def test_deferred_rows_are_counted_down(tmp_path: Path) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    status.batch_done(1, Report(bronze=5, deferred=5), 0.1)
    status.deferred_done(Report(bronze=5, deferred=2, silver={"a": 3}, schema_ids={"a": {"7": 3}}))
    assert (status.value["deferred"], status.value["bronze"], status.value["tables"]["a"]["silver"]) == (2, 5, 3)


def test_what_a_replay_resolved_is_no_longer_in_quarantine(tmp_path: Path) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    status.batch_done(1, Report(bronze=6, quarantine={"route_refused": 3, "route_cap": 3}), 0.1)
    status.recovered(Report(bronze=4, silver={"a": 4}), {"route_refused": 3, "route_cap": 1})
    assert (status.value["quarantine"], status.value["tables"]["a"]["silver"]) == ({"route_cap": 2}, 4)
    status.recovered(Report(bronze=2, quarantine={"route_cap": 1}, deferred=1), {})
    assert (status.value["quarantine"], status.value["deferred"]) == ({"route_cap": 3}, 1)


def test_a_full_disk_does_not_end_the_status_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = open_lake(tmp_path)
    status = Status(lake, TableNames())
    lake.path(lake.status).mkdir()  # nothing can be renamed onto it
    failed = threading.Event()
    write = status._write

    def count() -> None:
        try:
            write()
        except OSError:
            failed.set()
            raise

    status._write = count  # type: ignore[method-assign]
    status.start()
    assert failed.wait(60)
    lake.path(lake.status).rmdir()
    status.end("stopped", None)
    assert read_json(lake.storage, lake.status)["state"] == "stopped"
    assert "status.json could not be written" in capsys.readouterr().err


def test_two_things_that_are_waited_for_by_turns_are_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = Status(open_lake(tmp_path), TableNames())
    for number in range(20):
        for reason in ("broker b does not answer", f"no space left at /lake ({number} MiB free)"):
            status.waiting(reason)
            assert status.value["reason"] == reason
    assert capsys.readouterr().err.count("waiting") == 2


def test_moments_are_utc() -> None:
    assert datetime.datetime.fromisoformat(now()).utcoffset() == datetime.timedelta(0)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind: type[ProtolakeError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what, where, what next")))
    assert (type(again), str(again), again.exit_code) == (kind, "what, where, what next", kind.exit_code)


def test_exit_codes_are_those_of_sysexits() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "USAGE": 64,
        "LOSS": 65,
        "UNREACHABLE": 69,
        "BUG": 70,
        "NO_SPACE": 73,
        "BUMP": 75,
        "CONFIGURATION": 78,
    }
    assert [code.value for code in ExitCode if code.held] == [64, 65, 78]


@pytest.mark.parametrize("code", ExitCode, ids=lambda code: code.name)
def test_every_exit_code_is_used(code: ExitCode) -> None:
    source = "".join(path.read_text() for path in (ROOT / "spark_app").rglob("*.py") if path.name != "errors.py")
    assert f"ExitCode.{code.name}" in source or any(kind.exit_code is code for kind in ERRORS)


def test_every_cause_is_explained_and_used() -> None:
    assert set(CAUSE_HELP) == set(Cause)
    app = ROOT / "spark_app"
    source = "".join(p.read_text() for p in app.rglob("*.py") if p.name != "causes.py" and p.parent.name != "audit")
    assert [cause for cause in Cause if f"Cause.{cause.name}" not in source] == []


def test_the_status_goes_on_when_what_it_reads_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path)
    monkeypatch.setattr("spark_app.units.driver.status.EVERY_S", 0.01)
    asked, back = threading.Semaphore(0), threading.Event()

    def lag() -> int:
        if back.is_set():
            return 7
        asked.release()
        raise Py4JNetworkError("Answer from Java side is empty")

    status = Status(lake, TableNames(), StatusSources(lag))
    status.start()
    assert all(asked.acquire(timeout=60) for _ in range(3))
    back.set()
    for _ in range(1000):
        if (read_json(lake.storage, lake.status) or {}).get("lag") == 7:
            break
        threading.Event().wait(0.01)
    status.end("stopped", None)
    assert read_json(lake.storage, lake.status)["lag"] == 7
