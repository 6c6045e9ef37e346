"""The progress of a request. The manifest of each of its units has the progress after that unit, so that progress and
committed records cannot disagree after a crash.
"""

from __future__ import annotations

from typing import Any

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake
from spark_app.recovery.requests import Request, key_of


def load_progress(lake: Lake, manifests: Manifests, request: Request) -> dict[str, Any] | None:
    """The progress after the last completed step; None before the first."""
    stored = read_json(lake.storage, key_of(request, "progress")) or {"unit": manifests.last, "value": None}
    value: dict[str, Any] | None = stored["value"]
    for number in manifests.numbers():
        if number > stored["unit"]:
            source = manifests.read(number).source
            value = source["progress"] if source.get("request") == request.id else value
    return value


def save_progress(lake: Lake, manifests: Manifests, request: Request, value: dict[str, Any]) -> None:
    """Store the progress of a step that commits no unit. The waiting command also watches this file."""
    told = {"unit": manifests.last, "value": value}
    write_quickly(lake.storage, key_of(request, "progress"), told, "progress", owned=True)
