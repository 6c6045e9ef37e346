"""A REST service on the loopback that takes rows, and behaves as it is told."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from spark_app.followers.sinks.open_sink import OpenSink, take
from spark_app.lake.lake import Lake
from tests.support.lakes import SmallLake

Row = dict[str, Any]
OK = 200


class Target:
    """
    Attributes:
        answer: gives for (key, rows, number of the attempt with this key) the status of the answer, "reset", or
            "late": it takes the rows and answers when the client has given up.
        accepted: key -> the rows of each call that it took.
        got: (time, method, path, key) of every request.
        delay_s: until each answer.
    """

    def __init__(self, answer: Callable[[str, list[Row], int], int | str] = lambda *_: OK):
        self.answer = answer
        self.accepted: dict[str, list[list[Row]]] = defaultdict(list)
        self.got: list[tuple[float, str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.said = ""
        self.more: dict[str, str] = {}
        self.delay_s = 0.0
        self.late_s = 1.0
        self.most_at_once = self._now = 0
        self.certificate: Path | None = None
        self.client_ca: Path | None = None
        self.port = 0
        self._tries: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    def rows(self) -> list[Row]:
        """All rows that were accepted, each call once."""
        return [row for calls in self.accepted.values() for row in calls[0]]

    def up(self) -> Target:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop, started), daemon=True)
        self._thread.start()
        assert started.wait(30)
        return self

    def down(self) -> None:
        if self._loop is not None and self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
            self._loop.close()
            self._loop = None

    def _serve(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._start())
        started.set()
        loop.run_forever()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        tls = None
        if self.certificate:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca)
            tls.load_cert_chain(self.certificate)
            tls.verify_mode = ssl.CERT_REQUIRED if self.client_ca else ssl.CERT_NONE
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        key = request.headers.get("Idempotency-Key", "")
        self.got.append((asyncio.get_running_loop().time(), request.method, request.raw_path, key))
        self.headers.append(dict(request.headers))
        rows = rows_of(body, request.content_type)
        self._tries[key] += 1
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self.delay_s)
            way = self.answer(key, rows, self._tries[key])
            if way == "reset":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if way in (OK, "late"):
                self.accepted[key].append(rows)
            if way == "late":
                await asyncio.sleep(self.late_s)
            return web.Response(status=way if isinstance(way, int) else OK, text=self.said, headers=self.more)
        finally:
            self._now -= 1


def open_sink(lake: SmallLake, name: str = "crm") -> OpenSink:
    """A sink of a lake, as `protolake deliver` opens it."""
    own, lost = Lake(lake.lake.address, name), threading.Event()
    take(own, name, lost)
    return OpenSink(own, name, lake.settings, 0, lost)


def rows_of(body: bytes, kind: str) -> list[Row]:
    if not body:
        return []
    if kind == "application/x-ndjson":
        return [json.loads(line) for line in body.splitlines()]
    value = json.loads(body) if kind == "application/json" else {}
    return value if isinstance(value, list) else [value]
