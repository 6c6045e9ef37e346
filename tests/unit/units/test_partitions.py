"""Partitions that a lake takes: what the setting may say, and what a topic and a lake make of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_app.model.errors import ConfigurationError
from spark_app.recovery import doctor
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.sources.kafka.topics import Topic, Topics
from spark_app.units.driver.loss import TopicCheck
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.units import ingest_unit, open_lake


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
    assert {partition for partition in range(10) if kafka.includes(partition)} == taken


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
    assert topics.partitions() == {"t": set()}


class Brokers:
    def __init__(self, partitions: int):
        self._partitions = [str(number) for number in range(partitions)]

    def partitions(self) -> dict[str, set[str]]:
        return {"t": set(self._partitions)}

    def look(self) -> dict[str, Topic]:
        return {"t": Topic("id of t", dict.fromkeys(self._partitions, 0), dict.fromkeys(self._partitions, 10))}


def topic_check(root: Path, partitions: str, brokers: Any, *, taken: str = "") -> TopicCheck:
    """`taken` is what the setting was when the lake's only unit was taken, which ends at 5 of t/0."""
    lake = open_lake(root)
    given: Any = {"lake": {"path": str(root)}, "kafka": {"partitions": partitions}}
    opened = OpenLake.of(lake, Settings(**given))
    if not opened.units.manifests.last:
        unit = ingest_unit(lake, 1, {"bronze_events": pa.table({"x": range(5)})}, records=5)
        source = unit.source | ({"partitions": taken} if taken else {})
        opened.units.manifests.commit(replace(unit, source=source))
    return TopicCheck(opened, brokers)


def test_a_lake_keeps_its_partitions(tmp_path: Path) -> None:
    brokers = Brokers(2)
    topic_check(tmp_path, "", brokers).check(brokers.look(), accept_loss=True)
    with pytest.raises(ConfigurationError, match=r"kafka.partitions: the lake has records of t/0"):
        topic_check(tmp_path, "1-", brokers).check(brokers.look(), accept_loss=True)


@pytest.mark.parametrize(("setting", "fits"), [("0", True), ("0,5-", True), ("0-1", False), ("0-", False)])
def test_nor_does_it_take_those_of_another_lake(tmp_path: Path, setting: str, fits: bool) -> None:
    now = {"t": Topic("id of t", {"0": 0, "1": 3}, {"0": 10, "1": 10})}  # 3 are expired, and no loss of this lake
    check = topic_check(tmp_path, setting, Brokers(2), taken="0")
    if not fits:
        with pytest.raises(ConfigurationError, match=r"was 0, so the lake never took t/1"):
            check.check(now, accept_loss=True)
        return
    only = {"t": Topic("id of t", {"0": 0}, {"0": 10})}
    check.check(only, accept_loss=False)


def test_doctor_calls_it_a_wrong_setting_and_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_check(tmp_path, "", Brokers(2))
    monkeypatch.setattr(doctor, "one_listens", lambda kafka: True)
    monkeypatch.setattr(Topics, "look", lambda self: {"t": Topic("id of t", {"1": 0}, {"1": 10})})
    given: Any = {"lake": {"path": str(tmp_path)}, "kafka": {"partitions": "1-"}}
    said = [f"{one.what} {one.remedy}" for one in doctor.examine(open_lake(tmp_path), Settings(**given))]
    assert [one for one in said if "the lake has records of t/0" in one]
    assert not [one for one in said if "accept-loss" in one]


def test_no_partition_at_all_is_a_wrong_setting(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    given: Any = {"lake": {"path": str(tmp_path)}, "kafka": {"partitions": "9-"}}
    check = TopicCheck(OpenLake.of(lake, Settings(**given)), Brokers(2))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no topic has one of the partitions 9-"):
        check.check({"t": Topic("id of t", {}, {})}, accept_loss=False)


def test_added_partitions_are_found_where_spark_does_not_find_them(tmp_path: Path) -> None:
    before, after = Brokers(2).look(), Brokers(3)
    assert topic_check(tmp_path, "", after).added(before) is None
    chosen = topic_check(tmp_path, "0-", after)
    assert chosen.added(before) == after.look()
    assert chosen.added(after.look()) is None
