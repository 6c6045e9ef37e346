"""Partitions that a lake takes: what the setting may say, and what a topic and a lake make of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from scripts.campaign.units import ingest_unit, open_lake
from spark_app.driver.open_lake import OpenLake
from spark_app.driver.topic_check import TopicCheck
from spark_app.kafka.topics import Topic, Topics
from spark_app.model.errors import ConfigurationError
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("8-", {8, 9}),
        ("0-1,4,7-", {0, 1, 4, 7, 8, 9}),
    ],
)
def test_ranges_with_and_without_an_end(text: str, taken: set[int]) -> None:
    kafka = KafkaSettings(partitions=text)
    assert {partition for partition in range(10) if kafka.takes(partition)} == taken


@pytest.mark.parametrize("text", ["-", "-3", "a", "1,,2", "1-2-3", " 1", "5-3", "1;2", "1" * 40])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="partitions"):
        KafkaSettings(partitions=text)


def described(*numbers: int) -> Any:
    return SimpleNamespace(name="t", partitions=[SimpleNamespace(id=number) for number in numbers])


def test_a_topic_has_only_the_partitions_of_the_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(KafkaSettings(partitions="2-"))
    monkeypatch.setattr(topics, "_ask", lambda ask: {"t": described(0, 1, 2, 3)})
    assert topics.partitions() == {"t": {"2", "3"}}
    monkeypatch.setattr(topics, "_ask", lambda ask: {"t": described(0, 1)})
    with pytest.raises(ConfigurationError, match="none of the 2 partitions of t is in 2-"):
        topics.partitions()


class Brokers:
    def __init__(self, partitions: int):
        self._partitions = [str(number) for number in range(partitions)]

    def partitions(self) -> dict[str, set[str]]:
        return {"t": set(self._partitions)}

    def look(self) -> dict[str, Topic]:
        return {"t": Topic("id of t", dict.fromkeys(self._partitions, 0), dict.fromkeys(self._partitions, 10))}


def topic_check(root: Path, partitions: str, brokers: Any) -> TopicCheck:
    lake = open_lake(root)
    given: Any = {"lake": {"path": str(root)}, "kafka": {"partitions": partitions}}
    opened = OpenLake.of(lake, Settings(**given))
    if not opened.units.manifests.last:  # it ends at 5 of t/0
        opened.units.manifests.commit(ingest_unit(lake, 1, {"bronze_events": pa.table({"x": range(5)})}, records=5))
    return TopicCheck(opened, brokers)


def test_a_lake_keeps_its_partitions(tmp_path: Path) -> None:
    brokers = Brokers(2)
    topic_check(tmp_path, "", brokers).check(brokers.look(), accept_loss=True)
    with pytest.raises(ConfigurationError, match=r"kafka.partitions: the lake has records of t/0"):
        topic_check(tmp_path, "1-", brokers).check(brokers.look(), accept_loss=True)


def test_added_partitions_are_found_where_spark_does_not_find_them(tmp_path: Path) -> None:
    before, after = Brokers(2).look(), Brokers(3)
    assert topic_check(tmp_path, "", after).added(before) is None
    chosen = topic_check(tmp_path, "0-", after)
    assert chosen.added(before) == after.look()
    assert chosen.added(after.look()) is None
