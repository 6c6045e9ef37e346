"""Has the app do what somebody asks for on the page: a replay, or a decision about a schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from spark_app.page.context import PageContext
from spark_app.page.pending_requests import progress_text
from spark_app.recovery import requests
from spark_app.recovery.requests import Request

POLL_S = 0.3
GIVE_UP_S = 6 * 3600.0
ASKED_BY = "the page"  # who has its token is not known by name
LEFT = "the page no longer waits; the request stays, and the event `request` will have its result"
WITHDRAWN = "the request was withdrawn"
SOME_DONE = f"{WITHDRAWN}; what the app has done for it until then remains"
Kind = Literal["replay", "accept"]


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
            tell(progress_text(lake, self._request, self._context.observed.newest.is_up))
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
