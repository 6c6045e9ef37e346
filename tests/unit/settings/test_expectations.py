"""Expectations are read from the file and from variables, and a wrong one is refused by its key."""

from pathlib import Path

import pytest

from spark_app.model.errors import ConfigurationError
from spark_app.settings import config
from spark_app.settings.models import ExpectationSettings, Settings
from tests.unit.settings.test_config import SHIPPED

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
        "positive_bet": ExpectationSettings(check="bet > 0", action="warn", tables=("rummy",)),
        "known_game": ExpectationSettings(
            check="game_name IS NOT NULL", action="quarantine", tables=("poker", "rummy")
        ),
        "win": ExpectationSettings(check="win >= 0", action="warn"),
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
    with pytest.raises(ValueError, match="63 expectations apply to the table rummy, at most 62 may"):
        Settings(expectations={**every, **own, "z": {**rule, "tables": ["rummy"]}})
    with pytest.raises(ValueError, match="63 expectations apply to each table"):
        Settings(expectations={f"r{i}": rule for i in range(63)})
