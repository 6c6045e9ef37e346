"""What a running process shows; one that ends while it is looked at shows nothing, as the short-lived ones of a JVM."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil


def command_of(process: psutil.Process) -> str:
    """Its command line."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def listened(process: psutil.Process) -> list[Any]:
    """The addresses on which it listens."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [c.laddr for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    return []
