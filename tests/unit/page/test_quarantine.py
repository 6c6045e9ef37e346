"""The jobs and requests of the view Quarantine, over lakes with records of several causes."""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.page.clear_text import shows_clear_text
from spark_app.page.context import CHILD, PageContext
from spark_app.page.format import UNKNOWN, reason
from spark_app.page.job import do
from spark_app.page.observations import Observations
from spark_app.page.queries.child_process import Child
from spark_app.page.requests import SentRequest
from spark_app.page.views.quarantine import jobs, record, view
from spark_app.recovery import requests
from spark_app.recovery.requests import replay_arguments, selects_some
from spark_app.recovery.result_text import replay_lines
from spark_app.settings.models import Settings
from spark_app.units.driver.open_lake import count_open_causes
from tests.support import golden_lake
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.quarantines import CAUSES, SCHEMA, quarantine_lake
from tests.support.statuses import write_status


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Nobody changes it."""
    return quarantine_lake(tmp_path_factory.mktemp("kept") / "lake")


def test_open_records_agree_with_the_counts_of_the_app(kept: SmallLake) -> None:
    found = jobs.open_records(kept.lake, kept.settings)
    assert found["causes"] == count_open_causes(kept.opened) == dict(Counter(CAUSES))
    assert found["open"] == len(found["rows"]) == len(CAUSES)
    assert detail(kept, 5)["is_open"]


def test_records_that_a_replay_has_inserted_are_not_open(tmp_path: Path) -> None:
    """In a lake of an earlier release, with a status that its app has counted."""
    lake = Lake(golden_lake.unpack(tmp_path))
    settings = Settings(lake={"path": str(lake.root)}, registry={"url": "http://x"})
    found = jobs.open_records(lake, settings)
    assert found["causes"] == read_json(lake.storage, lake.status)["quarantine"]
    rows = [json.loads(row) for row in golden_lake.rows_by_arrow(lake.root, "quarantine_events")]
    assert (found["open"], len(rows)) == (12, 15)
    open_ones = {(one["topic"], one["topic_id"], one["partition"], one["offset"]) for one in found["rows"]}
    for row in rows:
        at = (row["topic"], row["topic_id"], row["partition"], row["offset"])
        shown = record.record_detail(lake, settings, *at)
        assert shown["is_open"] == (at in open_ones)
        assert shown["cause"] == row["cause"]
        assert shown["value"]["size"] == len(row["value"]) / 2
        assert shown["parts"][0]["said"]


def test_records_are_filtered_as_a_replay_filters_them(kept: SmallLake) -> None:
    def offsets(**chosen: str) -> set[int]:
        found = jobs.open_records(kept.lake, kept.settings, **chosen)
        assert found["open"] == len(found["rows"])
        assert found["causes"] == dict(Counter(CAUSES))
        return {row["offset"] for row in found["rows"]}

    assert offsets(cause="frame_short") == {2, 3}
    assert offsets(expectation="small") == {1}
    assert offsets(schema="1") == {1, 5, 6, 7, 8, 9}
    assert offsets(cause="decode_payload", schema="1") == {5, 6}
    assert offsets(cause="decode_payload", expectation="small") == set()
    assert offsets(cause="' OR 1 = 1 --") == set()
    found = jobs.open_records(kept.lake, kept.settings)
    assert (found["rules"], found["schemas"]) == (["small"], ["1"])


def test_the_newest_records_come_first_and_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_ROWS", 3)
    lake = SmallLake(tmp_path / "lake", SCHEMA)
    lake.take(batch_of([b""] * 4))
    lake.take(batch_of([b"\x09"] * 2, first=4))
    found = jobs.open_records(lake.lake, lake.settings)
    assert [row["offset"] for row in found["rows"]] == [5, 4, 3]
    assert found["open"] == 6
    assert found["rules"] == []  # no row has failed one yet, and no file has the column


def test_a_lake_without_quarantine_has_no_records(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", SCHEMA)
    nothing = {"rows": [], "open": 0, "causes": {}, "rules": [], "schemas": []}
    assert jobs.open_records(lake.lake, lake.settings) == nothing
    assert jobs.history(lake.lake, lake.settings, "hour") == {"causes": {}, "rules": {}}
    gone = record.record_detail(lake.lake, lake.settings, "t", "id of t", 0, 1)
    assert gone == {"failed": "the table of quarantine has this record no more"}


@pytest.mark.parametrize("span", ["hour", "day", "week"])
def test_history_counts_by_cause_and_expectation(kept: SmallLake, span: str) -> None:
    found = jobs.history(kept.lake, kept.settings, span)
    sums = {name: sum(count for _, count in points) for name, points in found["causes"].items()}
    assert sums == dict(Counter(CAUSES))
    assert {name: sum(count for _, count in points) for name, points in found["rules"].items()} == {"small": 1}
    length, bar = jobs.SPANS[span]
    for points in (*found["causes"].values(), *found["rules"].values()):
        moments = [at for at, _ in points]
        assert moments == list(range(moments[0], moments[0] + length, bar))
        assert moments[-1] <= time.time() < moments[-1] + 2 * bar


def test_history_has_a_bounded_number_of_names() -> None:
    counts = {f"rule{n}": Counter({0: n + 1}) for n in range(40)}
    series = jobs._series(counts, range(0, 120, 60))
    assert len(series) == jobs.MOST_NAMES + 1
    assert next(iter(series)) == "rule39"
    assert series["others"] == [[0, sum(range(1, 29))], [60, 0]]


def detail(lake: SmallLake, offset: int) -> dict[str, Any]:
    found = record.record_detail(lake.lake, lake.settings, "t", "id of t", 0, offset)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_a_record_has_its_reason_coordinates_headers_and_bytes(kept: SmallLake) -> None:
    found = detail(kept, 8)
    assert found["cause"] == "route_name"
    assert abs(found["times"]["quarantined at"] - time.time()) < 600
    assert found["facts"]["schema"] == "1"
    assert found["facts"]["message"] == "Event"
    assert found["headers"][1] == ["bytes", "ff 00"]
    assert found["headers"][0][0].endswith("{{ window.hurt=1 }}\\u202e\\x00")
    assert found["value"]["dump"].startswith("00000000  00 00 00 00 01 00 0a")
    assert found["key"] == {"size": 2, "shown": 2, "dump": f"00000000  6b 38{' ' * 45}k8"}
    assert found["parts"][0]["text"].startswith('game_name: "<img src=x onerror=')
    assert "\u202e" not in json.dumps(found, ensure_ascii=False)
    assert detail(kept, 1)["rules"] == ["small"]
    assert detail(kept, 2)["value"] == {"size": 0, "shown": 0, "dump": ""}
    assert detail(kept, 10)["parts"][0]["text"].startswith('1: "uno"')  # its header names no schema


def test_a_record_over_the_size_limit_has_its_digest(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", SCHEMA, batch={"max_record_bytes": 1024})
    lake.take(batch_of([frame(1, b"\x0a\xff\x7f" + b"x" * 16383)]))
    found = detail(lake, 0)
    assert found["cause"] == Cause.RECORD_SIZE
    assert found["omitted"].startswith("16,392 bytes with the SHA-256 ")
    assert (found["value"], found["parts"]) == (None, [])


def test_of_a_long_value_only_the_first_bytes_are_shown(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", SCHEMA)
    lake.take(batch_of([frame(1, b"\x0a\xff\x7f" + b"x" * 16382)]))
    found = detail(lake, 0)
    assert (found["value"]["size"], found["value"]["shown"]) == (16391, 4096)
    assert found["value"]["dump"].count("\n") == 255
    assert "bytes that are missing: 1" in found["parts"][0]["said"][1]


def test_headers_that_cannot_be_read_are_shown_as_they_are() -> None:
    assert record._headers(None) == []
    assert record._headers("{\u202e") == [["the headers cannot be read", "{\\u202e"]]
    assert record._headers('[{"key": "a"}]')[0][0] == "the headers cannot be read"
    assert record._headers('[{"key": "a", "value": null}]') == [["a", ""]]
    many = json.dumps([{"key": "k", "value": "YQ=="}] * 60)
    assert record._headers(many)[-2:] == [["k", "a"], ["...", "10 more headers"]]
    assert record._header_value(b"x" * 600).endswith("x ... (600 bytes)")


SECRETS = ("window.hurt", "77 69 6e 64", "k8", "6b 38", "game_name", "gamer", "uno..")


@pytest.mark.parametrize("by", ["settings", "definitions", "damage"])
def test_no_byte_of_a_hidden_record_leaves_the_job(tmp_path: Path, by: str) -> None:
    sections: dict[str, Any] = {"silver": {"drop": ["gamer_id"]}} if by != "damage" else {}
    lake = quarantine_lake(tmp_path / "lake", **sections)
    settings = lake.settings
    if by == "definitions":
        settings = settings.model_copy(update={"silver": Settings(registry={"url": "http://x"}).silver})
    if by == "damage":
        lake.lake.path(Lake.definitions).write_text("{")
    assert not shows_clear_text(lake.lake, settings)
    told = [jobs.open_records(lake.lake, settings)]
    told += [record.record_detail(lake.lake, settings, "t", "id of t", 0, n) for n in range(1, 11)]
    assert told[0]["open"] == 10
    assert all(one["hidden"] for one in told[1:])
    for secret in SECRETS:
        assert secret not in json.dumps(told), secret
    shown = settings.model_copy(update={"page": settings.page.model_copy(update={"clear_text": True})})
    clear = json.dumps([record.record_detail(lake.lake, shown, "t", "id of t", 0, n) for n in range(1, 11)])
    assert all(secret in clear for secret in SECRETS)  # each of them would be found


def test_the_jobs_answer_in_a_process_that_writes_nothing(kept: SmallLake) -> None:
    before = sorted(str(path) for path in kept.lake.root.rglob("*"))
    arguments: dict[str, dict[str, Any]] = {
        "quarantine_history": {"span": "hour"},
        "open_records": {"cause": "frame_short"},
        "record_detail": {"topic": "t", "topic_id": "id of t", "partition": 0, "offset": 5},
    }
    for job, given in arguments.items():
        answer = Child().run(CHILD, {"job": job, "arguments": given, "settings": kept.settings.model_dump_json()}, 60.0)
        assert "failed" not in answer, answer
        assert answer.keys() == do({"job": job, "arguments": given, "settings": kept.settings.model_dump_json()}).keys()
    assert sorted(str(path) for path in kept.lake.root.rglob("*")) == before


def test_a_reason_is_that_of_the_documentation() -> None:
    for cause in Cause:
        assert reason(cause.value).endswith(".")
        assert "`" not in reason(cause.value)
    assert reason("frame_magic", "x") == (
        "The first byte is neither 0 nor 1, and no schema is set for records without a frame: x"
    )
    assert reason("of a later release") == f"{UNKNOWN}."


def test_the_arguments_of_a_replay_are_those_that_it_takes() -> None:
    places = {"since": None, "until": None, "topic": None, "partition": None, "offsets": None}
    assert replay_arguments() == {"causes": [], "schemas": [], **places}
    assert not selects_some(replay_arguments())
    assert not selects_some(replay_arguments(dropped=True))
    assert replay_arguments(["frame_short"], ["1"], ["small"]) == {
        "causes": ["frame_short"],
        "schemas": ["1"],
        **places,
        "rules": ["small"],
        "dropped": False,
    }
    assert selects_some(replay_arguments(rules=["small"]))
    assert selects_some(replay_arguments(since=0.0))


def context_of(lake: Lake) -> PageContext:
    settings = Settings(lake={"path": str(lake.root)}, registry={"url": "http://x"})
    return PageContext(lake, settings, Observations(lake))


def test_a_request_waits_for_the_app_and_is_withdrawn(lake: Lake) -> None:
    write_status(lake, at=time.time(), state="stopped")
    asked = SentRequest(context_of(lake), "replay", replay_arguments(), dry_run=True)
    told: list[str] = []

    async def ask_and_withdraw() -> dict[str, Any]:
        waiting = asyncio.create_task(asked.result(told.append))
        await asyncio.sleep(0.1)
        assert [one.dry_run for one in requests.pending(lake)] == [True]
        asked.withdraw()
        return await waiting

    assert asyncio.run(ask_and_withdraw()) == {"error": "the request was withdrawn"}
    assert requests.pending(lake) == []
    assert told == ["The app is down. It carries the request out at its next start."]


def test_a_request_that_nobody_waits_for_stays(lake: Lake) -> None:
    asked = SentRequest(context_of(lake), "replay", replay_arguments())

    async def ask_and_leave() -> dict[str, Any]:
        waiting = asyncio.create_task(asked.result(lambda said: None))
        await asyncio.sleep(0.1)
        asked.leave()
        return await waiting

    assert "the request stays" in asyncio.run(ask_and_leave())["error"]
    assert len(requests.pending(lake)) == 1


def test_a_result_counts_even_if_the_request_was_withdrawn_late(lake: Lake) -> None:
    asked = SentRequest(context_of(lake), "replay", replay_arguments())

    async def answer_and_withdraw() -> dict[str, Any]:
        waiting = asyncio.create_task(asked.result(lambda said: None))
        await asyncio.sleep(0.1)
        requests.finish(lake, requests.pending(lake)[0], {"candidates": {}})
        asked.withdraw()
        return await waiting

    assert asyncio.run(answer_and_withdraw()) == {"candidates": {}}


def test_the_progress_of_a_replay_is_shown_in_numbers(lake: Lake) -> None:
    write_status(lake, at=time.time())
    told: list[str] = []

    async def look() -> dict[str, Any]:
        waiting = asyncio.create_task(SentRequest(context_of(lake), "replay", replay_arguments()).result(told.append))
        await asyncio.sleep(0.1)
        [request] = requests.pending(lake)
        progress = {
            "candidates": {"frame_short": 3, "expect_failed": 4},
            "after": ["t", 1],
            "refused": {},
            "waiting": 0,
        }
        key = requests.key_of(request, "progress")
        lake.storage.replace(key, json.dumps({"unit": 1, "value": progress}).encode(), durable=False)
        await asyncio.sleep(0.5)
        lake.storage.replace(key, b'{"unit": 1, "value": {"candidates": {"a": "b"}}}', durable=False)
        await asyncio.sleep(0.5)
        requests.finish(lake, request, {"candidates": {}})
        return await waiting

    assert asyncio.run(look()) == {"candidates": {}}
    assert list(dict.fromkeys(told)) == [
        "The app carries it out between two batches, after the requests before it.",
        "The app works on it: candidates 7, waiting 0 so far.",
        "The app works on it.",
    ]


def test_a_lake_that_the_page_may_not_write_to_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    lake.path(Lake.requests).rmdir()
    lake.path(Lake.requests).write_text("a file")
    found = asyncio.run(SentRequest(context_of(lake), "replay", {}).result(lambda said: None))
    assert found["error"].startswith("the page cannot write to the requests of the lake")


@pytest.mark.parametrize(
    ("result", "known"),
    [
        ({"candidates": {}}, True),
        ({"candidates": {"frame_short": 1}, "resolved": {"t": 1}, "refused": {}, "waiting": 0}, True),
        ({}, False),
        ({"candidates": ["frame_short"]}, False),
        ({"candidates": {"frame_short": "1"}}, False),
        ({"candidates": {}, "waiting": "some"}, False),
    ],
)
def test_a_result_is_shown_if_it_has_the_known_form(result: dict[str, Any], known: bool) -> None:
    assert view._is_known(result) is known
    if known:
        assert replay_lines(result, False)
