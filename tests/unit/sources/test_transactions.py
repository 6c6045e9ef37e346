"""Transactions that are left open are noticed, those that end in time are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_app.lake.files.state_files import read_json
from spark_app.model.table_names import TableNames
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.topics import SUSPECT_S, Ends, OpenTransactions
from spark_app.units.driver.status import Status
from tests.chaos.units import open_lake


class Topic:
    """The ends of two partitions, as a broker would tell them, and the moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: Ends = {("t", 0): (10, 10), ("t", 1): (5, 5)}
        self.transactions = OpenTransactions(KafkaSettings(), lambda: self.ends, lambda: self.now)

    def look_after(self, seconds: float) -> dict[str, int]:
        self.now += seconds
        return self.transactions.look()


def test_one_that_is_left_open_is_named_with_what_waits_behind_it() -> None:
    topic = Topic()
    topic.ends["t", 0] = (10, 17)
    assert topic.look_after(1) == {}
    assert topic.look_after(SUSPECT_S - 1) == {}
    topic.ends["t", 0] = (10, 25)
    assert topic.look_after(1) == {"t/0": 15}
    topic.ends["t", 0] = (25, 25)
    assert topic.look_after(1) == {}


def test_a_topic_of_many_short_ones_is_left_alone() -> None:
    topic = Topic()
    for number in range(100):
        topic.ends["t", 1] = (5 + number, 6 + number)
        assert topic.look_after(SUSPECT_S / 2) == {}


def test_no_answer_is_no_finding_and_begins_anew() -> None:
    topic = Topic()
    topic.ends["t", 0] = (10, 17)
    topic.look_after(1)
    topic.ends = {}
    assert topic.look_after(SUSPECT_S) == {}
    topic.ends = {("t", 0): (10, 17)}
    assert topic.look_after(1) == {}
    assert topic.look_after(SUSPECT_S) == {"t/0": 7}


def test_it_is_said_once_and_stays_in_the_status(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    lake = open_lake(tmp_path)  # type: ignore[arg-type]
    status = Status(lake, TableNames())
    for offsets in ({"t/0": 7}, {"t/0": 9}):
        status.set_blocked_offsets(offsets)
    status.end("stopped", None)
    assert read_json(lake.storage, lake.status)["held_back"] == {"t/0": 9}
    assert capsys.readouterr().err.count("an open transaction blocks records") == 1


def test_a_password_that_cannot_be_read_is_told_once_and_looked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "password"
    kafka = KafkaSettings(
        brokers="127.0.0.1:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_username="u",
        sasl_password_file=str(secret),
    )
    transactions = OpenTransactions(kafka)
    assert [transactions.look() for _ in range(3)] == [{}, {}, {}]
    said = capsys.readouterr().err
    assert (said.count("\n"), str(secret) in said) == (1, True)
