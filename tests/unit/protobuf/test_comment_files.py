"""Comments are stored beside their schemas alone: no crash loses one, and a lake without their files still opens."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.units.driver.decode_plan import make_plan
from tests.unit.tables.test_comments import OF_THREE, ONE, SILVER, THREE, TYPES, Commented, of_one


def test_a_crash_before_the_commit_loses_no_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    monkeypatch.setattr(lake.opened.units.committer, "apply", lambda manifest: None)
    lake.send(1)
    assert SILVER not in lake.lake.tables()
    lake.reopen()
    assert lake.opened.units.redone_units == 1
    assert lake.comments() == of_one()


def test_neither_workers_nor_manifests_nor_files_know_comments(tmp_path: Path) -> None:
    word = "unmistakable"
    noted, plain = (Commented(tmp_path / name) for name in ("noted", "plain"))
    for lake, strip in ((noted, False), (plain, True)):
        lake.know(1, ONE.replace("A move", word).replace("The city", word), 1, strip)
        lake.know(2, TYPES.replace("message Placed", "message Event").replace("Total", word), 2, strip)
        lake.send(1)
        lake.send(2, "Shipped", (1,))
        lake.send(1)
    assert word in str(noted.comments())
    sent = []
    for lake in (noted, plain):
        opened = lake.opened
        plan = make_plan(lake.lake.storage, "prefix", lake.settings, opened.resolver.ledger, opened.admission.routing())
        sent.append(pickle.dumps((plan.routing, opened.resolver.ledger.catalog())))
    assert word.encode() not in sent[0]
    assert len(sent[0]) == len(sent[1])
    for number in noted.opened.units.manifests.numbers():
        assert word not in noted.opened.units.manifests.read(number).text
    for file in noted.lake.path(SILVER).glob("*.parquet"):
        assert word.encode() not in file.read_bytes()


def test_a_ledger_of_an_earlier_release_opens_and_has_no_comments(tmp_path: Path) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    path = lake.lake.path(lake.lake.ledger)
    entries = json.loads(path.read_text())
    assert entries[0].pop("comments")
    path.write_text(json.dumps(entries))
    lake.reopen()
    lake.send(1)
    assert {path for path in lake.comments() if path} == set()
    lake.know(3, THREE, 3)
    lake.send(3)
    assert lake.comments() == OF_THREE


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_without_the_file_of_its_comments_a_schema_has_none(tmp_path: Path, damage: str) -> None:
    lake = Commented(tmp_path)
    lake.know(1, ONE, 1)
    [file] = lake.lake.path(lake.lake.schemas).glob("*.comments")
    file.unlink() if damage == "missing" else file.write_text("{")
    lake.reopen()
    lake.send(1)
    assert {path for path in lake.comments() if path} == set()
    assert Ledger(lake.lake).catalog().decodable.keys() == {1}
