"""All options of the producer. Input: options and variables (PRODUCER_*). Output: one frozen `Settings`.

Each field below is the option `--field-name`, the variable `PRODUCER_FIELD_NAME` and a row of `--help`. An option
overrides the environment. An invalid value is reported as one line that names the variable.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import AwareDatetime, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, CliSubCommand, SettingsConfigDict, SettingsError, get_subcommand

from producer.errors import ConfigurationError, UsageError
from producer.faults import FAULTS
from producer.plants import parse_plants
from producer.schemas import PROTO_FOLDER, available_versions
from producer.timeline import Bump, parse_timeline

PREFIX = "PRODUCER_"
Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]


class Settings(BaseSettings):
    """Where to send, what to send and how fast."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    brokers: str = Field("127.0.0.1:9092", min_length=1, description="Kafka bootstrap servers")
    registry: str = Field("http://127.0.0.1:8081", description="address of the schema registry (Confluent API)")
    topic: str = Field("protobuf_game_stream", pattern=r"^[A-Za-z0-9._-]{1,249}$", description="topic to send to")
    partitions: int = Field(4, ge=1, le=10_000, description="partitions of a new topic")
    retention_hours: int = Field(168, ge=1, description="hours that a new topic keeps records")
    retention_bytes: int = Field(1 << 30, ge=-1, description="bytes that a new topic keeps per partition; -1: no limit")
    compatibility: Compatibility = Field("FULL", description="compatibility level set on the subject")
    schema_version: int = Field(1, ge=1, description="newest schema version to send")
    num_versions: int = Field(1, ge=1, description="how many of the newest versions are mixed, down to version 1")
    rate: float = Field(50.0, ge=0, le=10_000_000, description="records per second in total; 0: as fast as possible")
    records: int = Field(0, ge=0, description="stop after this many records; 0: never")
    games: str = Field("rummy,spades,euchre,go_fish,uno,hearts,poker", description="games, separated by commas")
    gamers: int = Field(1000, ge=1, le=1_000_000, description="how many gamers play")
    timeline: str = Field(
        "", description="schema bumps per game, by seconds or records: rummy=2@30s,uno=3@5000r,*=4@2m"
    )
    poison: float = Field(0.0, ge=0, le=1, description="share of bad records, 0 to 1")
    poison_kinds: str = Field("", description="kinds of bad records, separated by commas; empty: all")
    plant: str = Field(
        "", description="shares of valid records that a rule can refuse, by kind: no_player=0.01,test_device=0.005"
    )
    seed: int = Field(7, ge=0, description="the same seed makes the same events")
    start_time: AwareDatetime | None = Field(
        None,
        description="time of the first event (ISO 8601 with zone); time then follows the record number, not the clock",
    )
    acks: Path | None = Field(None, description="file that gets one JSON line per acknowledged record")
    wait: float = Field(60.0, ge=0, description="seconds to wait at start for broker and registry")
    patience: float = Field(300.0, ge=1, description="seconds without any acknowledgement before a run fails")
    proto: Path = Field(PROTO_FOLDER, description="folder with one folder v<N> per schema version")

    @field_validator("games")
    @classmethod
    def _has_games(cls, value: str) -> str:
        if not split_names(value):
            raise ValueError("names no game; an example is rummy,uno")
        return value

    @field_validator("poison_kinds")
    @classmethod
    def _knows_kinds(cls, value: str) -> str:
        if unknown := [name for name in split_names(value) if name not in FAULTS]:
            raise ValueError(f"has unknown kind {unknown[0]!r}, known are {', '.join(FAULTS)}")
        return value

    @field_validator("plant")
    @classmethod
    def _can_be_planted(cls, value: str) -> str:
        parse_plants(value)
        return value

    @field_validator("registry")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
            raise ValueError("must look like http://host:port")
        return value

    @field_validator("start_time", mode="before")
    @classmethod
    def _is_iso(cls, value: object) -> object:
        # Otherwise a plain number would mean seconds since 1970.
        if isinstance(value, str) and value.replace(".", "").isdecimal():
            raise ValueError("must look like 2026-01-31T12:00:00Z")
        return value

    @model_validator(mode="after")
    def _can_be_sent(self) -> "Settings":
        versions = available_versions(self.proto)
        if self.schema_version not in versions:
            raise ValueError(f"SCHEMA_VERSION: no folder v{self.schema_version} in {self.proto}, which has {versions}")
        for bump in self._parsed_timeline():
            if bump.game not in ("*", *self.game_names):
                raise ValueError(f"TIMELINE: {bump.game!r} is not one of the games {self.games}")
            if bump.version not in versions:
                raise ValueError(f"TIMELINE: no folder v{bump.version} in {self.proto}, which has {versions}")
        return self

    def _parsed_timeline(self) -> tuple[Bump, ...]:
        try:
            return parse_timeline(self.timeline)
        except ValueError as error:
            raise ValueError(f"TIMELINE: {error}") from None

    @property
    def subject(self) -> str:
        """The topic's value subject."""
        return f"{self.topic}-value"

    @property
    def registry_name(self) -> str:
        """The registry's address without credentials, for messages."""
        parts = urlsplit(self.registry)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @cached_property
    def game_names(self) -> tuple[str, ...]:
        """The games in the order given."""
        return split_names(self.games)

    @cached_property
    def bumps(self) -> tuple[Bump, ...]:
        """The timeline, parsed."""
        return self._parsed_timeline()

    @cached_property
    def plants(self) -> dict[str, float]:
        """Kind of rule failure -> its share of the records."""
        return parse_plants(self.plant)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of bad records to draw from."""
        return split_names(self.poison_kinds) or tuple(FAULTS)


class Setup(Settings):
    """Create the topic, set the subject's compatibility, register the first schema versions. Safe to repeat."""


