"""Requests of the page to the app: a replay, or a decision about a schema; and the requests that are not done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import ui

from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.format import amount, utc
from spark_app.page.widgets import failure, set_status, status
from spark_app.recovery import requests
from spark_app.recovery.requests import Request

POLL_S = 0.3
GIVE_UP_S = 6 * 3600.0
REQUESTED_BY = "the page"  # who has its own token is not known by name
LEFT = "the page no longer waits; the request stays, and the event `request` will have its result"
WITHDRAWN = "the request was withdrawn"
SOME_DONE = f"{WITHDRAWN}; what the app has done for it until then remains"
Kind = Literal["replay", "accept"]
ACTIONS = {"replay": "replay", "accept": "decide"}  # what a user may, for each kind


@dataclass(frozen=True)
class PendingRequest:
    id: str
    description: str
    progress: str


def pending_requests(lake: Lake, is_up: bool) -> list[PendingRequest]:
    """The oldest first. `is_up`: whether the app runs."""
    try:
        found = requests.pending(lake)
    except OSError:
        return []
    return [PendingRequest(one.id, _description(one), progress_text(lake, one, is_up)) for one in found]


def cancel(lake: Lake, id: str, user: str = "") -> str:
    """Remove the request of a user, or without one that of anybody; returns what became of it. Units that it has
    committed stay."""
    for one in requests.pending(lake):
        if one.id == id:
            if user and one.asked_by != user:
                return "It is another one's request: who has the token of the page may cancel it."
            try:
                requests.discard(lake, one)
            except OSError as error:
                return f"The request cannot be removed ({error.strerror})."
            return "The request is cancelled. What it has done already stays."
    return "The request is done, or somebody has cancelled it."


def _description(request: Request) -> str:
    chosen = ", ".join(f"{name} {_text(value)}" for name, value in request.arguments.items() if value)
    how = " (it only counts)" if request.dry_run else ""
    source = f"requested by {request.asked_by} at {utc(request.asked_at)} UTC"
    return one_line(f"{request.kind}{how}{f': {chosen}' if chosen else ''}, {source}")[:500]


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


class SentRequest:
    """One request of the page. `withdraw` and `leave` end the waiting."""

    def __init__(self, context: PageContext, kind: Kind, arguments: dict[str, Any], dry_run: bool = False):
        self._context = context
        self._request = Request(kind, arguments, dry_run, asked_by=context.user or REQUESTED_BY)
        self._ended = ""  # why nobody waits any more

    async def result(self, show_progress: Callable[[str], object]) -> dict[str, Any]:
        """Leave the request for the app and wait for its result; {"error": why} if there is none.

        `show_progress` gets a sentence about its progress, again and again.
        """
        lake = self._context.lake
        if not self._context.may(ACTIONS[self._request.kind]):
            return {
                "error": f"you may not do that: users.{self._context.user}.may has no {ACTIONS[self._request.kind]}"
            }
        try:
            requests.submit(lake, self._request)
        except OSError as error:
            return {"error": f"the page cannot write to the requests of the lake ({error.strerror})"}
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                result = requests.take_result(lake, self._request)
            except OSError as error:
                return {"error": f"the page cannot remove the result of the request ({error.strerror})"}
            if result is not None:
                return result
            if self._ended:
                return {"error": self._ended}
            show_progress(progress_text(lake, self._request, self._context.observed.newest.is_up))
            await asyncio.sleep(POLL_S)
        return {"error": LEFT}

    def leave(self) -> None:
        """Let the app carry the request out, although nobody waits for its result."""
        self._ended = LEFT

    def withdraw(self) -> None:
        """Remove the request. An app that is at it ends it after its present step.

        Raises:
            OSError: the page cannot write to the requests of the lake.
        """
        requests.discard(self._context.lake, self._request)
        self._ended = WITHDRAWN if self.is_dry_run else SOME_DONE

    @property
    def is_dry_run(self) -> bool:
        return self._request.dry_run


class RequestLine:
    """Waits for one request at a time.

    Attributes:
        line: shows the progress, and then what the caller makes of the result.
    """

    def __init__(self, context: PageContext):
        self._context = context
        self._sent: SentRequest | None = None
        with ui.row().classes("items-center no-wrap"):
            self._spinner = ui.spinner()
            self.line = status().props('data-testid="progress"').style("min-height: 1.5em")
        self._spinner.set_visibility(False)
        self._cancel: ui.button | None = None
        ui.context.client.on_delete(self.end)

    def add_cancel(self) -> None:
        """The button, which is there while the request waits."""
        self._cancel = ui.button("Cancel", on_click=self._withdraw).props("flat no-caps")
        self._cancel.set_visibility(False)

    async def send(self, kind: Kind, arguments: dict[str, Any], dry_run: bool = False) -> dict[str, Any] | None:
        """The result, {"error": why} if there is none, which the line shows, too; None if nobody waits any more."""
        sent = self._sent = SentRequest(self._context, kind, arguments, dry_run)
        self._wait(True)
        what = "Dry run, which only counts. " if dry_run else ""
        result = await sent.result(lambda progress: set_status(self.line, f"{what}{progress}"))
        if sent is not self._sent:
            return None
        self._sent = None
        self._wait(False)
        if "error" in result:
            failure("There is no result", result["error"], self.line)
        return result

    def end(self) -> None:
        """Nobody looks any more: a dry run is of no use then, and anything else goes on."""
        if self._sent is not None and self._sent.is_dry_run:
            self._withdraw()
        elif self._sent is not None:
            self._sent.leave()
        self._sent = None

    def _withdraw(self) -> None:
        """Remove the request, so that no start of the app carries it out."""
        try:
            if self._sent is not None:
                self._sent.withdraw()
        except OSError as error:
            failure("The request cannot be removed, and the app carries it out", error.strerror, self.line)

    def _wait(self, waits: bool) -> None:
        self._spinner.set_visibility(waits)
        if self._cancel is not None:
            self._cancel.set_visibility(waits)
