"""Requests of commands and of the page to the process that writes the lake, as files, so that no crash loses one.

_protolake/requests/<id>.json            the request; removed when its result is written
_protolake/requests/<id>.progress.json   its progress
_protolake/requests/<id>.attempts.json   failed attempts of its next records
_protolake/requests/<id>.tries.json      consecutive attempts without progress
_protolake/requests/<id>.result.json     its result; removed by whoever waited for it
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from posixpath import basename
from typing import Any, Literal

from spark_app.lake.files.state_files import read_json, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.errors import UnreachableError

POLL_S = 0.2
KEPT_RESULTS = 20  # results that nobody waits for


@dataclass(frozen=True)
class Request:
    """One request. It is stored as JSON.

    Attributes:
        arguments: JSON values: the fields of `replay.Filters`, `names` of a rebuild or a renew, or `table` and
            `failing` of a resume, or `schema` and `policy` of an accept.
        asked_at: time of the request in seconds since 1970.
        asked_by: user and machine.
    """

    kind: Literal["replay", "rebuild", "renew", "resume", "accept"]
    arguments: dict[str, Any]
    dry_run: bool = False
    asked_at: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    asked_by: str = field(default_factory=lambda: _user())


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # the user of a container may have no name
        return f"{os.getuid()}@{socket.gethostname()}"


def submit(lake: Lake, request: Request) -> None:
    """Store the request. It is executed unless its file is removed."""
    lake.storage.create_folders(lake.requests)
    write_durably(lake.storage, key_of(request), json.dumps(asdict(request)), "request")


def pending(lake: Lake) -> list[Request]:
    """The requests without a result, oldest first. Invalid files are skipped."""
    found = []
    for key in lake.storage.list(lake.requests):
        name = basename(key).removesuffix(".json")
        if name.isalnum() and key.endswith(".json"):
            with contextlib.suppress(TypeError):
                request = Request(**(read_json(lake.storage, key) | {"id": name}))
                found += [request] if _is_valid(request) else []
    return sorted(found, key=lambda request: (request.asked_at, request.id))


def is_rebuilding(lake: Lake) -> bool:
    """Whether a rebuild is pending. Gold is not updated then: the rebuild recomputes it when silver is complete."""
    return any(request.kind in ("rebuild", "renew") and not request.dry_run for request in pending(lake))


def _is_valid(request: Request) -> bool:
    """Whether the values of a file are of their types."""
    texts = (request.kind, request.asked_by)
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(request.arguments, dict)
        and type(request.dry_run) is bool
        and type(request.asked_at) in (int, float)
    )


def discard(lake: Lake, request: Request) -> None:
    """Delete the request's files, but not its result. An app that is at it ends it after its present step.

    Raises:
        OSError: the requests of the lake cannot be written to.
    """
    lake.storage.delete(*(key_of(request, what) for what in ("", "progress", "attempts", "tries")))


def answer(lake: Lake, request: Request, result: Mapping[str, Any]) -> None:
    """Write the result, then remove the request's other files and the oldest results."""
    storage = lake.storage
    write_durably(storage, key_of(request, "result"), json.dumps(result), "answer")
    discard(lake, request)
    results = [key for key in storage.list(lake.requests) if key.endswith(".result.json")]
    results.sort(key=lambda key: storage.changed_at(key) or 0)  # 0: its command has just removed it
    storage.delete(*results[:-KEPT_RESULTS])


def take_result(lake: Lake, request: Request) -> dict[str, Any] | None:
    """Read and remove the result; None if there is none yet."""
    key = key_of(request, "result")
    result: dict[str, Any] | None = read_json(lake.storage, key)
    if result is not None:
        lake.storage.delete(key)
    return result


def wait_for_result(
    lake: Lake, request: Request, silence_limit_s: float, sleep: Callable[[float], None] = time.sleep
) -> Any:
    """The result of a request that another process executes.

    Raises:
        UnreachableError: no sign of life for `silence_limit_s` seconds. The request stays.
    """
    progress, seen = key_of(request, "progress"), None
    since = time.monotonic()
    while True:
        result = take_result(lake, request)
        if result is not None:
            return result
        moved = lake.storage.changed_at(progress)
        if moved != seen:
            seen, since = moved, time.monotonic()
        if time.monotonic() - since > silence_limit_s:
            file = lake.storage.uri(key_of(request))
            raise UnreachableError(
                f"the app that uses the lake {lake.address} did not answer for {silence_limit_s:.0f} s: is it up? "
                f"The request stays and is executed when the app runs; remove {file} to cancel it"
            )
        sleep(POLL_S)


def key_of(request: Request, what: str = "") -> str:
    """The key of a request's file; with `what` that of its "progress", "attempts", "tries" or "result"."""
    return f"{Lake.requests}/{request.id}.{what}.json" if what else f"{Lake.requests}/{request.id}.json"
