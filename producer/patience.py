"""Retries a call while a server is down, until a timeout or a stop request."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from producer.errors import UnreachableError

T = TypeVar("T")

_PAUSE_S = 0.5
_COME_BACK = (408, 425, 429)


class StopSignal:
    """`requested` is True after SIGTERM or SIGINT, once `listen` was called."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> "StopSignal":
        """Handle both signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


class StopRequestedError(Exception):
    """A stop was requested during the wait for a server."""


def persist(action: Callable[[], T], what: str, seconds: float, stop: StopSignal) -> T:
    """The result of `action`, which is retried while its server is unavailable.

    Raises UnreachableError after `seconds`, StopRequestedError on request; other errors of `action` pass through.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except (httpx.TransportError, SchemaRegistryError, KafkaException) as error:
            if not is_away(error):
                raise
            if time.monotonic() >= deadline:
                raise UnreachableError(f"{what} was not reachable for {seconds:g} s: {explain(error)}") from None
        if stop.requested:
            raise StopRequestedError
        time.sleep(_PAUSE_S)


def is_away(error: Exception) -> bool:
    """True if the server is unavailable, False if it rejected the request."""
    if isinstance(error, SchemaRegistryError):
        return error.http_status_code >= 500 or error.http_status_code in _COME_BACK
    if isinstance(error, KafkaException):
        return bool(error.args[0].retriable()) or error.args[0].code() < 0
    return True


def explain(error: Exception) -> str:
    """The error in a few words on one line, without addresses that may contain credentials."""
    text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
