"""What the process of a sink and people tell each other.

_protolake/sinks/crm/state.json            what the process has last said of it
_protolake/sinks/crm/paused.json           {"why"}: it waits for a person
_protolake/sinks/crm/away.json             a start of the app had not got it in its settings, and has removed its cursor
_protolake/sinks/crm/requests/<id>.json    {"from": 40}: all rows since that unit are sent again; {"rejected":
                                           {table: [coordinates]}, "upto": line of the ledger}: these rows are;
                                           {"all": true}: everything is;
                                           {"erase": [key]}: the target is told whom to forget
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from posixpath import basename
from typing import Any

from spark_app.lake.files.state_files import read_json, write_durably, write_quickly
from spark_app.lake.lake import Lake


def read(lake: Lake, name: str) -> dict[str, Any]:
    """What the process has last said; empty if it never ran."""
    return read_json(lake.storage, f"{lake.sink(name)}/state.json") or {}


def read_all(lake: Lake) -> dict[str, dict[str, Any]]:
    """Sink -> what its process has last said, of those whose process ever ran."""
    found = {basename(key): read(lake, basename(key)) for key in lake.storage.list(lake.sinks)}
    return {name: said for name, said in found.items() if said}


def tell(lake: Lake, name: str, found: Mapping[str, Any]) -> None:
    found = {**found, "at": int(time.time() * 1e6), "pid": os.getpid()}
    write_quickly(lake.storage, f"{lake.sink(name)}/state.json", found, None)


def pause_of(lake: Lake, name: str) -> str | None:
    """Why a sink waits for a person; None = it does not."""
    found = read_json(lake.storage, _pause_key(lake, name))
    return None if found is None else str(found.get("why", ""))


def pause(lake: Lake, name: str, why: str) -> None:
    """The process of the sink makes no further calls within a second."""
    lake.storage.create_folders(lake.sink(name))
    write_durably(lake.storage, _pause_key(lake, name), json.dumps({"why": why}), "sink.state")


def resume(lake: Lake, name: str) -> None:
    lake.storage.delete(_pause_key(lake, name))


def leave(lake: Lake, name: str) -> None:
    """Note that the settings do not have a sink."""
    write_durably(lake.storage, _away_key(lake, name), "{}", "sink.state")


def was_away(lake: Lake, name: str) -> bool:
    """Whether the settings did not have a sink for some time."""
    return lake.storage.exists(_away_key(lake, name))


def come_back(lake: Lake, name: str) -> None:
    lake.storage.delete(_away_key(lake, name))


def request(lake: Lake, name: str, wanted: Mapping[str, Any]) -> None:
    """Ask for rows to be sent again."""
    folder = f"{lake.sink(name)}/requests"
    lake.storage.create_folders(folder)
    write_durably(lake.storage, f"{folder}/{uuid.uuid4().hex[:12]}.json", json.dumps(wanted), "sink.state")


def request_all(lake: Lake, name: str) -> None:
    """Ask for all rows to be sent anew, unless somebody has."""
    if not any("all" in wanted for _, wanted in requests(lake, name)):
        request(lake, name, {"all": True})


def requests(lake: Lake, name: str) -> list[tuple[str, dict[str, Any]]]:
    """(key, what is to be sent again) of the requests that wait."""
    found = ((key, read_json(lake.storage, key)) for key in lake.storage.list(f"{lake.sink(name)}/requests"))
    return [(key, wanted) for key, wanted in found if wanted is not None]


def id_of(key: str) -> str:
    """The id of a request, with which the numbers of its plans end."""
    return basename(key).removesuffix(".json")


def _away_key(lake: Lake, name: str) -> str:
    return f"{lake.sink(name)}/away.json"


def _pause_key(lake: Lake, name: str) -> str:
    return f"{lake.sink(name)}/paused.json"
