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
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from posixpath import basename
from typing import TYPE_CHECKING, Any, Literal

from spark_app.lake.files.state_files import read_json, write_durably, write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.errors import UnreachableError
from spark_app.model.events import Event

if TYPE_CHECKING:
    from spark_app.lake.delta.manifest import Manifests

POLL_S = 0.2
KEPT_RESULTS = 20  # results that nobody waits for
MOST_ATTEMPTS = 10
NO_REASON_KNOWN = "the process ended for an unknown reason"


@dataclass(frozen=True)
class Request:
    """One request. It is stored as JSON.

    Attributes:
        arguments: JSON values: the fields of `replay.Filters`, `names` of a rebuild or a renew, or `table` and
            `failing` of a resume, `schema` and `policy` of an accept, or `table` of a drop.
        asked_at: time of the request in seconds since 1970.
        asked_by: user and machine.
    """

    kind: Literal["replay", "rebuild", "renew", "resume", "accept", "drop"]
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
        and abs(request.asked_at) <= sys.float_info.max  # neither infinite nor no number
    )


def discard(lake: Lake, request: Request) -> None:
    """Delete the request's files, but not its result. An app that is at it ends it after its present step.

    Raises:
        OSError: the requests of the lake cannot be written to.
    """
    lake.storage.delete(*(key_of(request, what) for what in ("", "progress", "attempts", "tries")))


def finish(lake: Lake, request: Request, result: Mapping[str, Any]) -> None:
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
                f"the app that uses the lake {lake.uri} did not answer for {silence_limit_s:.0f} s: is it up? "
                f"The request stays and is executed when the app runs; remove {file} to cancel it"
            )
        sleep(POLL_S)


def key_of(request: Request, what: str = "") -> str:
    """The key of a request's file; with `what` that of its "progress", "attempts", "tries" or "result"."""
    return f"{Lake.requests}/{request.id}.{what}.json" if what else f"{Lake.requests}/{request.id}.json"


def load_progress(lake: Lake, manifests: Manifests, request: Request) -> dict[str, Any] | None:
    """The progress after the last completed step; None before the first. The manifest of each unit of a request has the
    progress after that unit, so that progress and committed records cannot disagree after a crash."""
    stored = read_json(lake.storage, key_of(request, "progress")) or {"unit": manifests.last, "value": None}
    value: dict[str, Any] | None = stored["value"]
    for number in manifests.numbers():
        if number > stored["unit"]:
            source = manifests.read(number).source
            value = source["progress"] if source.get("request") == request.id else value
    return value


def save_progress(lake: Lake, manifests: Manifests, request: Request, value: dict[str, Any]) -> None:
    """Store the progress of a step that commits no unit. The waiting command also watches this file."""
    stored = {"unit": manifests.last, "value": value}
    write_quickly(lake.storage, key_of(request, "progress"), stored, "progress", owned=True)


class RequestAttempts:
    """Counts consecutive attempts of a request without progress, also across crashes of the process: one that ends the
    JVM each time fails after `MOST_ATTEMPTS`.

    A change of its progress file or of its `attempts` file is progress; the latter has the attempts of single records,
    which `units/driver/ingest` counts and limits.
    """

    def __init__(self, lake: Lake, request: Request):
        self._storage = lake.storage
        self._key = key_of(request, "tries")
        self._progress_files = [key_of(request, what) for what in ("progress", "attempts")]
        self._stored: dict[str, Any] = {}

    def begin(self) -> str | None:
        """Count an attempt before it is made; returns the last error if there were too many attempts, else None."""
        stored = read_json(self._storage, self._key) or {}
        at = [read_json(self._storage, key) for key in self._progress_files]
        same = stored.get("at") == at
        tries, reason = (int(stored["tries"]), stored["said"]) if same else (0, NO_REASON_KNOWN)
        if tries >= MOST_ATTEMPTS:
            return str(reason)
        self._keep(at, tries + 1, NO_REASON_KNOWN)
        return None

    def failed(self, reason: str) -> None:
        """Store the error of the current attempt."""
        self._keep(self._stored["at"], self._stored["tries"], reason)

    def withdraw(self) -> None:
        """Do not count the current attempt: its error has nothing to do with the request."""
        self._keep(self._stored["at"], self._stored["tries"] - 1, NO_REASON_KNOWN)

    def _keep(self, at: list[Any], tries: int, reason: str) -> None:
        self._stored = {"at": at, "tries": tries, "said": reason}
        write_quickly(self._storage, self._key, self._stored, "attempt", owned=True)


def start_event(request: Request) -> Event:
    """A request begins, or goes on after a restart."""
    return Event("request", f"{_describe(request)} begins", details=_details(request))


def done_event(request: Request, result: Mapping[str, Any]) -> Event:
    """A request has its result. The event has only the numbers of the result: its texts may have keys of gold."""
    failed = "error" in result
    numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
    text = f"{_describe(request)} {'has failed, see the log' if failed else 'is done'}"
    return Event("request", text, "ERROR" if failed else "INFO", details=_details(request) | {"result": numbers})


def _describe(request: Request) -> str:
    how = ", which only counts," if request.dry_run else ""
    return f"The {request.kind} {request.id}{how} that {request.asked_by} asked for"


def _details(request: Request) -> dict[str, Any]:
    kept = ("id", "kind", "arguments", "dry_run", "asked_at", "asked_by")
    return {name: getattr(request, name) for name in kept}


def replay_arguments(
    causes: Sequence[str] = (),
    schemas: Sequence[str] = (),
    rules: Sequence[str] = (),
    dropped: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """The fields of `replay.Filters` as JSON values.

    Args:
        where: `since`, `until`, `topic`, `partition` and `offsets`; those that are left out are None.
    """
    ranges = {name: where.get(name) for name in ("since", "until", "topic", "partition", "offsets")}
    arguments = {"causes": list(causes), "schemas": list(schemas), **ranges}
    if rules or dropped:  # an app of an earlier release executes a request without them
        arguments |= {"rules": list(rules), "dropped": dropped}
    return arguments


def selects_some(arguments: dict[str, Any]) -> bool:
    """Whether the filters leave records out; dropped records instead of quarantined ones are no filter."""
    return any(value not in (None, []) for name, value in arguments.items() if name != "dropped")
