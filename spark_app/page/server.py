"""Serves the views, `/metrics` and `/health`, and watches the alerts meanwhile.

The reasons: docs/decisions/page.md.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode, ProtolakeError
from spark_app.model.log import log, print_line
from spark_app.page.alerts.alarm import Alarm
from spark_app.page.connections import BoundedProtocol
from spark_app.page.context import PageContext
from spark_app.page.files import PageFiles
from spark_app.page.guard import Guard, Key
from spark_app.page.metrics.exposition import LakeCollector, PageCollector, registry_of
from spark_app.page.metrics.reading import read
from spark_app.page.observations import Observations
from spark_app.page.site import add_views
from spark_app.settings.config import read_secret
from spark_app.settings.connections import is_loopback
from spark_app.settings.models import Settings
from spark_app.settings.watching import Page

BACKLOG = 64
SHORTEST_TOKEN = 20
# What a user who does not see everything gets to; the second one has what NiceGUI needs.
QUERY = ("/query", "/_nicegui", "/_nicegui_ws", "/favicon.ico")
SIGNALS_S = 0.5  # between two looks for signals


def serve(settings: Settings) -> NoReturn:
    """Serve until SIGTERM or SIGINT, which end the process at once with 0: whatever it writes is written in one step.

    Raises:
        ConfigurationError: there is no lake, its folder of the page cannot be written, the port is in use, or a
            condition of an alert cannot be judged.
        UnreachableError: another process is the page of this lake.
    """
    lake = Lake(settings.lake_address)
    if not (lake.local_state.exists(lake.page) or lake.storage.exists(lake.state)):  # the first: `--prepare` was run
        raise ConfigurationError(f"lake.path: no lake at {lake.uri}; start the app first, which makes it")
    files = PageFiles(lake)
    files.acquire()
    token = files.token()
    alarm = Alarm(lake, settings, files, lake.known_identity)
    listening = listen(settings.page)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(ExitCode.DONE))
    threading.excepthook = end_with
    observed = Observations(lake)
    of_lake = LakeCollector(lambda: read(lake, time.time(), observed.newest), lake.known_identity)
    app = application(lake, registry_of(of_lake, PageCollector(alarm.book)))
    add_views(app, PageContext(lake, settings, observed))
    has_tls = settings.page.address.startswith("https://")
    guarded = Guard(app, token, settings.page.names, has_tls, keys=keys_of(settings))
    server = threading.Thread(target=_run, args=(guarded, listening), name="page", daemon=True)
    server.start()
    alarm.start()
    observed.start()
    address = _address(settings.page, listening.getsockname()[1])
    files.write_address(address)
    if sys.stdout.isatty():
        print_line(str(files.address()), sys.stdout)
    log.info("the page listens", address=f"{address}/", token_file=files.token_file)
    while server.is_alive():  # a signal that another thread gets does not wake a thread which joins without an end
        server.join(SIGNALS_S)
    sys.exit(ExitCode.BUG)


def keys_of(settings: Settings) -> list[Key]:
    """Those of the users who may come to the page.

    Raises:
        ConfigurationError: a file of a token cannot be read, its token is short, two users have the same, or tokens
            would cross a network in clear text.
    """
    found: dict[str, Key] = {}
    for name, user in settings.users.items():
        if not user.token_file:
            continue
        setting = f"users.{name}.token_file"
        token = read_secret(user.token_file, setting).strip()
        if len(token) < SHORTEST_TOKEN:
            raise ConfigurationError(f"{setting}: a token has at least {SHORTEST_TOKEN} characters that nobody guesses")
        if token in found:
            raise ConfigurationError(f"{setting}: another user has the same token")
        query = QUERY if "query" in user.may else ()
        found[token] = Key(token.encode(), name, None if user.sees_all else query)
    address = urlsplit(settings.page.address or f"http://{settings.page.host}")
    is_closed = address.scheme == "https" or is_loopback(address.hostname or "")
    if found and not is_closed:
        why = f"page.host: tokens of users would cross the network in clear text at {settings.page.host}"
        raise ConfigurationError(f"{why}: set page.address to that of a proxy with https, or listen on 127.0.0.1")
    return list(found.values())


def end_with(failed: threading.ExceptHookArgs) -> None:
    """End the process, so that a restart policy starts it again: a page without one of its threads would go on
    unnoticed."""
    error = failed.exc_value
    if isinstance(error, ProtolakeError):
        print_line(f"protolake: {error}")
        os._exit(error.exit_code)
    log.error("bug", type=failed.exc_type.__name__, reason=str(error))
    traceback.print_exception(failed.exc_type, error, failed.exc_traceback)
    os._exit(ExitCode.BUG)


def application(lake: Lake, registry: CollectorRegistry) -> FastAPI:
    """The routes for programs, without the token."""
    app = FastAPI(openapi_url=None)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        encode, kind = _encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind})

    @app.get("/health")
    async def health() -> Response:
        reading = read(lake, time.time())
        health = {"healthy": reading.problem is None, "state": reading.state, "problem": reading.problem}
        return JSONResponse(health, 200 if reading.problem is None else 503)

    return app


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The format that a client accepts, and its name; the plain one if its header is not valid."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        return choose_encoder("")


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
        http=BoundedProtocol,
        ws="websockets-sansio",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,  # so many are accepted before the first one is seen
    )
    uvicorn.Server(config).run(sockets=[listening])


def _address(settings: Page, port: int) -> str:
    """Where browsers reach the page."""
    if settings.address:
        return settings.address
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
