"""A TCP proxy on loopback between app and broker that simulates network faults.

`mode` may be changed at any time and also applies to open connections.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Literal, Self

from scripts.local.ports import HOST

Mode = Literal["pass", "refuse", "black_hole", "half_open", "slow", "delay", "garbage"]
MODES: tuple[Mode, ...] = ("refuse", "black_hole", "half_open", "slow", "delay", "garbage")
SLOW_BYTES_S = 64 << 10
DELAY_S = 0.5
CHUNK = 8 << 10
LINGER = struct.pack("ii", 1, 0)  # closing sends a reset


class Proxy:
    """The proxy.

    Attributes:
        mode: pass; refuse = reset every connection; black_hole = no data in either direction; half_open = no responses;
            slow = `SLOW_BYTES_S` in total; delay = each response is late; garbage = responses of random bytes.
        port: of the proxy.
        returned: bytes of the broker that went to clients.
    """

    def __init__(self, target_port: int, port: int = 0):
        self.mode: Mode = "pass"
        self.returned = 0
        self._counting = threading.Lock()
        self._target_port = target_port
        self._server = socket.create_server((HOST, port))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._budget = threading.Lock()
        self._done = False

    def start(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def stop(self) -> None:
        self._done = True
        self._server.close()
        self.reset()

    def reset(self) -> None:
        """End every open connection with a reset."""
        for one in list(self._open):
            self._drop(one)

    def _accept(self) -> None:
        while not self._done:
            try:
                client, _ = self._server.accept()
                server = socket.create_connection((HOST, self._target_port)) if self.mode != "refuse" else None
            except OSError:  # closed, or the broker is down: then the client gets a reset
                server = None
                if self._done:
                    return
            if server is None:
                with contextlib.suppress(OSError, UnboundLocalError):
                    _reset(client)
                continue
            self._open |= {client, server}
            for source, sink, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, is_answer), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._hold(len(data), is_answer)
                with self._counting:
                    self.returned += len(data) if is_answer else 0
                sink.sendall(os.urandom(len(data)) if self.mode == "garbage" and is_answer else data)
        self._drop(source)
        self._drop(sink)

    def _hold(self, size: int, is_answer: bool) -> None:
        """Hold data as long as the mode requires; held data continues when the mode changes."""
        while self.mode == "black_hole" or (self.mode == "half_open" and is_answer):
            time.sleep(0.05)
        if self.mode == "refuse":
            raise OSError
        if self.mode == "slow":
            with self._budget:
                time.sleep(size / SLOW_BYTES_S)
        if self.mode == "delay" and is_answer:
            time.sleep(DELAY_S)

    def _drop(self, one: socket.socket) -> None:
        self._open.discard(one)
        _reset(one)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        one.shutdown(socket.SHUT_RDWR)
        one.close()
