"""What must stay the same while a lake lives: how records become rows, and of which tables.

A lake remembers it, so that a command that was given other settings than the lake's own does not place records twice.
"""

from __future__ import annotations

import json

from spark_app.errors import ConfigurationError, ContractError
from spark_app.lake import Lake, read_durable, write_durably
from spark_app.settings import Settings

KEPT = {
    "tables": ("bronze", "silver", "gold", "quarantine", "deferred", "resolved", "lost"),
    "event": ("routing", "route_by"),
    "wrapper": ("payload", "schema_id"),
}


def check_rules(lake: Lake, settings: Settings) -> None:
    """
    Raises:
        ConfigurationError: a setting is not what the lake was made with.
        ContractError: the lake has tables, but no longer says how they were made.
    """
    rules = rules_of(settings)
    path = lake.state / "rules.json"
    stored = read_durable(path)
    if stored is None and lake.tables():
        raise ContractError(
            f"{path} is missing although {lake.root} has tables",
            "restore it from a copy, or give the settings that they were made with to `doctor --repair`, which writes "
            "it again",
        )
    if stored is None:
        keep_rules(lake, settings)
        return
    for name, value in rules.items():
        if stored.get(name, value) != value:
            raise ConfigurationError(
                f"{name} is {value!r}, but the lake {lake.root} was made with {stored[name]!r}: "
                "give the settings that belong to the lake (--settings), or start a new one"
            )


def keep_rules(lake: Lake, settings: Settings) -> str:
    """Write down that the lake has the rules of the settings. Returns what was done."""
    path = lake.state / "rules.json"
    write_durably(path, json.dumps(rules_of(settings), indent=1), "rules")
    return f"wrote the rules of these settings to {path}"


def rules_of(settings: Settings) -> dict[str, object]:
    values = settings.model_dump()
    return {f"{section}.{key}": values[section][key] for section, keys in KEPT.items() for key in keys}
