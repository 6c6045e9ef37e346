"""Asks a job again when what it reads has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from spark_app.page.context import PageContext

LEAST_S = 5.0  # between two questions, because each is a process
AGAIN_S = 10.0  # after a failure


class Rereading:
    def __init__(self, context: PageContext, job: str, version: Callable[[], Any], least_s: float = LEAST_S):
        """
        Args:
            version: of what the job reads; another one is a change.
            least_s: seconds between two questions.
        """
        self._context = context
        self._job = job
        self._version = version
        self._least_s = least_s
        self._seen: Any = None
        self._is_asked = self._failed = False
        self._asked_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether the answer may be another one than before."""
        waited = time.monotonic() - self._asked_at
        if waited < self._least_s:
            return False
        return not self._is_asked or (self._failed and waited > AGAIN_S) or self._version() != self._seen

    async def ask(self, **arguments: Any) -> dict[str, Any]:
        """The answer of the job."""
        seen = self._version()
        self._is_asked, self._asked_at = True, time.monotonic()
        answer = await self._context.ask(self._job, **arguments)
        self._seen, self._failed, self._asked_at = seen, "failed" in answer, time.monotonic()
        return answer

    async def look(self, **arguments: Any) -> dict[str, Any] | None:
        """The answer of the job; None if it is not due."""
        return await self.ask(**arguments) if self.is_due else None
