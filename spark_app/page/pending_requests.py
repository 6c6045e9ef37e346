"""The requests that wait for the app or that it carries out, with their progress, and how to cancel one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.text import one_line
from spark_app.page.moments import utc
from spark_app.page.said import amount
from spark_app.recovery import requests
from spark_app.recovery.requests import Request


@dataclass(frozen=True)
class PendingRequest:
    id: str
    said: str
    progress: str


def pending_requests(lake: Lake, is_up: bool) -> list[PendingRequest]:
    """The oldest first. `is_up`: whether the app runs."""
    try:
        found = requests.pending(lake)
    except OSError:
        return []
    return [PendingRequest(one.id, _said(one), progress_text(lake, one, is_up)) for one in found]


def cancel(lake: Lake, id: str) -> str:
    """Remove the request; returns what became of it. Units that it has committed stay."""
    for one in requests.pending(lake):
        if one.id == id:
            try:
                requests.discard(lake, one)
            except OSError as error:
                return f"The request cannot be removed ({error.strerror})."
            return "The request is cancelled. What it has done already stays."
    return "The request is done, or somebody has cancelled it."


def _said(request: Request) -> str:
    chosen = ", ".join(f"{name} {_text(value)}" for name, value in request.arguments.items() if value)
    how = " (it only counts)" if request.dry_run else ""
    asked = f"asked for by {request.asked_by} at {utc(request.asked_at)} UTC"
    return one_line(f"{request.kind}{how}{f': {chosen}' if chosen else ''}, {asked}")[:500]


def _text(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def progress_text(lake: Lake, request: Request, is_up: bool) -> str:
    """A sentence. `is_up`: whether the app runs."""
    if not is_up:
        return "The app is down. It carries the request out at its next start."
    value = (read_json(lake.storage, requests.key_of(request, "progress")) or {}).get("value")
    if not isinstance(value, dict):
        return "The app carries it out between two batches, after the requests before it."
    counts = ", ".join(f"{name} {amount(count)}" for name, count in _counts(value))
    return one_line(f"The app works on it{f': {counts} so far' if counts else ''}.")


def _counts(progress: dict[str, Any]) -> list[tuple[str, int]]:
    """The numbers of a progress; of those by cause or table their sum."""
    found = []
    for name, value in progress.items():
        values = list(value.values()) if isinstance(value, dict) else [value]
        if values and all(type(one) is int for one in values):
            found.append((name, sum(values)))
    return found
