"""The audit finds nothing wrong with what the app makes of any record, and says what it cannot tell."""

from __future__ import annotations

from pathlib import Path

from spark_app.records import Cause
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.unit.spark_app import test_app_pass as kinds


def test_every_kind_of_record(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, kinds.V1, kinds.V2)
    lake.opened.schemas.ledger.add_refused(kinds.REFUSED, Cause.SCHEMA_INVALID, "no", 0.0)
    lake.opened.schemas.ledger.add_waiting(kinds.WAITING, "not now", 0.0)
    lake.opened.schemas.ledger.save()
    values = [value for value, _ in kinds.KINDS.values()]
    lake.take(batch_of(values), batch_of(values, first=5, partition=1))
    lake.take(batch_of(values * 3, first=len(values)))
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert verdict.records == 5 * len(values)
    print(verdict.to_json())
