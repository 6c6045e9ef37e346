"""New ids: only a schema that brings columns is a reason to leave; the rest waits or is refused in place."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scripts.campaign.units import open_lake
from spark_app.driver.settle import SchemaDesk, caps_of
from spark_app.schemas.ledger import Ledger
from spark_app.schemas.registry import ROOT, Registry
from spark_app.schemas.subjects import Subjects
from spark_app.settings import RegistrySettings, Schemas
from tests.support.answers import Answers, serve
from tests.support.bombs import BOMBS
from tests.support.protos import PROTO3, catalog_of, compile_text
from tests.support.units import table_desk
from tests.unit.spark_app.test_app_descriptors import full_disk


@pytest.fixture
def answers() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


def desk(answers: Answers, folder: Path, **more: float) -> SchemaDesk:
    settings = Schemas(**{"lookups": 3} | more)
    registry = Registry(RegistrySettings(url=answers.url, timeout_s=2), caps_of(settings))
    return SchemaDesk(Ledger(folder), registry, settings, Subjects(("orders-value",)))


def test_new_schema_is_met_once(answers: Answers, tmp_path: Path) -> None:
    answers.schema(7, PROTO3 + "message M { string x = 1; }")
    assert desk(answers, tmp_path).meet([7]) == [7]
    assert desk(answers, tmp_path).meet([7]) == []


def test_unknown_ids_wait_and_are_looked_up_under_the_cap(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    assert schemas.meet(range(1000, 1100)) == []
    assert len(answers.asked) == len(schemas.ledger.waiting()) == 3


def test_refused_schema_is_no_bump(answers: Answers, tmp_path: Path) -> None:
    answers["/schemas/ids/8"] = (200, {"schema": '"string"'})
    assert desk(answers, tmp_path).meet([8]) == []


def test_helper_message_does_not_decide_the_types_of_the_event() -> None:
    text = PROTO3 + "message Position { int64 game_name = 1; } message Event { string game_name = 1; Position p = 2; }"
    assert catalog_of(compile_text(text)).columns["Event"].field("game_name").type == pa.string()


def test_value_that_is_its_own_name_is_admitted_first(tmp_path: Path) -> None:
    tables = table_desk(open_lake(tmp_path))
    tables.admit({"RUMMY": ["M"], "rummy": ["M"]})
    assert tables.admitted == {"rummy": "rummy"}


def test_what_a_full_disk_did_not_keep_is_not_known_either(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    tables = table_desk(lake)
    with pytest.raises(OSError, match="File too large"), full_disk():
        tables.admit({"rummy": ["M"]})
    assert (tables.admitted, tables.messages) == ({}, {})
    assert tables.admit({"rummy": ["M"]}) == ["rummy"]
    assert table_desk(lake).messages == {"rummy": ("M",)}


def test_a_ledger_that_a_full_disk_did_not_keep_is_kept_the_next_time(answers: Answers, tmp_path: Path) -> None:
    schemas = desk(answers, tmp_path)
    with pytest.raises(OSError, match="File too large"), full_disk():
        schemas.meet([7])
    schemas.ledger.save()
    assert [entry.key for entry in Ledger(tmp_path).waiting()] == [7]


@pytest.mark.usefixtures("only_cpu_counts")
def test_a_batch_does_not_wait_for_a_bomb(answers: Answers, tmp_path: Path) -> None:
    """Its records wait; the others' schemas are settled, and the bomb is, once, when it has gone off."""
    answers.schema(5, BOMBS["reserved numbers"]().texts[ROOT])
    answers.schema(6, PROTO3 + "message M { string x = 1; }")
    schemas = desk(answers, tmp_path, settle_s=0.5)
    began = time.monotonic()
    assert schemas.meet([5]) == []
    assert time.monotonic() - began < 2
    assert [entry.key for entry in schemas.ledger.waiting()] == [5]
    assert schemas.meet([6]) in ([6], [])  # on a busy machine it may wait, too
    assert schemas.retry_waiting(None)
    assert schemas.ledger.entries[5].outcome == "refused"
    assert answers.asked.count("/schemas/ids/5") == 1
