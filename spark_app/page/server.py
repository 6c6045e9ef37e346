"""Serves `/metrics` and `/health`, and has the alerts watched meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import NoReturn

import uvicorn
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from spark_app.alerts.alarm import Alarm
from spark_app.alerts.alert_metrics import AlertCollector
from spark_app.metrics.exposition import LakeCollector, registry_of
from spark_app.metrics.reading import Reading, read
from spark_app.model.errors import ConfigurationError, ExitCode, ProtolakeError
from spark_app.ops.log import log
from spark_app.page.guard import Guard
from spark_app.settings.models import Settings
from spark_app.settings.watching import Page
from spark_app.storage.lake import IDENTITY, Lake
from spark_app.storage.page_files import PageFiles

BACKLOG = 64
CONNECTIONS = 100  # at the same time; further ones are answered with 503


def serve(settings: Settings) -> NoReturn:
    """Serve until SIGTERM or SIGINT, which end the process at once with 0: whatever it writes is written in one step.

    Raises:
        ConfigurationError: there is no lake, its folder of the page cannot be written, the port is in use, or a
            condition of an alert cannot be judged.
        UnreachableError: another process is the page of this lake.
    """
    lake = Lake(settings.lake.path)
    if not lake.storage.exists(lake.state):
        raise ConfigurationError(f"lake.path: no lake at {lake.root}; start the app first, which makes it")
    files = PageFiles(lake)
    files.take()
    token, made = files.token()
    identity = _identity(lake)
    alarm = Alarm(lake, settings, files, identity)
    listening = listen(settings.page)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(ExitCode.DONE))
    threading.excepthook = end_with
    collectors = (LakeCollector(_Readings(lake).take, identity), AlertCollector(alarm.book))
    app = Guard(application(lake, registry_of(*collectors)), token, settings.page.names)
    server = threading.Thread(target=_run, args=(app, listening), name="page", daemon=True)
    server.start()
    alarm.start()
    _announce(settings.page.host, listening.getsockname()[1], token if made else "", files.token_file)
    server.join()
    sys.exit(ExitCode.BUG)


def end_with(failed: threading.ExceptHookArgs) -> None:
    """End the process, so that a restart policy starts it again: a page without one of its threads would go on and tell
    nobody."""
    error = failed.exc_value
    if isinstance(error, ProtolakeError):
        print(f"protolake: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
    log.error("bug", type=failed.exc_type.__name__, reason=str(error))
    traceback.print_exception(failed.exc_type, error, failed.exc_traceback)
    os._exit(ExitCode.BUG)


def application(lake: Lake, registry: CollectorRegistry) -> Starlette:
    """The routes, without the token."""

    async def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind})

    async def health(request: Request) -> Response:
        reading = read(lake, time.time())
        said = {"healthy": reading.problem is None, "state": reading.state, "problem": reading.problem}
        return JSONResponse(said, 200 if reading.problem is None else 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health)])


class _Readings:
    """Reads the lake, and remembers the reading before."""

    def __init__(self, lake: Lake):
        self._lake = lake
        self._last: Reading | None = None

    def take(self) -> Reading:
        self._last = read(self._lake, time.time(), self._last)
        return self._last


def _identity(lake: Lake) -> str:
    """The id of the lake; empty if the app has not made it yet, or it is damaged."""
    try:
        found = lake.storage.get(lake.id).decode(errors="replace").strip()
    except OSError:
        return ""
    return found if IDENTITY.fullmatch(found) else ""


def listen(settings: Page) -> socket.socket:
    """The socket to serve on.

    Raises:
        ConfigurationError: the port is in use, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"page.host: {settings.host} is no address of this machine ({error})") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"page.port: cannot listen on {settings.host}:{settings.port} ({error.strerror}); set another page.port "
            "or page.host; port 0 is a free one"
        ) from None
    return listening


def _run(app: ASGIApp, listening: socket.socket) -> None:
    """Without a log: its lines would have the token of a query."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        http="h11",
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _announce(host: str, port: int, new_token: str, token_file: str) -> None:
    """Print the address, with the token only when it is new, and log it without."""
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{port}/metrics"
    if new_token:
        print(f"{address}?token={new_token}", flush=True)
    log.info("the page listens", address=address, token_file=token_file)
