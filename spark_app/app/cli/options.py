"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

import datetime
import os
import uuid
from pathlib import Path
from typing import Annotated

import typer

from spark_app.followers.events.settings_event import last_settings
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.model.log import log, print_line
from spark_app.settings import config
from spark_app.settings.models import PREFIX, Settings

SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="TOML file; `protolake settings` shows what it may have")
]
LakeFolder = Annotated[
    str | None, typer.Option("--lake", help="folder or address of the lake, instead of the setting lake.path")
]
ADDRESSES = (("kafka", "brokers"), ("registry", "url"))
AsJson = Annotated[bool, typer.Option("--json", help="the result as JSON")]


def load(path: Path | None, lake: str | None, quiet: bool = False, beside: bool = True) -> Settings:
    """The settings in force. Unless it is to be quiet, one log line names those that have a new name, and one line says
    where the addresses are those of the last start of the lake.

    Args:
        beside: what neither the file nor the environment sets is as at that start; with a file, the addresses alone.

    Raises:
        ConfigurationError: names the key and what is wrong with it.
    """
    if lake is not None:
        os.environ["PROTOLAKE_LAKE__PATH"] = lake if "://" in lake else os.path.abspath(lake)
    own = config.load(path, (lambda _: None) if quiet else _warn_of_old_names)
    found = Lake(own.lake_address)
    if not beside or not (kept := last_settings(found)):
        return own
    if path or os.environ.get(f"{PREFIX}SETTINGS"):
        kept = {section: {key: kept[section][key]} for section, key in ADDRESSES}
    try:
        loaded = config.load(path, base=kept)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; so at the last start of {found.uri}: name a file with --settings") from None
    if not quiet and (loaded.kafka.brokers, loaded.registry.url) != (own.kafka.brokers, own.registry.url):
        where = f"kafka {loaded.kafka.brokers} and registry {loaded.registry.url}"
        print_line(f"protolake: {where}, as at the last start of {found.uri}")
    return loaded


def _warn_of_old_names(found: dict[str, str]) -> None:
    renamed = ", ".join(f"{old} is {new}" for old, new in sorted(found.items()))
    log.warning("settings have new names, and the old ones still work", renamed=renamed)


def load_to_write(path: Path | None, lake: str | None, beside: bool = True) -> Settings:
    """The settings of a command that writes: from here on this process, its JVM and their workers open what they make
    to nobody whom the settings leave out."""
    loaded = load(path, lake, beside=beside)
    os.umask(int(loaded.lake.umask, 8))
    return loaded


def schema_key(text: str) -> str:
    """A schema id or GUID as quarantine has it."""
    if text.isdecimal():
        return str(int(text))
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise UsageError(f"--schema-id: {text!r} is neither a schema id nor a GUID") from None


def moment_of(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not an ISO 8601 date or time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def offsets_of(text: str | None) -> list[int] | None:
    if text is None:
        return None
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise UsageError(f"--offsets: {text!r} is not FIRST:END with FIRST below END")
    return [int(first), int(end)]
