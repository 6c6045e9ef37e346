"""Schemas whose rule set encrypts: the app has no keys, and says so where a payload cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3

RULE = {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT_PAYLOAD"}
TEXT = PROTO3 + "message Event { string game_name = 1; }"


def test_a_payload_that_cannot_be_read_is_said_to_be_encrypted(
    answers: Answers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, rules in ((7, {"encodingRules": [RULE]}), (8, None)):
        answers.schema(number, TEXT, ruleSet=rules)
    lake = SmallLake(tmp_path / "lake", registry={"url": answers.url})
    lake.take(batch_of([frame(7, b"\xff\xff"), frame(8, b"\xff\xff"), frame(7, b"\x0a\x03uno")]))
    quarantine = str(lake.lake.path("quarantine_events"))
    rows = DeltaTable(quarantine).to_pyarrow_table(columns=["offset", "cause", "detail"]).sort_by("offset").to_pylist()
    assert [
        (row["cause"], "the rule set of its schema has ENCRYPT_PAYLOAD (rule hide)" in row["detail"]) for row in rows
    ] == [
        ("decode_payload", True),
        ("decode_payload", False),
    ]
    told = [line for line in capfd.readouterr().err.splitlines() if "the rule set of a schema encrypts" in line]
    assert len(told) == 1
    assert "schema=7" in told[0]
    lake.reopen()  # the ledger keeps it
    lake.take(batch_of([frame(7, b"\xff")], first=3))
    assert "ENCRYPT_PAYLOAD" in DeltaTable(quarantine).to_pyarrow_table().sort_by("offset")["detail"][-1].as_py()
    assert lake.audit().faults() == {}