class Run(Settings):
    """Send events until stopped or until --records are sent."""


class Faults(BaseSettings):
    """List the kinds of bad records that --poison draws from, and the rule failures that --plant makes."""


class Commands(BaseSettings):
    """The demo producer of Protolake. Every option is also an environment variable: --rate is PRODUCER_RATE."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m producer",
        cli_kebab_case=True,
        cli_exit_on_error=False,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        hide_input_in_errors=True,
    )

    setup: CliSubCommand[Setup]
    run: CliSubCommand[Run]
    faults: CliSubCommand[Faults]


def split_names(text: str) -> tuple[str, ...]:
    """`"rummy, uno"` as `("rummy", "uno")`: without blanks and duplicates, in order."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def read_command(arguments: Sequence[str]) -> Setup | Run | Faults:
    """Parse a command line and the environment into the settings of one command.

    Raises UsageError for an unknown command or option, ConfigurationError for an invalid value.
    """
    refuse_unknown_variables(os.environ)
    try:
        command = get_subcommand(Commands(_cli_parse_args=list(arguments)))
    except ValidationError as error:
        raise ConfigurationError(describe(error)) from None
    except SettingsError as error:
        reason = str(error).removeprefix("Error: ").removeprefix("error parsing CLI: ")
        raise UsageError(f"{reason}; see python -m producer --help") from None
    assert isinstance(command, Setup | Run | Faults)
    return command


def refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """Reject unknown variables: a mistyped one would otherwise be ignored silently."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for key in environment:
        if key.startswith(PREFIX) and key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ConfigurationError(f"{key}: no such setting" + (f", did you mean {near[0]}?" if near else ""))


def describe(error: ValidationError) -> str:
    """One line about the first invalid value; it begins with the name of the environment variable."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    field = str(first["loc"][1]) if len(first["loc"]) > 1 else ""
    if field:
        return f"{PREFIX}{field.upper()}: {message[:1].lower()}{message[1:]}"
    return f"{PREFIX}{message}"
