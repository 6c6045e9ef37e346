"""Asks a job again when the file that it reads has changed."""

from __future__ import annotations

import time
from typing import Any

from spark_app.page.context import PageContext

LEAST_S = 5.0  # between two questions, because each is a process
AGAIN_S = 10.0  # after a failure


class Rereading:
    def __init__(self, context: PageContext, key: str, job: str, **arguments: Any):
        """`key` is that of the file."""
        self._context = context
        self._key = key
        self._job = job
        self._arguments = arguments
        self._seen: int | None = -1
        self._failed = False
        self._asked_at = float("-inf")

    async def look(self) -> dict[str, Any] | None:
        """The answer of the job; None if it is the one before."""
        now = self._context.lake.storage.changed_at(self._key)
        waited = time.monotonic() - self._asked_at
        if waited < LEAST_S or (now == self._seen and not (self._failed and waited > AGAIN_S)):
            return None
        answer = await self._context.ask(self._job, **self._arguments)
        self._seen, self._failed, self._asked_at = now, "failed" in answer, time.monotonic()
        return answer
