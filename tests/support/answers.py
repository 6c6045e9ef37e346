"""A web server on loopback that gives the answers it was told to: what a registry or a gateway before it may say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


class Answers(dict[str, tuple[int, Any]]):
    """Path -> (status, body); a body that is no text is sent as JSON. `asked` lists every path in order."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def schema(self, schema_id: int, text: str, **more: Any) -> None:
        self[f"/schemas/ids/{schema_id}"] = (200, {"schemaType": "PROTOBUF", "schema": text} | more)


@contextmanager
def serve() -> Iterator[Answers]:
    """A server until the end of the block."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            answers.asked.append(path)
            status, body = answers.get(path, UNKNOWN)
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", self.path)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
