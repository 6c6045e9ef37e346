"""The process that Spark forks its Python workers from: PySpark's own, but for how a worker begins and ends.

What every worker needs is loaded before the first one is forked; it would take each half a second of CPU. The threads
that come with it (OpenBLAS's, jemalloc's) begin anew after a fork.

Spark closes the socket of a worker that had no task for a minute. PySpark's worker takes that for an error and tries to
say so to the socket: at a TCP port nobody notices, at a file it fails, with a traceback in the app's log.
"""

from __future__ import annotations

import gc
import socket

import pyspark.worker  # noqa: F401
from pyspark import daemon

from spark_app.kafka.consumer import consumer, kafka_input  # noqa: F401
from spark_app.worker import task  # noqa: F401

_work = daemon.worker


def work(sock: socket.socket, authenticated: bool) -> int:
    """One task, which is waited for. Anything but 0 ends the process: there will be no more."""
    try:
        waits = sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return 1
    return _work(sock, authenticated) if waits else 1


if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task: not among what is here for good
    daemon.worker = work
    daemon.manager()
