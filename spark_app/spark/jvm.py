"""Spark's JVM: all that needs what PySpark and py4j keep to themselves, and nothing else.

Every attribute with a leading underscore that this app uses of another package is in this file. Checked with PySpark
4.2.0 and py4j 0.10.9.9: with another version, run the Spark and stack tests.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from typing import Any

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark_app.storage.lake import Lake

IDLE_S = 30  # py4j's own, for a connection of which no thread is left
ENDS_S = 2.0  # a JVM that was killed


def process() -> Any:
    """That of the JVM, as `subprocess` has it; None where there is none."""
    return getattr(SparkContext._gateway, "proc", None)


def jvm_pid() -> int | None:
    """The process id of the JVM, if there is one."""
    found = process()
    return found.pid if found else None


def jvm_lives() -> bool:
    """Whether there is a JVM. Its connections close before it has ended, so that one that lives is waited for."""
    found = process()
    try:
        return found is not None and found.wait(ENDS_S) is None
    except subprocess.TimeoutExpired:
        return True


def forget() -> None:
    """PySpark would go on with what it knows of one that has ended."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def guard_callbacks(session: SparkSession) -> None:
    """Let nobody but this JVM call Python back: Spark's batches come that way. py4j would ask nobody for a token, and
    who may call can call any method. Its client in the JVM forgets the token when it learns Python's port, and so is
    replaced."""
    gateway: Any = session.sparkContext._gateway
    token = secrets.token_hex(32)  # not the gateway's own: once Python has ended, its port may be anybody's
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    jvm, server = gateway.jvm, JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    java = server.getGateway()
    address, port = server.getCallbackClient().getAddress(), server.getCallbackClient().getPort()
    seconds, sockets = jvm.java.util.concurrent.TimeUnit.SECONDS, jvm.javax.net.SocketFactory.getDefault()
    client = jvm.py4j.PythonClient(java, None, port, address, IDLE_S, seconds, sockets, server, True, 0, token)
    field = java.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(java, client)


def lock_lake_in_jvm(session: SparkSession, lake: Lake) -> None:
    """Let the JVM hold a lock of its own: it outlives a killed driver by seconds, and so must the lock."""
    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway
    path = jvm.java.nio.file.Path.of(str(lake.state / "lock.jvm"), gateway.new_array(jvm.String, 0))
    options = gateway.new_array(jvm.java.nio.file.OpenOption, 2)
    options[0] = jvm.java.nio.file.StandardOpenOption.WRITE
    options[1] = jvm.java.nio.file.StandardOpenOption.CREATE
    channel = jvm.java.nio.channels.FileChannel.open(path, options)
    session._protolake_lock = channel.lock()  # type: ignore[attr-defined]  # py4j frees what nobody refers to


def count_rows(session: SparkSession, rows: int) -> None:
    """Enter in the progress of the batch under way how many rows it has, for Spark's listeners and its UI: the source
    itself counts what is read through it, and workers read by themselves."""
    with contextlib.suppress(Exception):  # it is for show: the batch is decided
        for query in session.streams.active:
            leaves = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves()
            for number in range(leaves.length()):
                leaves.apply(number).metrics().apply("numOutputRows").add(rows)


def end(clean: bool, last: bool = True) -> None:
    """End the JVM, if there is one: after a clean stop in its own time, otherwise at once and for certain.

    Args:
        last: this process ends too: what PySpark's threads say of the lost connection is of no use to anybody.
    """
    found = process()
    context = SparkContext._active_spark_context
    if clean and context is not None:
        with contextlib.suppress(Exception):  # the connection breaks when the JVM ends
            context.stop()
            context._jvm.System.exit(0)  # type: ignore[union-attr]
    elif found is not None:
        if last:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        found.kill()
        found.wait()


def forget_context() -> None:
    """There is nothing to stop when this process ends: the JVM has ended."""
    SparkContext._active_spark_context = None
