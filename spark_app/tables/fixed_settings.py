"""Settings that must not change during a lake's life: how records become rows, and the table names.

The lake stores them, so that a command with other settings cannot place records twice.
"""

from __future__ import annotations

import json
from typing import Any

from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Numbering
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings

KEPT = {
    "tables": ("bronze", "silver", "gold", "quarantine", "deferred", "resolved", "lost", "dropped", "events"),
    "event": ("routing", "route_by"),
    "wrapper": ("payload", "schema_id"),
}

NUMBERING = "decode.message_index"  # lakes of earlier releases do not have it
OTHER_LAKE = "use the settings that the lake was created with (--settings), or start a new lake"
CHANGE_NUMBERING = "remove the setting, or run `doctor --repair` to change that of the lake, see docs/decoding.md"


def check_fixed_settings(lake: Lake, settings: Settings) -> Settings:
    """Compare the settings with those that the lake keeps; a new lake stores them.

    Returns:
        The settings. The routing field has the name by which the lake began to call it, if they call it otherwise.

    Raises:
        ConfigurationError: a setting differs from that of the lake.
        ContractError: the lake has tables, but its fixed settings are missing.
    """
    stored = _read(lake)
    if stored is None and lake.tables():
        raise ContractError(
            f"{lake.storage.uri(lake.fixed_settings)} is missing although {lake.uri} has tables",
            "restore it from a backup, or run `doctor --repair` with the lake's settings, which writes it again",
        )
    if stored is None:
        write_fixed_settings(lake, settings)
        return settings
    settings = _with_kept_name(lake, settings, stored)
    for name, value in fixed_settings_of(settings).items():
        if stored.get(name, value) != value:
            what = f"{name} is {value!r}, but the lake {lake.uri} was created with {stored[name]!r}"
            raise ConfigurationError(f"{what}: {CHANGE_NUMBERING if name == NUMBERING else OTHER_LAKE}")
    return settings


def _with_kept_name(lake: Lake, settings: Settings, stored: dict[str, Any]) -> Settings:
    given, kept = settings.event.routing, stored.get("event.routing", settings.event.routing)
    if given == kept or not _are_one_column(lake, given, kept):
        return settings
    return settings.model_copy(update={"event": settings.event.model_copy(update={"routing": kept})})


def _are_one_column(lake: Lake, *fields: str) -> bool:
    """Whether a message has these fields in one column."""
    try:
        aliases = Ledger(lake).catalog().aliases.values()
    except ContractError:
        return False
    return any(len({names.get((), {}).get(field, field) for field in fields}) == 1 for names in aliases)


def record_numbering(lake: Lake, settings: Settings) -> Numbering | None:
    """How the lake numbers messages, after `check_fixed_settings`. A lake without `NUMBERING` stores that of the
    settings."""
    stored, given = _read(lake) or {}, settings.decode.message_index
    if given and NUMBERING not in stored:
        _write(lake, stored | {NUMBERING: given})
    return numbering_of(lake)


def numbering_of(lake: Lake) -> Numbering | None:
    """How the lake numbers messages; None = the lake is older than this setting."""
    numbering: Numbering | None = (_read(lake) or {}).get(NUMBERING)
    return numbering


def only_numbering_differs(lake: Lake, settings: Settings) -> bool:
    """True if only `NUMBERING` differs from the lake's fixed settings: this one may be changed."""
    stored = _read(lake) or {}
    settings = _with_kept_name(lake, settings, stored)
    return {name for name, value in fixed_settings_of(settings).items() if stored.get(name, value) != value} == {
        NUMBERING
    }


def write_fixed_settings(lake: Lake, settings: Settings) -> str:
    """Store the fixed settings in the lake. Returns what was done."""
    try:
        stored = _read(lake) or {}
    except ContractError:  # it is damaged, and written anew
        stored = {}
    _write(lake, {NUMBERING: "registered"} | fixed_settings_of(_with_kept_name(lake, settings, stored)))
    return f"wrote the fixed settings to {lake.storage.uri(lake.fixed_settings)}"


def fixed_settings_of(settings: Settings) -> dict[str, object]:
    """Name -> value of the settings that a lake keeps. `NUMBERING` is left out if the setting is empty: that of the
    lake counts."""
    values = settings.model_dump()
    fixed = {f"{section}.{key}": values[section][key] for section, keys in KEPT.items() for key in keys}
    return fixed | ({NUMBERING: settings.decode.message_index} if settings.decode.message_index else {})


def _read(lake: Lake) -> dict[str, Any] | None:
    stored: dict[str, Any] | None = read_durable(lake.storage, lake.fixed_settings)
    return stored


def _write(lake: Lake, fixed: dict[str, object]) -> None:
    write_durably(lake.storage, lake.fixed_settings, json.dumps(fixed, indent=1), "rules")
