"""Asks a job again when the file that it reads has changed."""

from __future__ import annotations

import time
from typing import Any

from spark_app.page.context import PageContext

AGAIN_S = 10.0  # after a failure


class Rereading:
    def __init__(self, context: PageContext, key: str, job: str, **arguments: Any):
        """`key` is that of the file."""
        self._context = context
        self._key = key
        self._job = job
        self._arguments = arguments
        self._seen: int | None = -1
        self._failed_at: float | None = None

    async def look(self) -> dict[str, Any] | None:
        """The answer of the job; None if it is the one before."""
        now = self._context.lake.storage.changed_at(self._key)
        waited = self._failed_at is not None and time.monotonic() - self._failed_at > AGAIN_S
        if now == self._seen and not waited:
            return None
        answer = await self._context.ask(self._job, **self._arguments)
        self._seen, self._failed_at = now, time.monotonic() if "failed" in answer else None
        return answer
