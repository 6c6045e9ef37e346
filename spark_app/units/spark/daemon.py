# ruff: noqa: E402
"""PySpark's worker daemon with three changes: it loads PySpark from where it has bytecode, it preloads modules before
it forks, and a worker that loses its idle socket exits silently.

Spark puts its own copy of PySpark, a zip file, first on the path. Python compiles what it loads from a zip file at each
start: 1.2 seconds of CPU.

The modules would cost each worker half a second of CPU. The threads that they start (OpenBLAS's, jemalloc's) start
again after a fork.

Spark closes the socket of a worker that had no task for a minute. PySpark's worker treats that as an error and tries to
report it through the socket: over TCP that has no effect, but over a Unix socket it fails with a traceback in the app's
log.

It is checked with PySpark 4.2.0, see `jvm`.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys

SPARK_COPIES = ("pyspark.zip", "-src.zip")  # PySpark's, and py4j's


def leave_zip_files() -> None:
    """Take Spark's copies off the path, if Python finds the modules without them."""
    rest = [entry for entry in sys.path if not entry.endswith(SPARK_COPIES)]
    if all(any(os.path.isdir(os.path.join(entry, name)) for entry in rest) for name in ("pyspark", "py4j")):
        sys.path[:] = rest


leave_zip_files()

import pyspark.worker  # noqa: F401
from pyspark import daemon

from spark_app.model.versions import OTHER_VERSIONS, UMASK, VERSIONS, differences, own_versions
from spark_app.sources.kafka import consumer  # noqa: F401
from spark_app.sources.kafka import input as kafka_input  # noqa: F401
from spark_app.units.worker import task  # noqa: F401

_work = daemon.worker


def work(sock: socket.socket, authenticated: bool) -> int:
    """Wait for one task and run it. A result other than 0 ends the worker."""
    try:
        waits = sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return 1
    return _work(sock, authenticated) if waits else 1


def compare_versions() -> None:
    """End if the app has other versions: this process has not loaded anything of its jobs yet."""
    wanted = os.environ.get(VERSIONS)
    if wanted and (wrong := differences(json.loads(wanted), own_versions())):
        sys.exit(f"{OTHER_VERSIONS}: {wrong}")


def set_umask() -> None:
    """Make files as the app does: an executor of a cluster has the umask of who started its machine's worker."""
    if umask := os.environ.get(UMASK):
        os.umask(int(umask, 8))


if __name__ == "__main__":
    compare_versions()
    set_umask()
    gc.freeze()  # the garbage collection after each task then skips the preloaded modules
    daemon.worker = work
    daemon.manager()
