"""Requests of commands to the process that writes the lake. They are files, so that no crash loses a request.

_protolake/requests/<id>.json            the request; removed when its result is written
_protolake/requests/<id>.progress.json   its progress
_protolake/requests/<id>.attempts.json   failed attempts of its next records
_protolake/requests/<id>.tries.json      consecutive attempts without progress
_protolake/requests/<id>.result.json     its result; removed by the command that waited for it
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from spark_app.model.errors import UnreachableError
from spark_app.storage.lake import Lake, read_json, write_durably

POLL_S = 0.2
KEPT_RESULTS = 20  # results that no command waits for


@dataclass(frozen=True)
class Request:
    """One request. It is stored as JSON.

    Attributes:
        arguments: fields of `replay.Filters`, or `names` of a rebuild, as JSON values.
        asked_at: time of the request in seconds since 1970.
    """

    kind: Literal["replay", "rebuild"]
    arguments: dict[str, Any]
    dry_run: bool = False
    asked_at: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def submit(lake: Lake, request: Request) -> None:
    """Store the request. It is executed unless its file is removed."""
    lake.requests.mkdir(parents=True, exist_ok=True)
    write_durably(path_of(lake, request), json.dumps(asdict(request)), "request")


def pending(lake: Lake) -> list[Request]:
    """The requests without a result, oldest first. Invalid files are skipped."""
    found = []
    for path in lake.requests.glob("*.json"):
        if path.stem.isalnum():
            with contextlib.suppress(TypeError):
                found.append(Request(**(read_json(path) | {"id": path.stem})))
    return sorted(found, key=lambda request: (request.asked_at, request.id))


def answer(lake: Lake, request: Request, result: Mapping[str, Any]) -> None:
    """Write the result, then remove the request's other files and the oldest results."""
    write_durably(path_of(lake, request, "result"), json.dumps(result), "answer")
    path_of(lake, request).unlink(missing_ok=True)
    for what in ("progress", "attempts", "tries"):
        path_of(lake, request, what).unlink(missing_ok=True)
    results = sorted(lake.requests.glob("*.result.json"), key=lambda path: path.stat().st_mtime)
    for path in results[:-KEPT_RESULTS]:
        path.unlink(missing_ok=True)


def take_result(lake: Lake, request: Request) -> dict[str, Any] | None:
    """Read and remove the result; None if there is none yet."""
    path = path_of(lake, request, "result")
    result: dict[str, Any] | None = read_json(path)
    if result is not None:
        path.unlink(missing_ok=True)
    return result


def wait_for_result(
    lake: Lake, request: Request, silence_limit_s: float, sleep: Callable[[float], None] = time.sleep
) -> Any:
    """The result of a request that another process executes.

    Raises:
        UnreachableError: no sign of life for `silence_limit_s` seconds. The request stays.
    """
    progress, seen = path_of(lake, request, "progress"), None
    since = time.monotonic()
    while True:
        result = take_result(lake, request)
        if result is not None:
            return result
        moved = progress.stat().st_mtime_ns if progress.exists() else None
        if moved != seen:
            seen, since = moved, time.monotonic()
        if time.monotonic() - since > silence_limit_s:
            raise UnreachableError(
                f"the app that uses the lake {lake.root} did not answer for {silence_limit_s:.0f} s: is it up? "
                f"The request stays and is executed when the app runs; remove {path_of(lake, request)} to cancel it"
            )
        sleep(POLL_S)


def path_of(lake: Lake, request: Request, what: str = "") -> Path:
    """The file of a request; with `what` that of its "progress", "attempts", "tries" or "result"."""
    return lake.requests / (f"{request.id}.{what}.json" if what else f"{request.id}.json")
