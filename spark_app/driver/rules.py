"""What must stay the same while a lake lives: how records become rows, and of which tables.

A lake remembers it, so that a command that was given other settings than the lake's own does not place records twice.
"""

from __future__ import annotations

import json

from spark_app.config import Settings
from spark_app.errors import ConfigurationError
from spark_app.lake import Lake, read_durable, write_durably

KEPT = {
    "tables": ("bronze", "silver", "gold", "quarantine", "deferred", "resolved"),
    "event": ("routing", "route_by"),
    "wrapper": ("payload", "schema_id"),
}


def check_rules(lake: Lake, settings: Settings) -> None:
    """
    Raises:
        ConfigurationError: a setting is not what the lake was made with.
    """
    values = settings.model_dump()
    rules = {f"{section}.{key}": values[section][key] for section, keys in KEPT.items() for key in keys}
    path = lake.state / "rules.json"
    stored = read_durable(path)
    if stored is None:
        write_durably(path, json.dumps(rules, indent=1), "rules")
        return
    for name, value in rules.items():
        if stored.get(name, value) != value:
            raise ConfigurationError(
                f"{name} is {value!r}, but the lake {lake.root} was made with {stored[name]!r}: "
                "give the settings that belong to the lake (--settings), or start a new one"
            )
