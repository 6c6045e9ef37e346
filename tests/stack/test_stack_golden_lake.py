"""A lake of an earlier release is opened with its topic and its schemas as they were: it goes on, and each command says
what that release said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from scripts.campaign import read_back
from spark_app.recovery import requests
from spark_app.storage.lake import Lake
from tests.support import golden_lake, ledger
from tests.support.golden_lake import EARLIER, LATER, ROWS, SAID, TOPIC

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
COMMANDS = sorted((path.stem for path in SAID.glob("[0-9]*")), key=lambda name: int(name.split("-")[0]))
REPLACED = ("deferred_events", *(path.stem for path in ROWS.glob("gold_*")))  # whose rows are not for ever


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    """What every command said, one after another; and the lake after that, with what its topic then held."""
    folder = tmp_path_factory.mktemp("golden")
    with golden_lake.opened(folder) as (stage, registry_url):
        found: dict[str, object] = dict(golden_lake.story(stage, registry_url))
        admin = AdminClient({"bootstrap.servers": stage.brokers})
        described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(30)
        found["topic id"] = str(described.topic_id)
        found["topic"] = read_back.consume(stage.brokers, TOPIC)
    return found | {"lake": stage.lake}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_says_what_it_said(told: Mapping[str, object], command: str) -> None:
    assert told[command] == golden_lake.said(command)


def test_all_that_is_told_is_compared(told: Mapping[str, object]) -> None:
    assert [name for name in told if name[0].isdigit()] == COMMANDS


def test_every_row_that_was_there_is_there_unchanged(told: Mapping[str, object]) -> None:
    lake = told["lake"]
    assert isinstance(lake, Path)
    for path in ROWS.iterdir():
        if path.stem not in REPLACED:
            # A column that was added since is NULL in them.
            rows = Counter(_without_nulls(row) for row in golden_lake.rows_by_arrow(lake, path.stem))
            assert Counter(map(_without_nulls, path.read_text().splitlines())) - rows == Counter(), path.stem


def _without_nulls(row: str) -> str:
    return json.dumps({name: value for name, value in json.loads(row).items() if value is not None}, sort_keys=True)


def test_what_waited_was_done_and_all_records_are_in_their_place(told: Mapping[str, object]) -> None:
    lake = told["lake"]
    assert isinstance(lake, Path)
    assert requests.pending(Lake(lake)) == []
    assert golden_lake.rows_by_arrow(lake, "deferred_events") == []
    sent = golden_lake.records(EARLIER) + golden_lake.records(LATER)
    bronze = [json.loads(row) for row in golden_lake.rows_by_arrow(lake, "bronze_events")]
    held = {(row["partition"], row["offset"]): row["value"] for row in bronze}
    assert held == {(record["partition"], record["offset"]): record["value"] for record in sent}
    assert len(bronze) == len(sent)
    assert {row["topic_id"] for row in bronze} == {told["topic id"]}
    assert ledger.verify(lake, told["topic"]).faults() == {}  # type: ignore[arg-type]
