"""Has the app do what somebody asks for on the page: replay, resume, accept-schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from spark_app.page.context import PageContext
from spark_app.page.said import amount
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from spark_app.storage.state_files import read_json

POLL_S = 0.3
GIVE_UP_S = 6 * 3600.0
ASKED_BY = "the page"  # who has its token is not known by name
LEFT = "the page no longer waits; the request stays, and the event `request` will have its result"
WITHDRAWN = "the request was withdrawn"
SOME_DONE = f"{WITHDRAWN}; what the app has done for it until then remains"
Kind = Literal["replay", "resume", "accept"]


class Asked:
    """One request of the page. `withdraw` and `leave` end the waiting."""

    def __init__(self, context: PageContext, kind: Kind, arguments: dict[str, Any], dry_run: bool = False):
        self._context = context
        self._request = Request(kind, arguments, dry_run, asked_by=ASKED_BY)
        self._ended = ""  # why nobody waits any more

    async def result(self, tell: Callable[[str], object]) -> dict[str, Any]:
        """Leave the request for the app and wait for its result; {"error": why} if there is none.

        `tell` gets a sentence about its progress, again and again.
        """
        lake = self._context.lake
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
            tell(self._progress())
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
        storage = self._context.lake.storage
        storage.delete(*(requests.key_of(self._request, what) for what in ("", "progress", "attempts", "tries")))
        self._ended = WITHDRAWN if self._request.dry_run else SOME_DONE

    def _progress(self) -> str:
        if not self._context.observed.newest.is_up:
            return "The app is down. It carries the request out at its next start."
        stored = read_json(self._context.lake.storage, requests.key_of(self._request, "progress")) or {}
        value = stored.get("value")
        if not isinstance(value, dict):
            return "The app begins between two batches ..."
        counts = [f"{name} {amount(count)}" for name, count in _counts(value)]
        return f"The app is at it: {', '.join(counts)}" if counts else "The app is at it ..."


def _counts(progress: dict[str, Any]) -> list[tuple[str, int]]:
    """The numbers of a progress; of those by cause or table their sum."""
    found = []
    for name, value in progress.items():
        values = list(value.values()) if isinstance(value, dict) else [value]
        if values and all(type(one) is int for one in values):
            found.append((name, sum(values)))
    return found


async def carry_out(
    context: PageContext, kind: Kind, arguments: dict[str, Any], tell: Callable[[str], object], dry_run: bool = False
) -> dict[str, Any]:
    """`Asked.result` of a request that nobody withdraws."""
    return await Asked(context, kind, arguments, dry_run).result(tell)
