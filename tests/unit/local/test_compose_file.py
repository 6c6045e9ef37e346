"""What docker-compose.yml tells the app, with and without a settings file."""

import re

import pytest

from scripts.local.artifacts import ROOT

VARIABLE = re.compile(r"\$\{(\w+)(?::([-+])([^}]*))?\}")


def environment_of_app(**user: str) -> dict[str, str]:
    """The environment that the service `spark` lists, with the variables put in by Compose's rules."""
    text = (ROOT / "docker-compose.yml").read_text()
    block = re.search(r"^  spark:\n.*?^    environment:.*?\n((?:      - .*\n)+)", text, re.MULTILINE | re.DOTALL)
    assert block
    found = {}
    for line in block[1].splitlines():
        name, _, value = VARIABLE.sub(lambda one: _put_in(one, user), line.split(" #")[0].strip("- ")).partition("=")
        found[name] = value or user.get(name, "")
    return found


def _put_in(one: "re.Match[str]", user: dict[str, str]) -> str:
    name, operator, text = one.groups()
    if operator == "+":
        return str(text) if user.get(name) else ""
    return user.get(name) or text or ""


def test_without_a_settings_file_the_app_reads_the_producers_topic() -> None:
    assert environment_of_app()["PROTOLAKE_KAFKA__TOPIC"] == "protobuf_game_stream"
    assert environment_of_app(PRODUCER_TOPIC="mine")["PROTOLAKE_KAFKA__TOPIC"] == "mine"


@pytest.mark.parametrize("topic", [{}, {"PRODUCER_TOPIC": "demo"}])
def test_a_settings_file_names_the_topic(topic: dict[str, str]) -> None:
    told = environment_of_app(PROTOLAKE_SETTINGS_FILE="./mine.toml", PROTOLAKE_KAFKA__BROKERS="k:1", **topic)
    assert "PROTOLAKE_KAFKA__TOPIC" not in told
    assert told["PROTOLAKE_KAFKA__BROKERS"] == "k:1"
    assert told["PROTOLAKE_SETTINGS"] == "/protolake.toml"


def test_the_demo_has_rules_and_a_lake_of_ones_own_has_none() -> None:
    assert environment_of_app()["PROTOLAKE_SETTINGS"] == "/demo.toml"
    for own in ({"PROTOLAKE_SETTINGS_FILE": "./mine.toml"}, {"PROTOLAKE_KAFKA__BROKERS": "k:1"}):
        assert environment_of_app(**own)["PROTOLAKE_SETTINGS"] == "/protolake.toml"
    text = (ROOT / "docker-compose.yml").read_text()
    assert "      - ./scripts/local/demo.toml:/demo.toml:ro,z\n" in text
    assert "    PRODUCER_PLANT:\n" in text
