"""An HTTP server in front of the registry that simulates faults."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from scripts.local.ports import HOST

Mode = Literal["pass", "refused", "black_hole", "late", "http_500", "http_429", "garbage", "truncated", "other_schema"]
MODES: tuple[Mode, ...] = (
    "refused",
    "black_hole",
    "late",
    "http_500",
    "http_429",
    "garbage",
    "truncated",
    "other_schema",
)
LATE_S = 30.0
OTHER = {"id": 1, "schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Other { string other = 1; }'}
ANSWERED = 200


class Gateway:
    """The server.

    Attributes:
        mode: pass, or the kind of fault; may be changed at any time.
        responses: path -> number of responses that came from the registry.
        url: of the gateway.
    """

    def __init__(self, registry: str):
        self.mode: Mode = "pass"
        self.responses: Counter[str] = Counter()
        self._registry = registry
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    gateway.respond(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://{HOST}:{self.server.server_port}"

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        """Answer according to the mode."""
        mode = self.mode
        if mode == "refused":
            request.connection.close()
            return
        if mode == "black_hole":
            self._wait_out(mode)
            return
        if mode == "late":
            time.sleep(LATE_S)
        status, body = self._ask(request.path)
        if mode in ("http_500", "http_429"):
            status, body = int(mode.removeprefix("http_")), b'{"error_code": 50001, "message": "not now"}'
        elif mode == "garbage":
            body = os.urandom(200)
        elif mode == "other_schema" and "/ids/" in request.path:
            body = json.dumps(OTHER).encode()
        elif status == ANSWERED and mode == "pass":
            self.responses[request.path.split("?")[0]] += 1
        _send(request, status, body, len(body) // 2 if mode == "truncated" else len(body))

    def _wait_out(self, mode: Mode) -> None:
        while self.mode == mode:
            time.sleep(0.1)

    def _ask(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"{self._registry}{path}", timeout=30) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, sent: int) -> None:
    request.send_response(status)
    request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body[:sent])


@contextlib.contextmanager
def open_gateway(registry: str) -> Iterator[Gateway]:
    """A gateway in front of the registry at that address, until the end of the block."""
    gateway = Gateway(registry)
    thread = threading.Thread(target=gateway.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        gateway.server.shutdown()
        gateway.server.server_close()
