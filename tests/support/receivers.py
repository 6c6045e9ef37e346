"""A receiver of alerts on the loopback that behaves as it is told: well, slowly, badly, or not at all."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ENDLESS = 1 << 20  # chunks


class Receiver:
    """
    Attributes:
        ways: how the next requests are answered: an HTTP status, "reset" (the connection breaks before an answer),
            "late" (it answers after `late_s`), "endless", "redirect" or "silent" (it answers nothing). Afterwards 200.
        got: (key, body) of every request that came in whole, in order, whatever the answer was.
        taken: those that were answered with 200.
    """

    def __init__(self, port: int = 0):
        self.ways: list[int | str] = []
        self.late_s = 0.6
        self.got: list[tuple[str, Any]] = []
        self.received: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = port
        self.certificate: Path | None = None  # then it speaks TLS

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}/secret-path-of-the-hook"

    def counts(self) -> Counter[str]:
        return Counter(key for key, _ in self.got)

    def first_taken(self) -> list[str]:
        """The keys in the order in which each was taken first."""
        return list(dict.fromkeys(key for key, _ in self.received))

    def up(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        server.daemon_threads = True
        if self.certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                seen = (self.headers["Idempotency-Key"], body)
                receiver.got.append(seen)
                receiver.headers.append(dict(self.headers))
                receiver.paths.append(self.path)
                way = receiver.ways.pop(0) if receiver.ways else 200
                if way == 200:
                    receiver.received.append(seen)
                with suppress(OSError):
                    self.answer(way)

            def do_GET(self) -> None:
                receiver.paths.append(self.path)
                self.answer(200)

            def answer(self, way: int | str) -> None:
                if way == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    return
                if way == "silent":
                    time.sleep(2)
                    return
                if way == "late":
                    time.sleep(receiver.late_s)
                status = way if isinstance(way, int) else 307 if way == "redirect" else 200
                self.send_response(status)
                if way == "redirect":
                    self.send_header("Location", "/elsewhere")
                if way != "endless":
                    self.send_header("Content-Length", "0")
                self.end_headers()
                for _ in range(ENDLESS if way == "endless" else 0):
                    self.wfile.write(b"x" * 4096)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.up()
    try:
        yield receiver
    finally:
        receiver.down()
