"""Spark's JVM: the only module that uses private attributes of PySpark and py4j.

It is checked with PySpark 4.2.0 and py4j 0.10.9.9: with another version, run the Spark and stack tests. `daemon` also
depends on that version, because it replaces a function of PySpark's daemon.

The reasons: docs/decisions/spark.md.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j import clientserver  # type: ignore[import-untyped]
from py4j.java_gateway import JavaObject, do_client_auth, quiet_shutdown  # type: ignore[import-untyped]
from pyspark import RDD, SparkContext, java_gateway
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from spark_app.lake.lake import Lake

IDLE_S = 30  # py4j's default, for a connection whose thread has ended
TOKEN_S = 5.0  # for a client of the callback server to show its token
MOST_STRANGERS = 64  # clients without it
ENDS_S = 2.0  # within this time a killed JVM ends
PLANS = "org.apache.spark.sql.catalyst.plans.logical"
ANY_HOST = "any"  # the executor alone decides; the names of some hosts cannot be part of a location
OWN_WORKERS = "PROTOLAKE_OWN_WORKERS"
DRIVER = "driver"  # its name among the executors
STATEMENTS = ("Command", "ParsedStatement")  # classes of `PLANS`


def process() -> Any:
    """The JVM's `subprocess.Popen`; None if there is none."""
    return getattr(SparkContext._gateway, "proc", None)


def jvm_pid() -> int | None:
    """The process id of the JVM, if there is one."""
    found = process()
    return found.pid if found else None


def jvm_lives() -> bool:
    """True if there is a JVM. Waits up to two seconds, because the connections close before the process ends."""
    found = process()
    try:
        return found is not None and found.wait(ENDS_S) is None
    except subprocess.TimeoutExpired:
        return True


def forget() -> None:
    """Clear PySpark's references to a JVM that has ended."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def start_by(popen: Any) -> None:
    """Let PySpark start the JVM by this function instead of `subprocess.Popen`."""
    java_gateway.Popen = popen  # type: ignore[attr-defined]


def guard_callbacks(session: SparkSession) -> None:
    """Require a token for calls from the JVM to Python: Spark's batches arrive this way, and py4j by default accepts
    calls to any method from anybody. The JVM's client loses the token when it gets Python's port, so it is replaced."""
    gateway: Any = session.sparkContext._gateway
    token = secrets.token_hex(32)  # not the gateway's token: once Python has ended, another process may own its port
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    _bound_strangers(gateway._callback_server)
    jvm, server = gateway.jvm, JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    java = server.getGateway()
    address, port = server.getCallbackClient().getAddress(), server.getCallbackClient().getPort()
    seconds, sockets = jvm.java.util.concurrent.TimeUnit.SECONDS, jvm.javax.net.SocketFactory.getDefault()
    client = jvm.py4j.PythonClient(java, None, port, address, IDLE_S, seconds, sockets, server, True, 0, token)
    field = java.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(java, client)


def _bound_strangers(server: Any) -> None:
    """Close connections to the callback server that do not show the token, and the oldest if they are many: each has a
    thread and a descriptor, and the server ends when there is none left."""
    strangers: list[Any] = []  # sockets
    create = server._create_connection

    def create_bounded(socket: Any, stream: Any) -> Any:
        socket.settimeout(TOKEN_S)
        strangers[:] = [*(one for one in strangers if one.gettimeout()), socket]
        if len(strangers) > MOST_STRANGERS:
            quiet_shutdown(strangers.pop(0))
        return create(socket, stream)

    def authenticate(command: str, stream: Any, socket: Any, token: str) -> bool:
        do_client_auth(command, stream, socket, token)
        socket.settimeout(None)
        return True

    server._create_connection, clientserver.do_client_auth = create_bounded, authenticate


def lock_lake_in_jvm(session: SparkSession, lake: Lake) -> None:
    """Take a second lock in the JVM: the JVM lives for seconds after its driver was killed, and must keep the lake
    locked."""
    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway
    path = jvm.java.nio.file.Path.of(str(lake.lease.jvm_file), gateway.new_array(jvm.String, 0))
    options = gateway.new_array(jvm.java.nio.file.OpenOption, 2)
    options[0] = jvm.java.nio.file.StandardOpenOption.WRITE
    options[1] = jvm.java.nio.file.StandardOpenOption.CREATE
    channel = jvm.java.nio.channels.FileChannel.open(path, options)
    session._protolake_lock = channel.lock()  # type: ignore[attr-defined]  # py4j frees objects without a reference


def executors(session: SparkSession) -> int:
    """The number of executors that are there now; the driver is none."""
    scala: Any = session.sparkContext._jsc.sc()
    return int(scala.getExecutorMemoryStatus().size()) - 1


@dataclass(frozen=True)
class ExecutorWork:
    """
    Attributes:
        task_seconds: the sum over the tasks that have ended since the executor's start.
        running: the number of tasks that run now.
    """

    cores: int
    task_seconds: float
    running: int


def executor_work(session: SparkSession) -> dict[str, ExecutorWork]:
    """Executor -> its work, of those that are there now."""
    return {
        one.id(): ExecutorWork(one.totalCores(), one.totalDuration() / 1000, one.activeTasks())
        for one in _executor_summaries(session)
    }


def executor_locations(session: SparkSession) -> list[str]:
    """The executors that are there now, in a fixed order, as locations that a task may prefer."""
    names = (one.id() for one in _executor_summaries(session))
    return [f"executor_{ANY_HOST}_{name}" for name in sorted(names, key=lambda name: (len(name), name))]


def _executor_summaries(session: SparkSession) -> list[Any]:
    """Spark's summaries of the executors that are there now, without the driver."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(True)
    return [one for one in (found.apply(number) for number in range(found.length())) if one.id() != DRIVER]


