"""What every view has at hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from nicegui import Client, run, ui

from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.page.clear_text import hidden_tables, shows_clear_text
from spark_app.page.observations import Observations
from spark_app.page.queries.asking import Child
from spark_app.settings.models import Settings

CHILD = "spark_app.page.jobs.entry"
WITHIN_S = 30.0
TURNS = asyncio.Semaphore(4)  # jobs of all tabs at the same time, because each is a process


async def _answer(client: Client, child: Child | None, question: dict[str, Any]) -> dict[str, Any]:
    answer = None
    async with TURNS if child is None else contextlib.nullcontext():
        if not client.is_deleted:
            answer = await run.io_bound((child or Child()).ask, CHILD, question, WITHIN_S)
    if client.is_deleted:
        raise asyncio.CancelledError
    return {"failed": "the page ends"} if answer is None else answer


@dataclass(frozen=True)
class PageContext:
    lake: Lake
    settings: Settings
    observed: Observations

    @property
    def layout(self) -> TableNames:
        return self.settings.tables.layout

    def ask(self, job: str, child: Child | None = None, **arguments: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        """The answer of a job of `page.child`, which runs in a process of its own; {"failed": why} if there is none.

        Args:
            child: the process, for whoever may end it, and sees to turns.

        Raises:
            CancelledError: the tab was closed meanwhile, so that nothing is drawn any more.
        """
        question = {"job": job, "arguments": arguments, "settings": self.settings.model_dump_json()}
        # Of the caller's task: another one may await the answer.
        return _answer(ui.context.client, child, question)

    @property
    def shows_clear_text(self) -> bool:
        """Whether the page may show records as they were sent."""
        return shows_clear_text(self.lake, self.settings)

    @property
    def hidden_tables(self) -> frozenset[str]:
        """The tables with records as they were sent, if the page may not show these."""
        return hidden_tables(self.lake, self.settings)
