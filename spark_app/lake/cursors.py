"""The cursors of the followers: the last unit that each includes, whatever crashes.

    _protolake/followers/gold.json     {"unit": 40}
    _protolake/sinks/crm/cursor.json   the same, of the sink crm

A follower's process alone writes its cursor, after everything up to the unit is durable: it may be behind, but is never
ahead. Manifests behind any cursor are kept, so a process beside the app that follows the units only needs a file here.
"""

from __future__ import annotations

import json
from posixpath import basename

from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake

SINK = "sink."  # before the name of a sink in that of its follower


def key_of(lake: Lake, name: str) -> str:
    if name.startswith(SINK):
        return f"{lake.sink(name.removeprefix(SINK))}/cursor.json"
    return f"{lake.followers}/{name}.json"


def read(lake: Lake, name: str) -> int | None:
    """The last unit that a follower includes; None if it never had a unit.

    Raises:
        ContractError: the file is damaged.
    """
    stored = read_durable(lake.storage, key_of(lake, name))
    if stored is None and name == "gold":  # a lake of 0.2.0 has it there
        stored = {"unit": (read_durable(lake.storage, lake.synced) or {}).get("folded")}
    return None if stored is None else stored["unit"]


def names(lake: Lake) -> list[str]:
    """The followers that have stored a cursor, whatever process they belong to."""
    own = [basename(key).removesuffix(".json") for key in lake.storage.list(lake.followers) if key.endswith(".json")]
    sinks = [f"{SINK}{basename(key)}" for key in lake.storage.list(lake.sinks)]
    return own + [name for name in sinks if lake.storage.exists(key_of(lake, name))]


def store(lake: Lake, name: str, unit: int) -> None:
    """Set the cursor; an earlier unit gives the follower the later ones again, if it does not know that it has them."""
    write_durably(lake.storage, key_of(lake, name), json.dumps({"unit": unit}), "cursor")