def parallelize_at(session: SparkSession, values: Sequence[Any], locations: Sequence[str]) -> RDD[Any]:
    """Each value a partition that prefers its location; see `executor_locations`."""
    context, jvm = session.sparkContext, session.sparkContext._jvm
    assert jvm is not None
    new_list, new_pair, to_seq = jvm.java.util.ArrayList, jvm.scala.Tuple2, jvm.PythonUtils.toSeq  # each a request
    preferred = {}
    for location in set(locations):
        one = new_list()
        one.add(location)
        preferred[location] = to_seq(one)
    rows = new_list()
    for value, location in zip(values, locations, strict=True):
        rows.add(new_pair(bytearray(pickle.dumps(value)), preferred[location]))
    made = context._jsc.sc().makeRDD(to_seq(rows), jvm.scala.reflect.ClassTag.Any())
    return RDD(made.toJavaRDD(), context, CPickleSerializer())


class _ContextOfOwnWorkers:
    """A context, but for the environment of its Python workers."""

    def __init__(self, context: SparkContext):
        self._context = context
        self.environment = context.environment | {OWN_WORKERS: "1"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def use_own_workers(job: RDD[Any]) -> None:
    """Run the tasks of this job, before it runs, in worker processes that other jobs do not get: Spark gives a task to
    the process that was idle for longest, but only among those with the same environment variables."""
    context = job.ctx
    job.ctx = _ContextOfOwnWorkers(context)  # type: ignore[assignment]
    try:
        _ = job._jrdd  # built once
    finally:
        job.ctx = context


def request_executors(session: SparkSession, number: int) -> bool:
    """Ask the cluster for so many executors; it launches missing ones, and those that are there stay. False if it does
    not answer."""
    jvm: Any = session.sparkContext._jvm
    scala: Any = session.sparkContext._jsc.sc()
    nothing = getattr(getattr(jvm.scala.collection.immutable, "Map$EmptyMap$"), "MODULE$")
    return bool(scala.requestTotalExecutors(number, 0, nothing))


def release_executors(session: SparkSession, names: Iterable[str]) -> None:
    """Give these executors back; one that has a task by now stays. Call it only after a request that was answered: a
    release without an answer leaves executors that get no tasks."""
    jvm: Any = session.sparkContext._jvm
    backend: Any = session.sparkContext._jsc.sc().schedulerBackend()
    given = jvm.java.util.ArrayList()
    for name in names:
        given.add(name)
    backend.killExecutors(jvm.PythonUtils.toSeq(given), False, False, False)


def count_rows(session: SparkSession, rows: int) -> None:
    """Report the batch's number of rows to Spark's listeners and UI: Spark only counts rows that pass through its
    source, and here workers read the records directly."""
    with contextlib.suppress(Exception):  # only a display: the batch is committed
        for query in session.streams.active:
            leaves = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves()
            for number in range(leaves.length()):
                leaves.apply(number).metrics().apply("numOutputRows").add(rows)


def parse_plan(session: SparkSession, query: str) -> Any:
    """Spark's logical plan of one SQL text; nothing is executed.

    Raises:
        Py4JJavaError: the text is not SQL.
    """
    return session._jsparkSession.sessionState().sqlParser().parsePlan(query)


def split_statements(session: SparkSession, text: str) -> list[str]:
    """The statements of a text, which semicolons separate; together with these they are the text."""
    strings: Any = session.sparkContext._jvm.org.apache.spark.sql.catalyst.util.StringUtils  # type: ignore[union-attr]
    return list(each(strings.splitSemiColonWithIndex(text, False)))


def analyzed_plan(rows: DataFrame) -> Any:
    """Spark's plan of a DataFrame, with the types and origins of its columns."""
    return rows._jdf.queryExecution().analyzed()


def each(values: Any) -> Iterator[Any]:
    """The values of a sequence of Scala."""
    return (values.apply(number) for number in range(values.size()))


def kind_of(value: Any) -> str:
    """The name of the class of a node or expression."""
    return str(value.getClass().getSimpleName())


def is_statement(session: SparkSession, plan: Any) -> bool:
    """Whether the plan is a command or another statement, which is not a query."""
    jvm: Any = session.sparkContext._jvm
    return any(jvm.java.lang.Class.forName(f"{PLANS}.{name}").isInstance(plan) for name in STATEMENTS)


def end(clean: bool, last: bool = True) -> None:
    """End the JVM, if there is one: after a clean stop by a normal exit, otherwise by a kill.

    Args:
        last: the process exits as well: silence PySpark's errors about the lost connection.
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
    """Remove the context, so that PySpark stops nothing at exit: the JVM has ended."""
    SparkContext._active_spark_context = None
