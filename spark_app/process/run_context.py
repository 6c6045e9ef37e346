"""What the loops of one run share."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spark_app.ops.status import Status
from spark_app.process.disk_space import DiskSpaceGuard


@dataclass(frozen=True)
class RunContext:
    """
    Attributes:
        disk: waits for free disk space.
        stop: is set when the app is asked to stop.
        unit_lock: whoever makes a unit holds it, so that only one is in the making.
    """

    status: Status
    disk: DiskSpaceGuard
    stop: threading.Event
    unit_lock: AbstractContextManager[object]
