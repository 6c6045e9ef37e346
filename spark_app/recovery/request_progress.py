"""How far a request is. The manifest of each of its units carries the progress that the unit makes, so that what is
decided and what is said of it cannot disagree, wherever a crash falls.
"""

from __future__ import annotations

from typing import Any

from spark_app.recovery.requests import Request, path_of
from spark_app.storage.lake import Lake, read_json, write_quickly
from spark_app.store.manifest import Manifests


def load_progress(lake: Lake, manifests: Manifests, request: Request) -> dict[str, Any] | None:
    """The progress after the last step that counts; None before the first."""
    stored = read_json(path_of(lake, request, "progress")) or {"unit": manifests.last, "value": None}
    value: dict[str, Any] | None = stored["value"]
    for number in manifests.numbers():
        if number > stored["unit"]:
            source = manifests.read(number).source
            value = source["progress"] if source.get("request") == request.id else value
    return value


def save_progress(lake: Lake, manifests: Manifests, request: Request, value: dict[str, Any]) -> None:
    """For steps that decide nothing, and for those who watch."""
    write_quickly(path_of(lake, request, "progress"), {"unit": manifests.last, "value": value}, "progress")
