"""Settings: unknown keys and bad values end with the key's name; secrets are not echoed."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.campaign.units import open_lake
from spark_app.kafka.topics import Topics
from spark_app.model.errors import ConfigurationError
from spark_app.settings import config, renamed
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Expectation, Settings
from spark_app.settings.storing import LakeSettings
from spark_app.store.rules import check_rules
from spark_app.worker.route import classify
from tests.support.examples import examples
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
        ("[zzzz]\na = 1", "`protolake settings` lists all"),
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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[tables]\nallowlist = " + "[" * 100_000 + "]" * 100_000, "allowlist"),
        ("[gold]\naggregates = " + "{a=" * 5_000 + "1" + "}" * 5_000, "aggregates"),
        ("[tables]\nmax_tables = " + "9" * 5_000, "s.toml is not TOML"),
        ('[lake]\npath = "a\\u0000b"', "lake.path"),
        ('[kafka]\ntopic = "a\\u0000b"', "kafka.topic"),
    ],
    ids=["deep list", "deep table", "long number", "NUL in a path", "NUL in a topic"],
)
def test_what_breaks_a_parser_is_refused_by_its_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=key) as caught:
        config.load(path)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize("value", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000])
@pytest.mark.parametrize("name", ["PROTOLAKE_TABLES__ALLOWLIST", "PROTOLAKE_GOLD__AGGREGATES", "PROTOLAKE_KAFKA"])
def test_a_hundred_thousand_brackets_in_a_variable_are_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name) as caught:
        config.load()
    assert len(str(caught.value)) < 300


def test_a_variable_for_a_value_five_thousand_levels_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_GOLD__AGGREGATES" + "__A" * 5_000, "1")
    with pytest.raises(ConfigurationError, match=r"gold\.aggregates"):
        config.load()


def test_bytes_that_are_not_utf8_in_a_variable_are_refused_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOLAKE_KAFKA__TOPIC", "orders\udcff")
    with pytest.raises(ConfigurationError, match=r"^kafka\.topic: "):
        config.load()


def test_a_secret_file_that_is_not_utf8_is_named_and_not_echoed(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigurationError, match=r"^registry\.password_file: .*password is not UTF-8") as caught:
        config.read_secret(str(path), "registry.password_file")
    assert not any(word in str(caught.value) for word in ("hunter2", "0xff"))


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
        ({"oauth_token_url": "https://me:canary@login"}, "holds a user or password"),
        ({"oauth_token_url": "https://login/?key=canary"}, "holds a query"),
        ({"oauth_token_url": 'https://login/canary" -Dx=y'}, "holds a space"),
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


TOKENS = [
    "[",
    "]",
    "{",
    "}",
    "=",
    '"',
    "'",
    '"""',
    "\n",
    ".",
    "#",
    "\\u0000",
    "\ud800",
    "${HOME}",
    "!!python",
    "-1",
    "1e999",
]
TOKENS += [
    "nan",
    "0x",
    "true",
    "[kafka]",
    "[[kafka]]",
    "topic",
    "9" * 5_000,
    "[" * 2_000,
    "{a=" * 500,
    "1979-05-27",
    "\x7f",
]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(TOKENS)), min_size=1, max_size=4))
@examples()
def test_whatever_becomes_of_a_settings_file_it_loads_or_is_a_wrong_configuration(
    tmp_path: Path, changes: list[tuple[int, int, str]]
) -> None:
    text = SHIPPED.read_text()
    for at, length, token in changes:
        at %= len(text)
        text = text[:at] + token + text[at + length :]
    path = tmp_path / "s.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    said = ""
    try:
        config.load(path)
    except ConfigurationError as error:
        said = str(error)
    assert re.match(r"$|[\w.\[\]-]+: |settings file ", said)


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
    check_rules(lake, Settings(**changed))
    check_rules(lake, Settings(**changed, gold={"interval_s": 1}))
    [(section, [key])] = [(section, list(values)) for section, values in changed.items()]
    with pytest.raises(ConfigurationError, match=f"{section}.{key}"):
        check_rules(lake, Settings())


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


RULE = """[expectations.positive_bet]
check = "bet > 0"
action = "drop"
tables = ["rummy"]
"""


