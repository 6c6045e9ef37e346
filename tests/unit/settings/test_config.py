"""Settings: unknown keys and bad values end with the key's name; secrets are not echoed."""

import re
from pathlib import Path

import pytest

from spark_app.model.errors import ConfigurationError
from spark_app.settings import config, renamed
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.settings.storing import LakeSettings
from spark_app.sources.kafka.topics import Topics
from spark_app.tables.fixed_settings import check_fixed_settings
from spark_app.tables.route import classify
from tests.chaos.units import open_lake
from tests.support.units import table_desk

SHIPPED = Path(__file__).parents[3] / "docs" / "settings.toml"


@pytest.mark.parametrize("section", config.sections())
def test_a_section_says_in_one_sentence_what_it_sets(section: str) -> None:
    assert re.fullmatch(r"This section sets [^.\n]+\.", config.sections()[section].__doc__ or "")


def test_shipped_file_is_what_the_models_say() -> None:
    assert SHIPPED.read_text() == config.render()


def test_rendered_defaults_load_as_the_defaults() -> None:
    assert config.load(SHIPPED) == config.load()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("x = 1", "x"),
        ("[event]\nkey = 'a.b'", "event.key"),
        ("[event]\nrouting = 'a.b'", "event.routing"),
        ("[kafkaa]\na = 1", "kafkaa"),
        ("[kafka]\nbrokres = 'b'", "kafka.brokres"),
        ("[kafka]\ntopic = 3", "kafka.topic"),
        ("kafka = 3", "kafka"),
        ("[tables]\nmax_tables = -1", "tables.max_tables"),
        ("[lake]\nbronze_compression = 'lz4'", "lake.bronze_compression"),
        ("[gold.aggregates.x]\nfunction = 'nope'", "gold.aggregates.x.function"),
        ("[schemas.changes]\nrename = 'ignore'", "schemas.changes.rename"),
        ("[schemas.changes]\nrenamed = 'warn'", "schemas.changes"),
        ("[schemas.changes]\nswap = 'alias'", "schemas.changes"),
        ("[schemas.changes]\nremoved = 'new_column'", "schemas.changes"),
        ("_env_file = 'x'", "_env_file"),
    ],
)
def test_bad_file_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"^{key}: "):
        config.load(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[kafkaa]\na = 1", "did you mean kafka?"),
        ("[kafka]\nbrokres = 'b'", "did you mean kafka.brokers?"),
        ("[zzzz]\na = 1", "there are alerts, batch, decode, event, events and others"),
    ],
)
def test_an_unknown_key_is_answered_with_one_that_is_like_it(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        config.load(path)
    assert str(refused.value).endswith(says)


def test_an_unknown_variable_is_answered_with_one_that_is_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_KAFKA_TOPIC", "t")
    with pytest.raises(ConfigurationError, match=r"did you mean PROTOLAKE_KAFKA__TOPIC\?"):
        config.load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTOLAKE_KAFKA__BROKRES", "b"),
        ("PROTOLAKE_NOPE__X", "1"),
        ("PROTOLAKE_KAFKA_TOPIC", "t"),
        ("PROTOLAKE_TABLES__ALLOWLIST", "a"),
    ],
)
def test_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        config.load()


OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_username": "me",
    "oauth_token_url": "https://login/token",
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"oauth_token_url": ""}, "needs oauth_token_url"),
        ({"sasl_username": ""}, "needs oauth_token_url, and sasl_username"),
        ({"oauth_token_url": "http://login/canary"}, "must begin with https://"),
        ({"oauth_token_url": "https://me:canary@login"}, "contains a user or password"),
        ({"oauth_token_url": "https://login/?key=canary"}, "contains a query"),
        ({"oauth_token_url": 'https://login/canary" -Dx=y'}, "contains a space"),
        ({"oauth_extensions": "a=b,"}, "should match pattern"),
        ({"oauth_extensions": 'a=b" x="y'}, "should match pattern"),
    ],
)
def test_a_wrong_oauth_setting_is_refused(
    change: dict[str, str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (OAUTH | change).items():
        monkeypatch.setenv(f"PROTOLAKE_KAFKA__{key.upper()}", value)
    if "oauth_extensions" in change or not all(change.values()):
        with pytest.raises(ConfigurationError, match=reason):
            config.load()
    else:
        with pytest.raises(ConfigurationError, match=f"^kafka.oauth_token_url: .*{reason}") as caught:
            config.load()
        assert "canary" not in str(caught.value)


def test_an_endpoint_on_the_loopback_needs_no_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in (OAUTH | {"oauth_token_url": "http://127.0.0.1:8080/token"}).items():
        monkeypatch.setenv(f"PROTOLAKE_KAFKA__{key.upper()}", value)
    assert config.load().kafka.uses_oauth


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
    assert own.isdisjoint(settings.layout.silver_of(name) for name in desk.admitted.values())


def test_allowed_value_is_allowed_as_it_is_written(tmp_path: Path) -> None:
    routing = table_desk(open_lake(tmp_path), allowed=("Rummy",)).routing()
    assert classify("Rummy", routing, "M").new


@pytest.mark.parametrize(
    "changed",
    [
        {"tables": {"silver": "silver_{name}_orders"}},
        {"tables": {"dropped": "left_out"}},
        {"tables": {"events": "done"}},
        {"event": {"route_by": "message"}},
        {"wrapper": {"payload": "body"}},
    ],
)
def test_a_lake_keeps_the_rules_that_it_was_made_with(tmp_path: Path, changed: dict[str, dict[str, str]]) -> None:
    """Other rules would place its records twice."""
    lake = open_lake(tmp_path)
    check_fixed_settings(lake, Settings(**changed))
    check_fixed_settings(lake, Settings(**changed, gold={"interval_s": 1}))
    [(section, [key])] = [(section, list(values)) for section, values in changed.items()]
    with pytest.raises(ConfigurationError, match=f"{section}.{key}"):
        check_fixed_settings(lake, Settings())


@pytest.mark.parametrize("spelt", ["1", "true", "True", "yes", "on", "t", "Y"])
def test_who_is_to_be_held_is_held_for_a_wrong_setting_however_it_is_spelt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spelt: str
) -> None:
    wrong = tmp_path / "settings.toml"
    wrong.write_text("[kafka]\nbrokres = 'b'")
    monkeypatch.setenv("PROTOLAKE_RUN__HOLD", spelt)
    assert config.load().run.hold
    assert config.should_hold(wrong)
    monkeypatch.setenv("PROTOLAKE_RUN__HOLD", "off")
    wrong.write_text("[run]\nhold = true")
    assert not config.should_hold(wrong)
    monkeypatch.delenv("PROTOLAKE_RUN__HOLD")
    assert config.should_hold(wrong)


@pytest.mark.parametrize("text", ["", "[run", "run = 3", "[run]\nhold = 'perhaps'", "[run]\nhold = false"])
def test_nobody_is_held_who_did_not_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.delenv("PROTOLAKE_RUN__HOLD", raising=False)
    (tmp_path / "settings.toml").write_text(text)
    assert not config.should_hold(tmp_path / "settings.toml")


OLD = """[batch]
records = 7
[tables]
cap = 3
"""


def test_settings_of_earlier_releases_still_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, said = tmp_path / "old.toml", []
    file.write_text(OLD)
    monkeypatch.setenv("PROTOLAKE_TABLES__ALLOWED", '["a", "b"]')
    monkeypatch.setenv("PROTOLAKE_SCHEMAS", '{"files": 5}')
    loaded = config.load(file, said.append)
    assert (loaded.batch.max_records, loaded.tables.max_tables, loaded.schemas.max_files) == (7, 3, 5)
    assert loaded.tables.allowlist == ("a", "b")
    names = ["batch.records", "tables.cap", "tables.allowed", "schemas.files"]
    assert sorted(said[0]) == sorted(names)
    assert said[0]["tables.cap"] == "tables.max_tables"


def test_a_variable_by_its_old_name_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new.toml"
    file.write_text("[batch]\nmax_records = 7\nmax_attempts = 9\n")
    monkeypatch.setenv("PROTOLAKE_BATCH__RECORDS", "8")
    batch = config.load(file).batch
    assert (batch.max_records, batch.max_attempts) == (8, 9)


@pytest.mark.parametrize("where", ["file", "environment", "section"])
def test_a_setting_by_both_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    file = tmp_path / "both.toml"
    file.write_text("[batch]\nrecords = 1\nmax_records = 2\n" if where == "file" else "")
    if where == "environment":
        monkeypatch.setenv("PROTOLAKE_BATCH__RECORDS", "1")
        monkeypatch.setenv("PROTOLAKE_BATCH__MAX_RECORDS", "2")
    if where == "section":
        monkeypatch.setenv("PROTOLAKE_BATCH", '{"records": 1, "max_records": 2}')
    with pytest.raises(
        ConfigurationError, match=r"batch.records is the old name of batch.max_records: set only the new"
    ):
        config.load(file)


def test_an_error_names_the_setting_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[batch]\nrecords = -1\n")
    with pytest.raises(ConfigurationError, match=r"batch.max_records \(given as batch.records\): "):
        config.load(file)


def test_every_renamed_setting_has_a_name_today() -> None:
    for section, pairs in renamed.RENAMED.items():
        fields = config.sections()[section].model_fields
        assert set(pairs.values()) <= set(fields)
        assert not set(pairs) & set(fields)


def test_bronze_is_compressed_like_the_other_tables_unless_the_settings_say_otherwise() -> None:
    assert LakeSettings(compression="snappy").compression_of_bronze == "snappy"
    assert LakeSettings(compression="snappy", bronze_compression="zstd:-5").compression_of_bronze == "zstd:-5"
