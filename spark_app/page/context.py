"""The context of every view: the lake, its readings, and results of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from nicegui import Client, run, ui

from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.page.observations import Observations
from spark_app.page.queries.child_process import Child
from spark_app.settings.models import Settings

CHILD = "spark_app.page.job"
WITHIN_S = 30.0
TURNS = asyncio.Semaphore(4)  # jobs of all tabs at the same time, because each is a process
EVERY_S = 0.5
PATIENCE_S = 20.0  # for a browser that is busy
LEAST_S = 5.0  # between two jobs, because each is a process
AGAIN_S = 10.0  # after a failure


async def _run_job(client: Client, child: Child | None, request: dict[str, Any]) -> dict[str, Any]:
    result = None
    async with TURNS if child is None else contextlib.nullcontext():
        if not client.is_deleted:
            result = await run.io_bound((child or Child()).run, CHILD, request, WITHIN_S)
    if client.is_deleted:
        raise asyncio.CancelledError
    return {"failed": "the page ends"} if result is None else result


@dataclass(frozen=True)
class PageContext:
    lake: Lake
    settings: Settings
    observed: Observations
    user: str = ""  # of the settings; "" = who has the token of the page

    @property
    def sees_all(self) -> bool:
        return not self.user or self.settings.users[self.user].sees_all

    def may(self, action: str) -> bool:
        """Whether the user may do this: query, replay or decide."""
        return not self.user or action in self.settings.users[self.user].may

    @property
    def layout(self) -> TableNames:
        return self.settings.layout

    def run_job(self, job: str, child: Child | None = None, **arguments: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        """The result of a job of a view, which runs in a process of its own; {"failed": why} if there is none.

        Args:
            child: the process, for whoever may end it, and sees to turns.

        Raises:
            CancelledError: the tab was closed meanwhile, so that nothing is drawn any more.
        """
        request = {"job": job, "arguments": arguments, "settings": self.settings.model_dump_json()}
        # Of the caller's task: another one may await the result.
        return _run_job(ui.context.client, child, request)


def live(context: PageContext, refresh: Callable[[], None]) -> None:
    """Call `refresh` now and with each new reading, twice a second, as long as the view is open."""
    seen = -1

    def look() -> None:
        nonlocal seen
        if context.observed.number != seen:
            seen = context.observed.number
            refresh()

    refresh()
    ui.timer(EVERY_S, look)


class RepeatedJob:
    """Runs a job again when what it reads has changed."""

    def __init__(self, context: PageContext, job: str, version: Callable[[], Any], least_s: float = LEAST_S):
        """
        Args:
            version: of what the job reads; another one is a change.
            least_s: seconds between two runs.
        """
        self._context = context
        self._job = job
        self._version = version
        self._least_s = least_s
        self._seen: Any = None
        self._has_run = self._failed = False
        self._ran_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether the result may be another one than before."""
        waited = time.monotonic() - self._ran_at
        if waited < self._least_s:
            return False
        return not self._has_run or (self._failed and waited > AGAIN_S) or self._version() != self._seen

    async def run(self, **arguments: Any) -> dict[str, Any]:
        """The result of the job."""
        seen = self._version()
        self._has_run, self._ran_at = True, time.monotonic()
        result = await self._context.run_job(self._job, **arguments)
        self._seen, self._failed, self._ran_at = seen, "failed" in result, time.monotonic()
        return result

    async def run_if_due(self, **arguments: Any) -> dict[str, Any] | None:
        """The result of the job; None if it is not due."""
        return await self.run(**arguments) if self.is_due else None
