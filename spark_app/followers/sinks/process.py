"""The process that delivers: it keeps each sink of the settings open, beside the app.

It writes below the folders of the sinks only, and has a lease for each. A sink that fails stops no other one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_app.followers.sinks.delivery import GRACE_S
from spark_app.followers.sinks.open_sink import AGAIN_S, POLL_S, OpenSink, take
from spark_app.lake.lake import Lake
from spark_app.model.errors import LeaseLost, last_message_line
from spark_app.model.log import log
from spark_app.settings.models import Settings

if TYPE_CHECKING:
    from spark_app.followers.sinks.roles import Rights

LONGEST_AGAIN_S = 60.0  # between two attempts of a sink that fails


class SinkProcess:
    """One sink: it plans in a thread, and sends in another one.

    Attributes:
        failed: why it failed last; "" = it did not.
    """

    def __init__(
        self, name: str, settings: Settings, accepted: int = 0, once: bool = False, rights: Rights | None = None
    ):
        """
        Args:
            accepted: it goes on behind missing manifests of units up to this one.
            once: end when all that there is now is delivered.
            rights: what users see of what is served; None = nothing.
        """
        self.name = name
        self.failed = ""
        self._settings = settings
        self._accepted = accepted
        self._once = once
        self._rights = rights
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=f"sink-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False if it is still at work."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _repeat(self) -> None:
        wait_s = AGAIN_S
        while not self._stop.is_set():
            began, lake = time.monotonic(), Lake(self._settings.lake_address, self.name)
            lost = threading.Event()
            try:
                if not lake.known_identity():
                    log.info("a sink waits for the app, which makes the lake", sink=self.name)
                else:
                    take(lake, self.name, lost)
                    self._run(OpenSink(lake, self.name, self._settings, self._accepted, lost, self._rights))
                    if self._once:
                        return
            except Exception as error:
                self.failed = last_message_line(error)
                log.error("a sink failed", sink=self.name, reason=self.failed)
                if self._once:
                    return
            finally:
                lake.lease.release()
            wait_s = AGAIN_S if time.monotonic() - began > LONGEST_AGAIN_S else min(2 * wait_s, LONGEST_AGAIN_S)
            self._stop.wait(wait_s)

    def _run(self, opened: OpenSink) -> None:
        """
        Raises:
            Exception: told in the state of the sink, unless another process has taken over.
        """
        try:
            opened.run(self._stop, self._once)
        except LeaseLost:
            raise
        except Exception as error:
            with contextlib.suppress(OSError, LeaseLost):
                opened.tell_end(last_message_line(error))
            raise


def deliver(
    settings: Settings, accept_gap: bool = False, once: bool = False, rights: Callable[[], Rights] | None = None
) -> bool:
    """Deliver for all sinks of the settings until SIGTERM or SIGINT, or until all that there is now is delivered; False
    if a sink could not do that.

    Args:
        accept_gap: go on behind manifests that are missing now.
        rights: gives what users see of what is served, to each sink its own; None = nothing.
    """
    accepted = max(Lake(settings.lake_address).units(), default=0) if accept_gap else 0
    running = [SinkProcess(name, settings, accepted, once, rights and rights()) for name in settings.all_sinks]
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    for one in running:
        one.start()
    while not ending.wait(POLL_S) and not all(one.join(0) for one in running):
        pass
    for one in running:
        one.stop()
    for one in running:
        one.join(GRACE_S + LONGEST_AGAIN_S)
    return not once or not any(one.failed for one in running)
