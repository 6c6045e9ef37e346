"""Whatever is in a settings file or a variable, it loads or is refused by its key, and no parser breaks."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.errors import ConfigurationError
from spark_app.settings import config
from tests.support.examples import examples
from tests.unit.settings.test_config import SHIPPED


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
