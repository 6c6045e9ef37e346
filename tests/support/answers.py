"""A web server on loopback that gives the answers it was told to: what a registry or a gateway before it may say."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


Say = Callable[[BaseHTTPRequestHandler], None]


class Answers(dict[str, tuple[int, Any] | Say]):
    """Path, with its query or without, -> (status, body), or a function that answers all by itself.

    A body that is no text is sent as JSON. `asked` lists every path in order, `queries` what came behind their "?", and
    `logins` what came as Authorization.
    """

    url = ""

    def __init__(self) -> None:
        super().__init__({"/subjects": (200, [])})
        self.asked: list[str] = []
        self.queries: list[str] = []
        self.logins: list[str | None] = []

    def schema(self, schema_id: int, text: str, **more: Any) -> None:
        self[f"/schemas/ids/{schema_id}"] = (200, {"schemaType": "PROTOBUF", "schema": text} | more)

    def version(self, subject: str, version: int, text: str, **more: Any) -> dict[str, Any]:
        """Serve a version of a subject; returns what refers to it, but for the import name."""
        body = {"subject": subject, "version": version, "schemaType": "PROTOBUF", "schema": text} | more
        self[f"/subjects/{quote(subject, safe='')}/versions/{version}"] = (200, body)
        return {"subject": subject, "version": version}


@contextmanager
def serve(
    certificate: Path | None = None, clients: Path | None = None, answers: Answers | None = None
) -> Iterator[Answers]:
    """A server until the end of the block; with TLS when there is a certificate, and for those only whose own is by the
    authority in `clients`, when that is given."""
    answers = Answers() if answers is None else answers

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            answers.asked.append(path)
            answers.queries.append(query)
            answers.logins.append(self.headers["Authorization"])
            answer = answers.get(self.path) or answers.get(path, UNKNOWN)
            if callable(answer):
                with suppress(OSError):  # the client may hang up in the middle
                    answer(self)
                return
            status, body = answer
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", self.path)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    answers.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
