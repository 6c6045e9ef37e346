"""Metrics: what a scrape says of a lake whose app runs, is dead, is held, or is of another release."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from spark_app.lake.lake import Lake
from spark_app.page.metrics.exposition import MOST_TABLES, OTHER, LakeCollector, registry_of
from spark_app.page.metrics.reading import Reading, read
from spark_app.units.driver.status import STALE_S
from tests.support.examples import examples
from tests.support.statuses import status_of, write_status

NOW = 1_000_000.0
HALF = chr(0xD800)  # of a character
HOSTILE = ('a"} 1\nprotolake_up 7\n#', "\\", "\n", "é", "x" * 5000, "", OTHER)


def scrape(reading: Reading) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) -> value, of the text that Prometheus gets; each series stands there once."""
    text = generate_latest(registry_of(LakeCollector(lambda: reading, lambda: "protolake-1"))).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(reading: Reading, name: str, **labels: str) -> float | None:
    return scrape(reading).get((f"protolake_{name}", tuple(sorted(labels.items()))))


def test_a_source_of_files_is_counted_and_kafka_has_none() -> None:
    source = {"kind": "files", "path": "/in", "taken": 5, "waiting": 2, "broken": 1, "named": {"a": "half"}}
    reading = Reading(status_of(source=source), NOW)
    found = [value(reading, name) for name in ("taken_files_total", "waiting_files", "broken_files")]
    assert found == [5, 2, 1]
    assert value(Reading(status_of(source=None), NOW), "waiting_files") is None


def test_metrics_of_a_running_app_are_those_of_its_status() -> None:
    found = scrape(Reading(status_of(tables=2, lag=7), NOW, units=12, free=1 << 30))
    expected: dict[str, float] = {
        "up": 1,
        "lag_records": 7,
        "records_total": 1000,
        "units_total": 12,
        "starts_total": 3,
        "bumps_total": 1,
        "deferred_records": 4,
        "dropped_records": 6,
        "last_unit_seconds": 0.25,
        "last_unit_records": 100,
        "last_unit_timestamp_seconds": NOW,
        "newest_row_timestamp_seconds": NOW - 0.5,
        "lake_free_bytes": 1 << 30,
        "paused_tables": 0,
        "gold_failed_tables": 0,
        "tables": 2,
        "lost_offsets_total": 9,
        "schema_warnings": 2,
        "status_age_seconds": 0,
    }
    assert {name: found.get((f"protolake_{name}", ())) for name in expected} == expected
    assert found["protolake_rows_total", (("layer", "silver"), ("table", "t1"))] == 2
    assert found["protolake_gold_rows", (("table", "t1"),)] == 1
    assert found["protolake_quarantine_open_records", (("cause", "frame_short"),)] == 2
    assert found["protolake_quarantined_records_total", (("cause", "frame_short"),)] == 5
    assert found["protolake_rule_rows_total", (("outcome", "failed"), ("rule", "sane_time"))] == 10
    assert found["protolake_state", (("protolake_state", "running"),)] == 1
    assert found["protolake_state", (("protolake_state", "dead"),)] == 0


def test_followers_paused_tables_and_references_have_series() -> None:
    more = {
        "followers": {"gold": {"unit": 5, "lag": 3, "paused": None}},
        "paused": {"uno": {"rule": "r", "record": "t/0/1", "rows": 11, "let_in": False}},
        "references": {"players": {"rows": 8, "version": "3", "refused": None}},
    }
    reading = Reading(status_of(**more), NOW)
    assert value(reading, "follower_lag_units", follower="gold") == 3
    assert value(reading, "paused_rows", table=OTHER) == 11  # no table of the lake has this name
    assert value(reading, "paused_tables") == 1
    assert value(reading, "reference_rows", reference="players") == 8


@pytest.mark.parametrize(
    ("values", "later", "state"),
    [
        ({}, 0, "running"),
        ({}, STALE_S + 1, "dead"),
        ({"state": "waiting", "reason": "no broker"}, 0, "waiting"),
        ({"state": "starting"}, STALE_S + 1, "dead"),
        ({"state": "held", "reason": "loss"}, 90_000, "held"),
        ({"state": "stopped"}, 90_000, "stopped"),
        ({"state": "stopped", "reason": "a bump"}, 3, "stopped"),
        ({"state": "stopped", "reason": "a bump"}, STALE_S + 1, "dead"),
        ({"state": "flying"}, 0, "dead"),
        ({"updated_at": "yesterday"}, 0, "dead"),
    ],
)
def test_the_state_of_an_app(values: dict[str, Any], later: float, state: str) -> None:
    reading = Reading(status_of(**values), NOW + later)
    assert reading.state == state
    assert value(reading, "state", protolake_state=state) == 1
    assert value(reading, "up") == (state in ("starting", "running", "waiting"))


def test_without_a_status_the_app_is_down_and_the_rest_is_unknown(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    for text in (None, "", "[]", '{"state": 3', '{"state": "running"}'):
        if text is not None:
            lake.storage.replace(lake.status, text.encode())
        found = scrape(read(lake, NOW))
        assert found["protolake_up", ()] == 0
        assert found["protolake_healthy", ()] == 0
        assert found["protolake_lake_free_bytes", ()] > 0
        assert ("protolake_records_total", ()) not in found


def test_a_status_of_an_earlier_release_lacks_what_it_did_not_know() -> None:
    old = status_of()
    for key in ("quarantined", "expectations", "paused", "references", "schema_warnings", "dropped", "quiet_s"):
        del old[key]
    reading = Reading(old, NOW)
    assert value(reading, "records_total") == 1000
    assert value(reading, "paused_tables") is None
    assert value(reading, "quarantined_records_total", cause="frame_short") is None


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted([*status_of(), "followers"])), ODD, max_size=6))
@examples()
def test_whatever_a_status_holds_a_scrape_is_valid(values: dict[str, Any]) -> None:
    found = scrape(Reading(status_of() | values, NOW))
    assert found["protolake_up", ()] in (0, 1)
    assert all(math.isfinite(number) for number in found.values())