def test_rules_are_read_from_the_file_and_from_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.toml"
    file.write_text(RULE)
    monkeypatch.setenv("PROTOLAKE_EXPECTATIONS__POSITIVE_BET__ACTION", "warn")
    monkeypatch.setenv("PROTOLAKE_EXPECTATIONS__KNOWN_GAME__CHECK", "game_name IS NOT NULL")
    monkeypatch.setenv("PROTOLAKE_EXPECTATIONS__KNOWN_GAME__ACTION", "quarantine")
    monkeypatch.setenv("PROTOLAKE_EXPECTATIONS__KNOWN_GAME__TABLES", '["poker", "rummy"]')
    monkeypatch.setenv("PROTOLAKE_EXPECTATIONS", '{"win": {"check": "win >= 0", "action": "warn"}}')
    assert config.load(file).expectations == {
        "positive_bet": Expectation(check="bet > 0", action="warn", tables=("rummy",)),
        "known_game": Expectation(check="game_name IS NOT NULL", action="quarantine", tables=("poker", "rummy")),
        "win": Expectation(check="win >= 0", action="warn"),
    }


def test_the_example_of_a_rule_is_one(tmp_path: Path) -> None:
    example = SHIPPED.read_text().split("# [expectations.")[1].split("\n\n")[0]
    file = tmp_path / "s.toml"
    file.write_text("[expectations." + example.replace("\n# ", "\n"))
    assert list(config.load(file).expectations) == ["positive_bet"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RULE.replace("check", "chek"), "expectations.positive_bet.chek: no such setting; did you mean expectations.p"),
        (RULE.replace("drop", "delete"), "expectations.positive_bet.action: "),
        (RULE.replace('action = "drop"\n', ""), "expectations.positive_bet.action: Field required"),
        (RULE.replace("bet > 0", "bet > 0\\u0000"), "expectations.positive_bet.check: "),
        (RULE.replace("positive_bet", "Bet"), "expectations: "),
        (RULE.replace("positive_bet", "'bet > 0'"), "expectations: "),
        (RULE.replace("positive_bet", "b" * 65), "expectations: "),
        ("expectations = 3", "expectations: "),
        ("[expectations]\ncheck = 'bet > 0'", "expectations.check: "),
        (RULE.replace("expectations", "expectation"), "expectation: no such section in "),
    ],
)
def test_a_wrong_rule_is_refused_by_its_key(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        config.load(file)
    assert says in str(refused.value)
    assert str(refused.value).startswith("expectation")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PROTOLAKE_EXPECTATIONS", "{", "PROTOLAKE_EXPECTATIONS must be JSON, such as "),
        ("PROTOLAKE_EXPECTATIONS__BET", "bet > 0", "expectations.bet: Input should be a valid dictionary"),
        ("PROTOLAKE_EXPECTATIONS__BET__TABLES", "rummy", "PROTOLAKE_EXPECTATIONS__BET__TABLES must be JSON, such as "),
        ("PROTOLAKE_EXPECTATIONS__BET__CHEK", "bet > 0", "expectations.bet.che"),
        ("PROTOLAKE_EXPECTATIONS_BET", "bet > 0", "PROTOLAKE_EXPECTATIONS_BET: no such setting"),
        ("PROTOLAKE_EXPECTATION__BET__CHECK", "bet > 0", "PROTOLAKE_EXPECTATION__BET__CHECK: no such setting"),
    ],
)
def test_a_wrong_variable_of_a_rule_is_named(name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        config.load()
    assert says in str(refused.value)


def test_a_table_has_at_most_as_many_rules_as_a_mask_has_bits() -> None:
    rule = {"check": "bet > 0", "action": "warn"}
    every = {f"r{i}": rule for i in range(61)}
    own = {"x": {**rule, "tables": ["rummy"]}, "y": {**rule, "tables": ["poker"]}}
    assert len(Settings(expectations={**every, **own}).expectations) == 63
    with pytest.raises(ValueError, match="63 rules apply to the table rummy, and 62 may"):
        Settings(expectations={**every, **own, "z": {**rule, "tables": ["rummy"]}})
    with pytest.raises(ValueError, match="63 rules apply to each table"):
        Settings(expectations={f"r{i}": rule for i in range(63)})
