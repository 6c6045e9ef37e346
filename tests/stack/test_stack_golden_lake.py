"""A lake of an earlier release is opened with its topic and its schemas as they were: it goes on, and each command says
what that release said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from spark_app.lake.lake import Lake
from spark_app.recovery import requests
from tests.chaos import read_back
from tests.support import golden_lake, ledger
from tests.support.golden_lake import EARLIER, LATER, ROWS, SAID, TOPIC

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
COMMANDS = sorted((path.stem for path in SAID.glob("[0-9]*")), key=lambda name: int(name.split("-")[0]))
REPLACED = ("deferred_events", *(path.stem for path in ROWS.glob("gold_*")))  # whose rows are not for ever


@pytest.mark.nightly
def test_a_lake_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    """One test, because its story is told once: tests of one file are spread over processes."""
    with golden_lake.opened(tmp_path) as (stage, registry_url):
        told = dict(golden_lake.story(stage, registry_url))
        admin = AdminClient({"bootstrap.servers": stage.brokers})
        topic_id = str(admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(30).topic_id)
        topic = read_back.consume(stage.brokers, TOPIC)
    assert list(told) == COMMANDS
    assert told == {name: golden_lake.said(name) for name in COMMANDS}
    assert _rows_that_are_gone(stage.lake) == {}
    _expect_all_records(stage.lake, topic_id)
    assert ledger.verify(stage.lake, topic).faults() == {}


def _rows_that_are_gone(lake: Path) -> dict[str, Counter[str]]:
    """By table. A column that was added since is NULL in them."""
    gone = {}
    for path in ROWS.iterdir():
        if path.stem not in REPLACED:
            rows = Counter(map(_without_nulls, golden_lake.rows_by_arrow(lake, path.stem)))
            gone[path.stem] = Counter(map(_without_nulls, path.read_text().splitlines())) - rows
    return {table: rows for table, rows in gone.items() if rows}


def _without_nulls(row: str) -> str:
    return json.dumps({name: value for name, value in json.loads(row).items() if value is not None}, sort_keys=True)


def _expect_all_records(lake: Path, topic_id: str) -> None:
    """What waited was done, and every record is in its place."""
    assert requests.pending(Lake(lake)) == []
    assert golden_lake.rows_by_arrow(lake, "deferred_events") == []
    sent = golden_lake.records(EARLIER) + golden_lake.records(LATER)
    bronze = [json.loads(row) for row in golden_lake.rows_by_arrow(lake, "bronze_events")]
    held = {(row["partition"], row["offset"]): row["value"] for row in bronze}
    assert held == {(record["partition"], record["offset"]): record["value"] for record in sent}
    assert len(bronze) == len(sent)
    assert {row["topic_id"] for row in bronze} == {topic_id}
