"""Rules in the .proto through Spark: rows of two schema versions meet their own, and a replay and a rebuild agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.parts import Parts
from tests.spark.test_spark_rebuild import ask, counts
from tests.spark.test_spark_replay import replay
from tests.unit.tables.test_proto_rules_lake import FIRST, LATER, bet

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
UNO = "silver_uno_events"
SENT = [bet(FIRST, "a", 5), bet(LATER, "a", 5, most=1), bet(FIRST, "", 5), bet(LATER, "b", 50, most=1)]


def learned(new_parts: NewParts, action: str, **sections: Any) -> Parts:
    parts = new_parts(schemas={"proto_rules": action}, **sections)
    for decodable in (FIRST, LATER):
        parts.ledger.add_decodable(decodable.key, decodable.descriptor_set, 0.0, decodable.form)
    parts.ledger.save()
    return parts


def offsets(parts: Parts) -> list[int]:
    return sorted(parts.read(UNO)["_offset"].to_list())


def test_quarantined_rows_come_back_once_the_rules_are_off(new_parts: NewParts) -> None:
    parts = learned(new_parts, "quarantine")
    report = parts.take(SENT)
    assert report.quarantine == {"expect_failed": 2}
    assert report.expectations == {"uno": {"proto.bet": [3, 1], "proto.gamer_id": [3, 1], "proto.most": [2, 0]}}
    assert offsets(parts) == [0, 3]
    assert counts(ask(parts))[UNO] == {"expected": 2, "present": 2}
    parts = learned(new_parts, "off")
    assert replay(parts, rules=["proto.bet"])["resolved"] == {UNO: 1}
    assert offsets(parts) == [0, 1, 3]
    assert counts(ask(parts))[UNO] == {"expected": 3, "present": 3}


@pytest.mark.nightly
def test_a_paused_table_goes_on_once_the_rules_warn(new_parts: NewParts) -> None:
    parts = learned(new_parts, "pause")
    assert parts.take(SENT).waiting == {"uno": 4}
    assert not parts.lake.has_table(UNO)
    parts = learned(new_parts, "warn")
    while parts.deferred.step(None) is not None:
        pass
    assert offsets(parts) == [0, 1, 2, 3]


@pytest.mark.nightly
def test_rules_see_the_row_before_its_projection(new_parts: NewParts) -> None:
    parts = learned(new_parts, "quarantine", silver={"columns": {"bet": "bet * 0"}, "drop": ["gamer_id"]})
    parts.take(SENT)
    assert sorted(parts.read(UNO).select("_offset", "bet").rows()) == [(0, 0), (3, 0)]
    assert counts(ask(parts))[UNO] == {"expected": 2, "present": 2}
