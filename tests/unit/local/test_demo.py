"""The rules of the demo, and what its producer plants."""

from pathlib import Path
from typing import Any

import pytest

from producer.plants import PLANTS, parse_plants
from scripts.local.artifacts import ROOT
from scripts.local.environment import PLANTS as PLANTED
from scripts.local.options import DEMO
from spark_app.settings import config
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.producing import Lab, schemas_of_demo, times
from tests.unit.audit.test_audit_expectations import faults
from tests.unit.tables.test_pauses import PausableLake

ACTIONS = {"no_player": "quarantine", "test_device": "drop", "late_time": "warn"}
RECORDS = 50


def rules_of_demo() -> dict[str, Any]:
    return {name: rule.model_dump() for name, rule in config.load(DEMO).expectations.items()}


@pytest.mark.parametrize("kind", [None, *PLANTS])
def test_each_expectation_refuses_what_is_planted_for_it_and_nothing_else(tmp_path: Path, kind: str | None) -> None:
    plant = ("--plant", f"{kind}=1") if kind else ()
    records = Lab("--games", "uno", "--schema-version", "5", "--num-versions", "5", *plant).take(RECORDS)
    lake = SmallLake(tmp_path, *schemas_of_demo(), expectations=rules_of_demo())
    report = lake.take(batch_of([value for value, _ in records], timestamp=times(RECORDS)))
    action = (ACTIONS | {"future_time": "warn"}).get(str(kind))
    assert report.by_action == ({"uno": {action: RECORDS}} if action else {})
    kept_out = 0 if action in (None, "warn") else RECORDS
    assert sum(report.quarantine.values()) + report.dropped == kept_out
    assert sum(report.silver.values()) == RECORDS - kept_out


def test_a_lake_of_a_demo_without_expectations_goes_on_with_them(tmp_path: Path) -> None:
    lake = PausableLake(tmp_path, {})
    lake.learn(*schemas_of_demo())
    lab = Lab("--plant", "no_player=0.2,test_device=0.2,late_time=0.2")
    for start, rules in ((0, {}), (200, rules_of_demo())):
        lake.restart(rules)
        report = lake.take(batch_of([value for value, _ in lab.take(200)], start, timestamp=times(200)))
        assert bool(report.by_action) is bool(rules)
    assert faults(lake) == {}


def test_the_demo_plants_what_its_expectations_refuse() -> None:
    assert set(parse_plants(PLANTED)) == set(ACTIONS)
    assert sum(parse_plants(PLANTED).values()) <= 0.02
    assert "future" not in PLANTED  # one such row would be the answer to each question for the latest
    assert f"PRODUCER_PLANT={PLANTED}\n" in (ROOT / ".env").read_text()
    assert sorted(rule.action for rule in config.load(DEMO).expectations.values()) == sorted(ACTIONS.values())
