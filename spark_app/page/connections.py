"""Bounds the connections of clients that have no token: in time, and in number.

The head of a request has to come within HEAD_S, that of a later one, too. A connection above MOST takes the place of
the one that has waited for its request for longest. Who has no token gets one answer per connection (`Guard`).
"""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from spark_app.model.log import log

HEAD_S = 5.0
MOST = min(200, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)  # the other descriptors are for the alerts
LOG_EVERY = 10_000  # connections


class BoundedProtocol(H11Protocol):
    """One connection of the page."""

    closed: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST:
            bounded = (one for one in self.connections if isinstance(one, BoundedProtocol))
            min((one for one in bounded if one._lacks_head()), key=lambda one: one.since)._close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def _await_head(self) -> None:
        self.since = self.loop.time()
        self.loop.call_later(HEAD_S, self._expire, self.cycle)

    def _expire(self, last: RequestResponseCycle | None) -> None:
        if self.cycle is last and self in self.connections and self._lacks_head():  # not that of a WebSocket now
            self._close()

    def _close(self) -> None:
        self.transport.abort()
        if self.closed % LOG_EVERY == 0:
            log.warning("connections without a request are closed", closed=self.closed + 1)
        BoundedProtocol.closed += 1

    def _lacks_head(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()
