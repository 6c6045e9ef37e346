"""Settings: unknown keys and bad values end with the key's name; secrets are not echoed."""

from pathlib import Path

import pytest

from scripts.campaign.units import open_lake
from spark_app import config
from spark_app.errors import ConfigurationError
from spark_app.kafka.topics import Topics
from spark_app.settings import KafkaSettings, Settings
from spark_app.store.rules import check_rules
from spark_app.worker.route import judge
from tests.support.units import table_desk

SHIPPED = Path(config.__file__).with_name("settings.toml")


def test_shipped_file_is_what_the_models_say() -> None:
    assert SHIPPED.read_text() == config.render()


def test_rendered_defaults_load_as_the_defaults() -> None:
    assert config.load(SHIPPED) == config.load()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("x = 1", "x"),
        ("[kafkaa]\na = 1", "kafkaa"),
        ("[kafka]\nbrokres = 'b'", "kafka.brokres"),
        ("[kafka]\ntopic = 3", "kafka.topic"),
        ("kafka = 3", "kafka"),
        ("[tables]\ncap = -1", "tables.cap"),
        ("[gold.aggregates.x]\nfunction = 'nope'", "gold.aggregates.x.function"),
        ("_env_file = 'x'", "_env_file"),
    ],
)
def test_bad_file_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"^{key}: "):
        config.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTOLAKE_KAFKA__BROKRES", "b"),
        ("PROTOLAKE_NOPE__X", "1"),
        ("PROTOLAKE_KAFKA_TOPIC", "t"),
        ("PROTOLAKE_TABLES__ALLOWED", "a"),
    ],
)
def test_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        config.load()


def test_settings_that_kafkas_client_does_not_take_are_a_wrong_configuration() -> None:
    kafka = KafkaSettings(security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password_file="/dev/null")
    with pytest.raises(ConfigurationError, match=r"^kafka: .*sasl.password must be set"):
        Topics(kafka).ids()


def test_password_in_the_registry_address_is_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_REGISTRY__URL", "http://user:hunter2@host")
    with pytest.raises(ConfigurationError) as caught:
        config.load()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "tables",
    ['bronze = "quarantine_events"', 'silver = "gold_{name}_player_agg"', 'deferred = "bronze_events"'],
)
def test_two_tables_cannot_share_a_folder(tmp_path: Path, tables: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"[tables]\n{tables}\n")
    with pytest.raises(ConfigurationError, match="tables"):
        config.load(path)


@pytest.mark.parametrize(("silver", "value"), [("{name}_events", "bronze"), ("{name}", "_protolake")])
def test_routing_value_cannot_become_one_of_our_own_folders(tmp_path: Path, silver: str, value: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'[tables]\nsilver = "{silver}"\n')
    try:
        settings = config.load(path)
    except ConfigurationError:
        return
    desk = table_desk(open_lake(tmp_path / "lake"))
    desk.admit({value: ["M"]})
    own = {settings.tables.bronze, settings.tables.quarantine, settings.tables.deferred, "_protolake"}
    assert own.isdisjoint(settings.tables.layout.silver_of(name) for name in desk.admitted.values())


def test_allowed_value_is_allowed_as_it_is_written(tmp_path: Path) -> None:
    routing = table_desk(open_lake(tmp_path), allowed=("Rummy",)).routing()
    assert judge("Rummy", routing, "M").new


@pytest.mark.parametrize(
    "changed",
    [
        {"tables": {"silver": "silver_{name}_orders"}},
        {"event": {"route_by": "message"}},
        {"wrapper": {"payload": "body"}},
    ],
)
def test_a_lake_keeps_the_rules_that_it_was_made_with(tmp_path: Path, changed: dict[str, dict[str, str]]) -> None:
    """Other rules would place its records twice."""
    lake = open_lake(tmp_path)
    check_rules(lake, Settings(**changed))
    check_rules(lake, Settings(**changed, gold={"interval_s": 1}))
    [(section, [key])] = [(section, list(values)) for section, values in changed.items()]
    with pytest.raises(ConfigurationError, match=f"{section}.{key}"):
        check_rules(lake, Settings())
