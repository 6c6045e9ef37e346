"""The events of a request: who asked for what, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_app.model.events import Event
from spark_app.recovery.requests import Request


def start_event(request: Request) -> Event:
    """A request begins, or goes on after a restart."""
    return Event("request", f"{_describe(request)} begins", details=_details(request))


def done_event(request: Request, result: Mapping[str, Any]) -> Event:
    """A request has its result. Of the result only numbers are told: its texts may have keys of gold."""
    failed = "error" in result
    numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
    said = f"{_describe(request)} {'has failed, see the log' if failed else 'is done'}"
    return Event("request", said, "ERROR" if failed else "INFO", details=_details(request) | {"result": numbers})


def _describe(request: Request) -> str:
    how = ", which only counts," if request.dry_run else ""
    return f"The {request.kind} {request.id}{how} that {request.asked_by} asked for"


def _details(request: Request) -> dict[str, Any]:
    kept = ("id", "kind", "arguments", "dry_run", "asked_at", "asked_by")
    return {name: getattr(request, name) for name in kept}
