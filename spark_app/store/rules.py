"""What must stay the same while a lake lives: how records become rows, and of which tables.

A lake remembers it, so that a command that was given other settings than the lake's own does not place records twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_app.model.catalog import Numbering
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake, read_durable, write_durably

KEPT = {
    "tables": ("bronze", "silver", "gold", "quarantine", "deferred", "resolved", "lost"),
    "event": ("routing", "route_by"),
    "wrapper": ("payload", "schema_id"),
}

NUMBERING = "decode.message_index"  # lakes of earlier releases have no such rule
OTHER_LAKE = "use the settings that the lake was created with (--settings), or start a new lake"
CHANGE_NUMBERING = "remove the setting, or run `doctor --repair` to change the lake's rule, see docs/decoding.md"


def check_rules(lake: Lake, settings: Settings) -> None:
    """
    Raises:
        ConfigurationError: a setting is not what the lake was made with.
        ContractError: the lake has tables, but no longer says how they were made.
    """
    stored = _read(lake)
    if stored is None and lake.tables():
        raise ContractError(
            f"{_path(lake)} is missing although {lake.root} has tables",
            "restore it from a backup, or run `doctor --repair` with the lake's settings, which writes it again",
        )
    if stored is None:
        write_rules(lake, settings)
        return
    for name, value in rules_of(settings).items():
        if stored.get(name, value) != value:
            what = f"{name} is {value!r}, but the lake {lake.root} was created with {stored[name]!r}"
            raise ConfigurationError(f"{what}: {CHANGE_NUMBERING if name == NUMBERING else OTHER_LAKE}")


def record_message_index_rule(lake: Lake, settings: Settings) -> Numbering | None:
    """The lake's rule for message indexes, after `check_rules`: one that has none gets that of the settings."""
    stored, given = _read(lake) or {}, settings.decode.message_index
    if given and NUMBERING not in stored:
        _write(lake, stored | {NUMBERING: given})
    return message_index_rule(lake)


def message_index_rule(lake: Lake) -> Numbering | None:
    """The lake's rule for message indexes, as it is written down; None = it was made before there was one."""
    rule: Numbering | None = (_read(lake) or {}).get(NUMBERING)
    return rule


def only_message_index_rule_differs(lake: Lake, settings: Settings) -> bool:
    """Whether the settings are the lake's but for the rule for message indexes, which may be changed on purpose."""
    stored = _read(lake) or {}
    return {name for name, value in rules_of(settings).items() if stored.get(name, value) != value} == {NUMBERING}


def write_rules(lake: Lake, settings: Settings) -> str:
    """Write down that the lake has the rules of the settings. Returns what was done."""
    _write(lake, {NUMBERING: "registered"} | rules_of(settings))
    return f"wrote the rules of these settings to {_path(lake)}"


def rules_of(settings: Settings) -> dict[str, object]:
    """The rules that the settings name: all but the one for message indexes, which may be left to the lake."""
    values = settings.model_dump()
    rules = {f"{section}.{key}": values[section][key] for section, keys in KEPT.items() for key in keys}
    return rules | ({NUMBERING: settings.decode.message_index} if settings.decode.message_index else {})


def _path(lake: Lake) -> Path:
    return lake.state / "rules.json"


def _read(lake: Lake) -> dict[str, Any] | None:
    stored: dict[str, Any] | None = read_durable(_path(lake))
    return stored


def _write(lake: Lake, rules: dict[str, object]) -> None:
    write_durably(_path(lake), json.dumps(rules, indent=1), "rules")
