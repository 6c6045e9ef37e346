"""The objects that the loops of one run share."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spark_app.units.driver.disk_space import DiskSpaceGuard
from spark_app.units.driver.status import Status


@dataclass(frozen=True)
class RunContext:
    """
    Attributes:
        disk: waits for free disk space.
        stop: set when the app is asked to stop.
        unit_lock: held while a unit is built and committed, so that only one is open at any time.
    """

    status: Status
    disk: DiskSpaceGuard
    stop: threading.Event
    unit_lock: AbstractContextManager[object]
