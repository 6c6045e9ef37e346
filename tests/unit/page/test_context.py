"""How views ask jobs: few at the same time, and for nobody who has gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from nicegui import Client, core
from nicegui.page import page

from spark_app.lake.lake import Lake
from spark_app.page import context as page_context
from spark_app.page.context import PageContext
from spark_app.page.observations import Observations
from spark_app.page.queries.child_process import Child
from spark_app.settings.models import Settings

Asking = Callable[[PageContext, Client], Coroutine[Any, Any, Any]]


class Processes:
    """Stands for the processes of jobs, and counts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.most = self.now = self.begun = 0
        self.hold: threading.Event | None = None

    def run(self, *_: Any) -> dict[str, Any]:
        with self._lock:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
        if self.hold:
            self.hold.wait(30)
        else:
            time.sleep(0.05)
        with self._lock:
            self.now -= 1
        return {"begun": True}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    monkeypatch.setattr(Child, "run", found.run)
    return found


def in_view(root: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking) -> Any:
    """What `asking` returns, with a context and an open tab."""
    lake = Lake(root / "lake")
    context = PageContext(lake, Settings(lake={"path": str(lake.root)}), Observations(lake))

    async def look() -> Any:
        monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
        monkeypatch.setattr(page_context, "TURNS", asyncio.Semaphore(4))
        client = Client(page("/"))
        with client:
            return await asking(context, client)

    return asyncio.run(look())


def test_at_most_four_jobs_run_besides_those_that_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    async def ask(context: PageContext, client: Client) -> Any:
        return await asyncio.gather(*(context.run_job("runs") for _ in range(9)), *more(context))

    def more(context: PageContext) -> list[Any]:
        return [context.run_job("query", Child()) for _ in range(queries)]

    queries = 0
    assert in_view(tmp_path, monkeypatch, ask) == [{"begun": True}] * 9
    assert processes.most == 4
    queries = 2
    assert in_view(tmp_path, monkeypatch, ask) == [{"begun": True}] * 11
    assert 4 < processes.most <= 6


def test_whoever_waits_for_a_tab_that_was_closed_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    processes.hold = threading.Event()

    async def ask(context: PageContext, client: Client) -> Any:
        waiting = [asyncio.create_task(context.run_job("runs")) for _ in range(9)]
        while processes.begun < 4:
            await asyncio.sleep(0.01)
        client.delete()
        processes.hold.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = in_view(tmp_path, monkeypatch, ask)
    assert all(isinstance(one, asyncio.CancelledError) for one in found)
    assert processes.begun == 4
