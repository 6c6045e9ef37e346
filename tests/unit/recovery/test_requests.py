"""Requests are files: asked once, answered once, whoever crashes; and what the commands make of answers."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_app.model.errors import UnreachableError
from spark_app.model.table_names import TableNames
from spark_app.recovery import requests, result_text
from spark_app.recovery.requests import MOST_ATTEMPTS, NO_REASON_KNOWN, Request, RequestAttempts
from spark_app.units.driver.status import Status
from tests.chaos.units import open_lake

ROOT = Path(__file__).parents[3]


def test_requests_are_executed_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    assert requests.pending(lake) == []
    asked = [Request("replay", {"causes": ["route_cap"]}, asked_at=2.0), Request("rebuild", {}, True, asked_at=1.0)]
    for request in asked:
        requests.submit(lake, request)
    (lake.path(lake.requests) / f"{asked[0].id}.progress.json").write_text("{}")
    assert requests.pending(open_lake(tmp_path)) == asked[::-1]
    assert requests.take_result(lake, asked[0]) is None
    requests.finish(lake, asked[0], {"resolved": {"a": 1}})
    assert requests.pending(lake) == asked[1:]
    assert requests.take_result(lake, asked[0]) == {"resolved": {"a": 1}}
    assert requests.take_result(lake, asked[0]) is None
    assert [path.name for path in lake.path(lake.requests).iterdir()] == [f"{asked[1].id}.json"]


def test_a_damaged_request_delays_nobody(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    (lake.path(lake.requests) / "abc.json").write_text("{")
    (lake.path(lake.requests) / "abd.json").write_text('{"kind": "replay", "of a newer version": 1}')
    (lake.path(lake.requests) / "abe.json").write_text("[]")
    (lake.path(lake.requests) / "abf.json").write_text("[" * 200_000)
    (lake.path(lake.requests) / "abg.json").mkdir()
    os.mkfifo(lake.path(lake.requests) / "abh.json")  # to open one waits for its writer
    for name, moment in (("abi", "1e999"), ("abj", "NaN"), ("abk", "9" * 400)):
        (lake.path(lake.requests) / f"{name}.json").write_text(
            f'{{"kind": "replay", "arguments": {{}}, "asked_at": {moment}}}'
        )
    typed = {"kind": "replay", "arguments": {}, "dry_run": False, "asked_at": 1.0, "asked_by": "a@b"}
    wrong = {"kind": 1, "arguments": [], "dry_run": "yes", "asked_at": "soon", "asked_by": None}
    for name, value in wrong.items():
        (lake.path(lake.requests) / f"of{name.replace('_', '')}.json").write_text(json.dumps(typed | {name: value}))
    request = Request("replay", {})
    requests.submit(lake, request)
    assert requests.pending(lake) == [request]


def test_a_request_is_answered_under_the_name_of_its_file(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    (lake.path(lake.requests) / "abc.json").write_text('{"kind": "replay", "arguments": {}, "id": "../../other"}')
    (request,) = requests.pending(lake)
    requests.finish(lake, request, {})
    assert [path.name for path in lake.path(lake.requests).iterdir()] == ["abc.result.json"]


def test_answers_that_nobody_reads_are_forgotten(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    for _ in range(requests.KEPT_RESULTS + 5):
        request = Request("replay", {})
        requests.submit(lake, request)
        requests.finish(lake, request, {})
    assert len(list(lake.path(lake.requests).iterdir())) == requests.KEPT_RESULTS
    assert requests.take_result(lake, request) == {}


def test_a_command_waits_as_long_as_there_is_progress(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    request = Request("replay", {})
    requests.submit(lake, request)
    naps = iter(range(10))

    def nap(_: float) -> None:
        threading.Event().wait(0.05)
        number = next(naps)
        if number == 8:
            requests.finish(lake, request, {"resolved": {}})
        else:
            lake.path(requests.key_of(request, "progress")).write_text(str(number))

    assert requests.wait_for_result(lake, request, 0.2, nap) == {"resolved": {}}


def test_a_request_that_nobody_answers_stays_and_is_named(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    request = Request("replay", {})
    requests.submit(lake, request)
    with pytest.raises(UnreachableError, match=rf"{request.id}\.json to cancel it"):
        requests.wait_for_result(lake, request, 0.1)
    assert requests.pending(lake) == [request]


def test_answers_in_words() -> None:
    assert result_text.replay_lines({"candidates": {}}, False) == ["quarantine has no open records"]
    counted = result_text.replay_lines({"candidates": {"route_cap": 2}}, False)
    assert counted[1].split() == ["route_cap", "2", "not", "tried"]
    result = {"candidates": {"route_cap": 1200}, "refused": {"frame_short": 1}, "resolved": {"silver_a": 3}}
    lines = result_text.replay_lines(result | {"waiting": 7}, False)
    assert [line.split()[:3] for line in lines[1:3]] == [["frame_short", "0", "1"], ["route_cap", "1,200", "0"]]
    assert lines[5].split() == ["silver_a", "3"]
    assert lines[-1].startswith("7 stay in quarantine")
    table = dict.fromkeys(result_text.COLUMNS, 0) | {"expected": 5, "added": 4, "differing": 1}
    gold = {"gold_a": {"rows": 2, "differing": 1, "named": ["k"]}}
    rebuilt = {"tables": {"silver_a": table}, "gold": gold, "named": {"silver_a": ["t/0@3 differing"]}}
    text = "\n".join(result_text.rebuild_lines(rebuilt | {"replayable": 2, "skipped": []}, dry_run=False))
    assert "silver_a: the first affected rows\n  t/0@3 differing" in text
    assert "gold_a: the first affected rows\n  k" in text
    assert "2 records in quarantine can be decoded now: protolake replay" in text
    assert text.split("\n")[1].split() == ["silver_a", "5", "0", "4", "1", "0", "0"]


def start(folder: Path, *arguments: str, patience_s: float = 1.0) -> subprocess.Popen[str]:
    """A command on the lake in the folder, which waits that long for the app."""
    settings = folder / "settings.toml"
    settings.write_text(f"[lake]\npath = {json.dumps(str(folder / 'lake'))}\n[run]\nconnect_timeout_s = {patience_s}\n")
    words = [sys.executable, "-m", "spark_app", *arguments, "--settings", str(settings)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("interrupt", [True, False])
def test_a_command_that_waits_in_vain_leaves_its_request(tmp_path: Path, interrupt: bool) -> None:
    lake = open_lake(tmp_path / "lake")
    (lake.root / "bronze_events" / "_delta_log").mkdir(parents=True)
    lake.lease.acquire()
    command = start(tmp_path, "replay", "--cause", "route_cap", patience_s=600.0 if interrupt else 1.0)
    assert command.stderr is not None
    assert "the app runs" in command.stderr.readline()
    if interrupt:
        command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == (130 if interrupt else 69)
    assert [request.arguments["causes"] for request in requests.pending(lake)] == [["route_cap"]]
    assert "to cancel it" in err
    later = start(tmp_path, "rebuild")
    _, err = later.communicate(timeout=60)
    assert re.search(r"executed first.*\nrequested +replay [0-9a-f]+ at 20", err)
    lake.path(lake.status).write_text(json.dumps(Status(lake, TableNames()).value))
    out, _ = start(tmp_path, "status").communicate(timeout=60)
    assert re.search(r"requested +replay .*remove .*\nrequested +rebuild", out)


def test_a_damaged_status_is_reported(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "lake")
    lake.path(lake.status).write_text("{")
    command = start(tmp_path, "status")
    out, _ = command.communicate(timeout=60)
    assert (command.returncode, f"{lake.path(lake.status)} is damaged" in out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words_said"),
    [
        (["replay", "--offsets", "5"], 64, "'5' is not FIRST:END"),
        (["replay", "--since", "yesterday"], 64, "--since: 'yesterday' is not an ISO 8601"),
        (["replay", "--cause", "nonsense"], 64, "--cause"),
        (["rebuild", "--no-such-option"], 64, "no-such-option"),
        (["replay"], 78, "no tables at"),
        (["rebuild"], 78, "no tables at"),
    ],
)
def test_usage_is_checked_first(tmp_path: Path, arguments: list[str], code: int, words_said: str) -> None:
    command = start(tmp_path, *arguments)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (code, "")
    assert words_said in err
    assert not (tmp_path / "lake").exists()


def test_a_request_that_does_not_get_further_is_given_up_at_last(tmp_path: Path) -> None:
    lake, request = open_lake(tmp_path), Request("replay", {})
    requests.submit(lake, request)
    assert [RequestAttempts(lake, request).begin() for _ in range(MOST_ATTEMPTS)] == [None] * MOST_ATTEMPTS
    assert RequestAttempts(lake, request).begin() == NO_REASON_KNOWN
    lake.path(requests.key_of(request, "progress")).write_text('{"unit": 1}')
    for _ in range(MOST_ATTEMPTS):
        tries = RequestAttempts(lake, request)
        assert tries.begin() is None
        tries.failed("a worker died")
    assert RequestAttempts(lake, request).begin() == "a worker died"
    lake.path(requests.key_of(request, "attempts")).write_text('{"limit": 1}')
    for _ in range(3 * MOST_ATTEMPTS):
        tries = RequestAttempts(lake, request)
        assert tries.begin() is None
        tries.withdraw()
    requests.finish(lake, request, {})
    assert [path.name for path in lake.path(lake.requests).iterdir()] == [f"{request.id}.result.json"]
