"""Servers that answer where a registry was expected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.answers import Answers, serve

WEB_PAGE = "<html><head><title>Welcome to\n nginx!</title></head><body>It works</body></html>"
NOT_FOUND = "<html><head><title>404 Not Found</title></head></html>"


@contextmanager
def serve_all(status: int, body: object) -> Iterator[Answers]:
    """A server with one answer to everything."""

    class Same(Answers):
        def get(self, path: str, default: object = None) -> object:  # type: ignore[override]
            return status, body

    with serve(answers=Same()) as answers:
        yield answers


@contextmanager
def broker() -> Iterator[int]:
    """A port that ends each connection without a word, as a broker does after bytes that are not Kafka's."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(1 << 16)
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
