"""Options and environment: what beats what, and that each mistake is one line with its key and its exit code."""

import pytest

from producer.__main__ import main
from producer.errors import ConfigurationError, UnreachableError, UsageError
from producer.patience import StopSignal
from producer.settings import Run, Setup, read_command
from producer.subject import Subject


def run_settings(*arguments: str) -> Run:
    command = read_command(["run", *arguments])
    assert isinstance(command, Run)
    return command


def test_defaults() -> None:
    settings = run_settings()
    assert (settings.topic, settings.subject) == ("protobuf_game_stream", "protobuf_game_stream-value")
    assert settings.game_names == ("rummy", "spades", "euchre", "go_fish", "uno", "hearts", "poker")
    assert (settings.rate, settings.records, settings.seed, settings.compatibility) == (50.0, 0, 7, "FULL")


def test_environment_counts_and_an_option_beats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRODUCER_RATE", "9")
    monkeypatch.setenv("PRODUCER_PARTITIONS", "3")
    assert run_settings().rate == 9
    assert run_settings("--rate", "5").rate == 5
    command = read_command(["setup"])
    assert isinstance(command, Setup)
    assert command.partitions == 3


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRODUCER_TIMELINE", "")
    monkeypatch.setenv("PRODUCER_ACKS", "")
    monkeypatch.setenv("PRODUCER_RATE", "")
    settings = run_settings()
    assert (settings.bumps, settings.acks, settings.rate) == ((), None, 50.0)


MISTAKES = {
    "rate": ("RATE", "fast"),
    "negative rate": ("RATE", "-1"),
    "poison share": ("POISON", "2"),
    "poison kind": ("POISON_KINDS", "nonsense"),
    "planted kind": ("PLANT", "nonsense=0.1"),
    "planted share": ("PLANT", "no_player=2"),
    "level": ("COMPATIBILITY", "SOME"),
    "no game": ("GAMES", " , "),
    "version without folder": ("SCHEMA_VERSION", "99"),
    "timeline text": ("TIMELINE", "rummy-2"),
    "timeline game": ("TIMELINE", "chess=2@3s"),
    "timeline version": ("TIMELINE", "rummy=99@3s"),
    "address": ("REGISTRY", "localhost"),
    "topic": ("TOPIC", "a/b"),
    "start without zone": ("START_TIME", "2026-01-01T00:00:00"),
    "start as a number": ("START_TIME", "2026"),
}


@pytest.mark.parametrize(("name", "value"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("by_option", [True, False], ids=["option", "environment"])
def test_a_wrong_value_is_one_line_that_names_the_key(
    name: str, value: str, by_option: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    option = "--" + name.lower().replace("_", "-")
    arguments = ["run", f"{option}={value}"] if by_option else ["run"]
    if not by_option:
        monkeypatch.setenv(f"PRODUCER_{name}", value)
    assert main(arguments) == 78
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith(f"producer: PRODUCER_{name}: ")


def test_a_mistyped_variable_is_refused_with_the_right_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRODUCER_RATES", "9")
    with pytest.raises(ConfigurationError, match="PRODUCER_RATES: no such setting, did you mean PRODUCER_RATE"):
        read_command(["run"])


@pytest.mark.parametrize("arguments", [["run", "--bogus", "1"], ["nope"], []], ids=["option", "command", "nothing"])
def test_unknown_words_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        read_command(arguments)
    assert main(arguments) == 64
    assert capsys.readouterr().err.count("\n") == 1


def test_credentials_stay_out_of_messages() -> None:
    settings = run_settings("--registry", "http://user:secret@127.0.0.1:1/x")
    assert settings.registry_name == "http://127.0.0.1:1/x"


def test_an_absent_registry_is_69_without_its_credentials() -> None:

    settings = run_settings("--registry", "http://user:secret@127.0.0.1:1/x")
    with pytest.raises(UnreachableError) as caught:
        Subject(settings, StopSignal()).set_compatibility(0)
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.exit_code == 69
