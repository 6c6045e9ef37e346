"""The settings of the last start, which commands beside the app use, and their differences to those of the one before:
the audit log of settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from spark_app.lake.files.state_files import read_json, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.events import Event
from spark_app.settings.models import Settings

# Secrets are in files, which settings name. The values of these settings are nobody's business either: the address of a
# webhook often is a secret, although it should then be in a file.
CONCEALED = {"kafka.sasl_username", "kafka.oauth_extensions", "registry.username", "alerts.webhook"}
OF_PROCESS = {"lake.path", "spark.master", "spark.auth_secret_file"}  # a cluster may have ended with its stack
MOST_NAMED = 200


def settings_event(lake: Lake, settings: Settings) -> Event:
    """The event of a start: the digest of all settings, and setting -> [before, now] for those that differ."""
    now, before = _flat(settings), read_json(lake.storage, lake.settings)
    digest = hashlib.sha256(json.dumps(now, sort_keys=True).encode()).hexdigest()
    if before is None:
        return Event("settings", "There are no settings of an earlier start", details={"digest": digest, "changed": {}})
    pairs = {name: [before.get(name), now.get(name)] for name in sorted(now.keys() | before.keys())}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    text = f"{len(changed):,} settings differ from those of the last start"
    named = dict(list(changed.items())[:MOST_NAMED])
    return Event("settings", text, details={"digest": digest, "changed": named})


def keep_settings(lake: Lake, settings: Settings) -> None:
    """Store the settings, for `last_settings` and the next `settings_event`."""
    now = _flat(settings)
    if read_json(lake.storage, lake.settings) != now:
        write_durably(lake.storage, lake.settings, json.dumps(now, indent=0), "settings")


def last_settings(lake: Lake) -> dict[str, Any]:
    """Section -> settings of the last start without concealed ones and those of its process; empty without a start. A
    bucket has other writers: it says neither which files to read as secrets, nor what Spark runs."""
    found = dict[str, Any]()
    for name, value in (read_json(lake.storage, lake.settings) or {}).items():
        is_trusted = lake.storage.is_local or not (name.startswith(("store.", "spark.")) or name.endswith("_file"))
        if "." in name and is_trusted and name not in CONCEALED | OF_PROCESS:
            *path, last = name.split(".", 2 if name.startswith("spark.options.") else -1)
            inner = found
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value
    return found


def _flat(settings: Settings) -> dict[str, Any]:
    flat = dict(_leaves("", settings.model_dump(mode="json", by_alias=True)))
    for name in CONCEALED & flat.keys():
        flat[name] = flat[name] and hashlib.sha256(str(flat[name]).encode()).hexdigest()[:12]
    return flat


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, inner)
    else:
        yield name, value
