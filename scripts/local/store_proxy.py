"""A proxy before an object store that counts its requests and can spoil any of them.

`with StoreProxy(url) as proxy: StorageAddress(..., endpoint=proxy.url)`. It forwards requests as they are, with the
address that the client signed. Each request has a verb: GET, LIST, HEAD, PUT, COPY, DELETE, DELETES (many keys in one
request), and of an upload in parts BEGIN, PART, COMPLETE, ABORT.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

WRITES = ("PUT", "COPY", "DELETE", "DELETES", "BEGIN", "PART", "COMPLETE", "ABORT")
HEAD_BYTES = 1 << 16

Kind = Literal["lost", "half", "reset", "slow", "status", "blind"]


@dataclass
class Fault:
    """What happens to some of the requests.

    Attributes:
        kind: "lost": the store does what is asked, and its answer is cut before the first byte. "half": the answer is
            cut in the middle of its body, or of its head if it has none. "reset": the connection is cut before the
            store gets the request. "slow": the answer comes `seconds` later. "status": the store does not get the
            request, the answer is this `status` with the error `code`. "blind": the store does not see the conditions.
        verb: pattern of a verb.
        key: pattern that is searched for in "bucket/key".
        skip: so many requests that match pass before the first one is spoilt.
        times: so many are spoilt.
    """

    kind: Kind
    verb: str = ".*"
    key: str = ""
    skip: int = 0
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 1.0
    met: int = field(default=0, init=False)

    @property
    def done(self) -> int:
        """How many requests it has spoilt."""
        return min(max(self.met - self.skip, 0), self.times)

    def meets(self, request: Request) -> bool:
        if not (re.fullmatch(self.verb, request.verb) and re.search(self.key, request.key)):
            return False
        self.met += 1
        return self.skip < self.met <= self.skip + self.times


class Request(NamedTuple):
    verb: str
    key: str  # "bucket/key"; of a list "bucket/prefix"


class StoreProxy:
    """
    Attributes:
        requests: all of them, in the order in which they came.
        faults: what is spoilt; the first one that matches counts.
        one_by_one: the store gets a request when it has answered the one before.
    """

    def __init__(self, target: str):
        parts = urlsplit(target)
        self._target = (str(parts.hostname), parts.port or 80)
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.one_by_one = False
        self.port = 0
        self._running: set[object] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spoil(self, kind: Kind, verb: str = ".*", key: str = "", **more: int | float | str) -> Fault:
        fault = Fault(kind, verb, key, **more)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def counted(self, key: str = "") -> Counter[str]:
        """Verb -> number of requests about matching keys."""
        return Counter(request.verb for request in self.requests if re.search(key, request.key))

    def forget(self) -> None:
        self.requests.clear()
        self.faults.clear()

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="store proxy", daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self, ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._ended = asyncio.Event()
        self._turn = asyncio.Lock()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._ended.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection has one request: clients open another after its "Connection: close"."""
        task = asyncio.current_task()
        self._running.add(task)  # nothing else refers to a task whose client asks nothing yet
        with suppress(OSError, EOFError, asyncio.CancelledError):  # the client, the store or the proxy may end
            head, body = await _read_request(reader, writer)
            await self._answer(head, body, writer)
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
        self._running.discard(task)

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        request = _request(head)
        self.requests.append(request)
        fault = next((fault for fault in list(self.faults) if fault.meets(request)), None)
        if fault and fault.kind == "reset":
            return writer.transport.abort()
        if fault and fault.kind == "status":
            answer = _error(fault, with_body=request.verb != "HEAD")
        else:
            seen = _without_conditions(head) if fault and fault.kind == "blind" else head
            async with self._turn if self.one_by_one else nullcontext():
                answer = await self._forward(seen, body)
        if fault and fault.kind == "lost":
            return writer.transport.abort()
        if fault and fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        if fault and fault.kind == "half":
            start = answer.index(b"\r\n\r\n") + 4
            answer = answer[: (start + len(answer)) // 2] if len(answer) > start else answer[: start // 2]
        writer.write(answer)
        await writer.drain()

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        """The whole answer, with "Connection: close"."""
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(_closing(head) + body)
            await writer.drain()
            answer = await reader.read()
        finally:
            writer.close()
        if b"\r\n\r\n" not in answer:
            raise ConnectionResetError("the store gave no answer")
        start = answer.index(b"\r\n\r\n") + 4
        return _closing(answer[:start]) + answer[start:]


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    if _header(head, "expect"):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in _header(head, "transfer-encoding").lower():
        return head, await _read_chunks(reader)
    return head, await reader.readexactly(int(_header(head, "content-length") or 0))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """The chunks as they came."""
    read = b""
    while True:
        line = await reader.readline()
        rest = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        read += line + rest
        if rest == b"\r\n":
            return read


def _header(head: bytes, name: str) -> str:
    found = re.search(rb"\r\n" + name.encode() + rb":[ \t]*([^\r]*)", head, re.IGNORECASE)
    return found[1].decode() if found else ""


def _closing(head: bytes) -> bytes:
    without = re.sub(rb"\r\n(connection|keep-alive|expect):[^\r]*", b"", head, flags=re.IGNORECASE)
    return without[:-2] + b"Connection: close\r\n\r\n"


def _without_conditions(head: bytes) -> bytes:
    return re.sub(rb"\r\nif-(none-)?match:[^\r]*", b"", head, flags=re.IGNORECASE)


def _request(head: bytes) -> Request:
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
    parts = urlsplit(target)
    query, key = parse_qs(parts.query, keep_blank_values=True), unquote(parts.path).strip("/")
    if method == "GET" and "list-type" in query:
        prefix = query.get("prefix", [""])[0]
        return Request("LIST", f"{key}/{prefix}")
    if "uploadId" in query:
        return Request({"PUT": "PART", "POST": "COMPLETE", "DELETE": "ABORT"}.get(method, method), key)
    if method == "POST":
        return Request("BEGIN" if "uploads" in query else "DELETES" if "delete" in query else method, key)
    return Request("COPY" if _header(head, "x-amz-copy-source") else method, key)


def _error(fault: Fault, with_body: bool) -> bytes:
    text = f"<Error><Code>{fault.code}</Code><Message>spoilt</Message></Error>".encode() if with_body else b""
    head = f"HTTP/1.1 {fault.status} Spoilt\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + text
