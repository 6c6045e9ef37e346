"""Where a command beside the app gets its settings: from the environment, its file, the last start of the lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_app.app.cli.options import load
from spark_app.followers.events.settings_event import keep_settings, last_settings
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Settings

BROKERS, REGISTRY = "127.0.0.1:19092", "http://127.0.0.1:18081/apis/ccompat/v7"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    for name in ("SETTINGS", "KAFKA__BROKERS", "REGISTRY__URL"):
        monkeypatch.delenv(f"PROTOLAKE_{name}", raising=False)
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", lake.uri)  # a command with --lake sets it


def begin(own: Lake, **more: Any) -> None:
    """Keep what a start keeps."""
    keep_settings(own, Settings(kafka={"brokers": BROKERS}, registry={"url": REGISTRY}, **more))  # type: ignore[arg-type]


def test_without_a_file_all_is_as_at_the_last_start(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"known": {"check": "gamer_id <> ''", "action": "drop", "tables": ("uno",)}}
    options = {"spark.executor.memory": "2g"}
    cluster = {"master": "spark://a:7077", "auth_secret_file": "/s", "driver_memory": "3g", "options": options}
    begin(lake, expectations=rule, spark=cluster, silver={"tables": {"uno": {"drop": ("a",)}}}, lake={"path": "/else"})
    loaded = load(None, lake.uri)
    assert (loaded.kafka.brokers, loaded.registry.url, loaded.lake.path) == (BROKERS, REGISTRY, lake.uri)
    assert loaded.expectations["known"].tables == ("uno",)
    assert loaded.silver.tables["uno"].drop == ("a",)
    assert (loaded.spark.master[:5], loaded.spark.driver_memory, loaded.spark.options) == ("local", "3g", options)
    said = f"protolake: kafka {BROKERS} and registry {REGISTRY}, as at the last start of {lake.uri}\n"
    assert capsys.readouterr().err == said


def test_the_environment_goes_over_the_last_start(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(lake, tables={"max_tables": 7})
    monkeypatch.setenv("PROTOLAKE_KAFKA__BROKERS", "other:9092")
    loaded = load(None, lake.uri)
    assert (loaded.kafka.brokers, loaded.registry.url, loaded.tables.max_tables) == ("other:9092", REGISTRY, 7)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_with_a_file_only_the_addresses_are_as_at_the_last_start(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    begin(lake, tables={"max_tables": 7}, gold={"interval_s": 2})
    file = tmp_path / "mine.toml"
    file.write_text('[registry]\nurl = "http://mine:8081"\n[gold]\ninterval_s = 9\n')
    if how == "variable":
        monkeypatch.setenv("PROTOLAKE_SETTINGS", str(file))
    loaded = load(file if how == "option" else None, lake.uri)
    assert (loaded.kafka.brokers, loaded.registry.url) == (BROKERS, "http://mine:8081")
    assert (loaded.gold.interval_s, loaded.tables) == (9, Settings().tables)


def test_what_a_lake_does_not_keep_is_as_by_default(lake: Lake) -> None:
    begin(lake, alerts={"webhook": "http://hooks/secret", "format": "slack"})
    assert load(None, lake.uri).alerts == Settings(alerts={"format": "slack"}).alerts  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", ["[]", "{", '{"kafka": 3}'])
def test_damaged_settings_do_not_count(lake: Lake, kept: str) -> None:
    lake.path(lake.settings).write_text(kept)
    assert load(None, lake.uri).kafka.brokers == Settings().kafka.brokers


def test_a_setting_of_the_last_start_that_is_no_longer_valid_is_refused_with_its_place(lake: Lake) -> None:
    begin(lake)
    kept = json.loads(lake.path(lake.settings).read_text())
    lake.path(lake.settings).write_text(json.dumps(kept | {"batch.of_yesterday": 3}))
    with pytest.raises(ConfigurationError, match=r"batch\.of_yesterday.*last start of .*--settings"):
        load(None, lake.uri)


def test_a_bucket_says_neither_what_is_secret_nor_what_spark_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"token_file": "/etc/shadow", "url": REGISTRY}
    begin(
        lake,
        spark={"options": {"spark.jars": "http://x/y.jar"}},
        store={"endpoint": "http://x"},
        tables={"max_tables": 7},
    )
    keep_settings(lake, load(None, lake.uri).model_copy(update={"registry": RegistrySettings(**secrets)}))  # type: ignore[arg-type]
    monkeypatch.setattr(type(lake.storage), "is_local", False)
    kept = last_settings(lake)
    assert (kept["registry"]["url"], kept["tables"]["max_tables"]) == (REGISTRY, 7)
    assert [name for name in kept if name in ("spark", "store")] == []
    assert [key for section in kept.values() for key in section if key.endswith("_file")] == []


def test_nothing_is_said_where_the_addresses_are_the_usual_ones(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    keep_settings(lake, Settings(tables={"max_tables": 7}))  # type: ignore[arg-type]
    assert load(None, lake.uri).tables.max_tables == 7
    assert capsys.readouterr().err == ""
