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
Kind = Literal["replay", "resume", "accept"]


async def carry_out(
    context: PageContext, kind: Kind, arguments: dict[str, Any], tell: Callable[[str], object], dry_run: bool = False
) -> dict[str, Any]:
    """Leave a request for the app and wait for its result; {"error": why} if there is none.

    `tell` gets a sentence about its progress whenever that changes. Whoever stops waiting leaves the request there.
    """
    request = Request(kind, arguments, dry_run, asked_by=ASKED_BY)
    try:
        requests.submit(context.lake, request)
    except OSError as error:
        return {"error": f"the page cannot write to the requests of the lake ({error.strerror})"}
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        result = requests.take_result(context.lake, request)
        if result is not None:
            return result
        tell(_progress(context, request))
        await asyncio.sleep(POLL_S)
    return {"error": "the page no longer waits; the request stays, and the event `request` will have its result"}


def _progress(context: PageContext, request: Request) -> str:
    if not context.observed.newest.is_up:
        return "The app is down. It carries the request out at its next start."
    stored = read_json(context.lake.storage, requests.key_of(request, "progress")) or {}
    value = stored.get("value")
    if not isinstance(value, dict):
        return "The app begins between two batches ..."
    counts = (f"{name} {amount(count)}" for name, count in value.items() if type(count) is int)
    return f"The app is at it: {', '.join(counts)}"