@given(st.dictionaries(st.text(max_size=9) | st.sampled_from(HOSTILE), st.integers(0, 9), max_size=6))
@examples()
def test_a_name_of_a_table_cannot_forge_a_series(names: dict[str, int]) -> None:
    tables = {name: {"silver": rows, "gold": 0} for name, rows in names.items()}
    reading = Reading(status_of() | {"tables": tables}, NOW)
    found = scrape(reading)
    assert found["protolake_up", ()] == 1
    rows = {dict(labels)["table"]: n for (name, labels), n in found.items() if name == "protolake_rows_total"}
    assert rows == names
    text = openmetrics.generate_latest(registry_of(LakeCollector(lambda: reading, lambda: "")))
    assert text.decode().endswith("# EOF\n")
    assert list(openmetrics_families(text.decode()))


def test_half_a_character_in_a_name_is_one_of_the_others() -> None:
    reading = Reading(status_of(tables=1) | {"quarantine": {f"a{HALF}": 3, "b": 1}}, NOW)
    assert value(reading, "quarantine_open_records", cause=OTHER) == 3
    assert value(reading, "quarantine_open_records", cause="b") == 1


def test_the_busiest_of_a_thousand_tables_have_series_and_a_scrape_is_quick(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    for unit in range(1000):
        lake.storage.replace(f"{lake.manifests}/{unit:012d}.json", b"{}", durable=False)
    paused = {f"t{n}": {"rule": "r", "record": "x", "rows": 1, "let_in": False} for n in range(1000)}
    rules = {f"rule{n}": [5, n] for n in range(1000)}
    write_status(lake, tables=1000, paused=paused, expectations=rules)
    registry = registry_of(LakeCollector(lambda: read(lake, NOW), lambda: "protolake-1"))
    took = []
    for _ in range(9):
        began = time.thread_time()
        text = generate_latest(registry).decode()
        took.append(time.thread_time() - began)
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series) <= 2000
    assert min(took) <= 0.05
    rows = {name: n for (_, name), n in silver(text).items()}
    assert rows["t999"] == 1000
    assert rows[OTHER] == sum(range(1, 1001 - MOST_TABLES))
    assert len(rows) == MOST_TABLES + 1


def silver(text: str) -> dict[tuple[str, str], float]:
    """(layer, table) -> rows"""
    families = text_string_to_metric_families(text)
    rows = (sample for family in families for sample in family.samples if sample.name == "protolake_rows_total")
    return {(sample.labels["layer"], sample.labels["table"]): sample.value for sample in rows}


def test_the_tables_with_series_stay_although_others_overtake_them() -> None:
    readings = [
        Reading(status_of() | {"tables": {f"t{n}": {"silver": rows(n), "gold": 0} for n in range(300)}}, NOW)
        for rows in (lambda n: n, lambda n: 1000 - n)
    ]
    now = readings[0]
    registry = registry_of(LakeCollector(lambda: now, lambda: ""))
    first = silver(generate_latest(registry).decode())
    now = readings[1]
    assert silver(generate_latest(registry).decode()).keys() == first.keys()


def test_the_age_of_the_newest_row_grows_while_records_wait() -> None:
    assert Reading(status_of(lag=0), NOW + 10).age_s == 0.5
    assert Reading(status_of(lag=5), NOW + 10).age_s == 10.5
    assert Reading(status_of(lag=None), NOW + 10).age_s == 10.5
    assert Reading(status_of(lag=0), NOW + 600).age_s == 600.5  # the app is dead: who knows what waits
    assert Reading(status_of(batch=None, age_s=None), NOW).age_s is None


def test_an_app_that_has_just_started_does_not_make_the_newest_row_unknown() -> None:
    before = Reading(status_of(), NOW)
    again = Reading(status_of(batch=None, age_s=None, lag=None), NOW + 100, before=before)
    assert again.age_s == 100.5


def test_what_went_to_quarantine_is_counted_on_when_a_replay_places_it(tmp_path: Path) -> None:
    from spark_app.model.reports import Report
    from spark_app.model.table_names import TableNames
    from spark_app.units.driver.status import Status

    lake = Lake(tmp_path)
    lake.prepare()
    status = Status(lake, TableNames())
    status.batch_done(1, Report(bronze=3, quarantine={"frame_short": 3}), 0.1)
    status.recovered(Report(), {"frame_short": 2})
    status.end("stopped", None)
    reading = read(lake, time.time())
    assert reading.counts("quarantine") == {"frame_short": 1}
    assert reading.counts("quarantined") == {"frame_short": 3}
    assert json.loads(lake.storage.get(lake.status))["quarantined"] == {"frame_short": 3}


def test_the_page_of_the_docs_names_every_metric() -> None:
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
    registry = registry_of(LakeCollector(lambda: Reading(status_of(), NOW, 1, 1), lambda: ""))
    text = generate_latest(registry).decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(names) > 30
    assert sorted(name for name in names if f"`{name}`" not in page and f"`{name}{{" not in page) == []
