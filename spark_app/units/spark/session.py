"""Starts and watches a Spark session.

The reasons: docs/decisions/spark.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Hashable, Iterator
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_app.lake.files.disk import temporary_folders
from spark_app.model.errors import BrokenError, ConfigurationError, UnreachableError, last_message_line
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import SparkSettings
from spark_app.units.spark import cluster, jvm, launcher, options

OLDEST_JAVA = 17
CODE_GENERATION = "spark.sql.codegen.wholeStage"
# PySpark's loggers that repeat raised errors: 7,000 characters of JSON for a mistyped name.
REPEATERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start(settings: Settings, name: str = options.NAME, quiet: bool = False, queries: bool = False) -> SparkSession:
    """A session with Delta's reader and the Kafka source.

    Args:
        queries: for interactive use: the JVM's optimising compiler is on; it makes the start slower.

    Raises:
        ConfigurationError: there is no Java, or the jars are not where the settings say.
        UnreachableError: there is no master, or it does not accept this app.
    """
    cluster.look_for_master(settings.spark.master)
    folder = temporary_folders()[0]
    os.environ.update(options.variables(settings, folder))
    for repeater in REPEATERS:
        PySparkLogger.getLogger(repeater).disabled = True
    builder = SparkSession.builder
    for key, value in options.of(settings, folder, name, queries).items():
        builder = builder.config(key, value)
    with cluster.secret_for_jvm(settings.spark):
        session = _create(builder, settings.spark)
    jvm.guard_callbacks(session)
    if quiet:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _create(builder: Any, spark: SparkSettings) -> SparkSession:
    """Start the JVM. Retry once: a JVM that dies during its start may have been killed.

    Raises:
        ConfigurationError: there is no Java that can run it, or Spark refuses a setting.
        UnreachableError: the cluster does not accept the app.
        BrokenError: the JVM ended twice, and a restart may help.
    """
    start = launcher.of(spark.class_archive)
    jvm.start_by(start.popen)
    for last in (False, True):
        try:
            session: SparkSession = builder.getOrCreate()
        except Exception as error:
            if spark.on_cluster and jvm.jvm_lives():
                raise UnreachableError(
                    f"the cluster {spark.master} does not accept this app ({last_message_line(error)}): compare the "
                    "secret (spark.auth_secret_file) and the version of Spark; spark.driver_host and "
                    "spark.bind_address must be addresses of this machine"
                ) from error
            if problem := _reason(error) if jvm.jvm_lives() else java_problem():
                raise ConfigurationError(f"Spark does not start: {problem}") from error
            if last:
                what = f"Spark's JVM ended twice while it started: {_reason(error)}"
                raise BrokenError(f"{what}; if it was not killed, its own messages are in the log above") from error
            jvm.forget()
            start.forget()
        else:
            start.keep(jvm.process())
            return session
    raise AssertionError


def prepare_workers(session: SparkSession, own: bool) -> threading.Thread:
    """Start a Python daemon of Spark early, and one worker: the daemon takes a second to load. Returns the thread that
    waits for it; a job that begins before it ends makes another worker.

    Args:
        own: that of units of one task, see `jvm.use_own_workers`; otherwise that of all other jobs.
    """

    def start() -> None:
        with contextlib.suppress(Exception):  # the next job reports the error
            job = session.sparkContext.parallelize([0], 1).mapPartitions(list)
            if own:
                jvm.use_own_workers(job)
            job.collect()

    thread = threading.Thread(target=start, name="workers", daemon=True)
    thread.start()
    return thread


def java_problem() -> str | None:
    """Why no JVM can run here; None if one can."""
    home = os.environ.get("JAVA_HOME")
    remedy = f"install Java {OLDEST_JAVA} or newer, or name one with JAVA_HOME"
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        return f"there is no java at JAVA_HOME={home}: {remedy}" if home else f"there is no java: {remedy}"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} cannot be run ({type(error).__name__}): {remedy}"
    version = re.search(r'version "(\d+)', done.stdout + done.stderr)
    if version and int(version[1]) < OLDEST_JAVA:
        return f"{java} is Java {version[1]}: {remedy}"
    return f"{java} -version ends with {done.returncode}: {remedy}" if done.returncode else None


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


@contextlib.contextmanager
def without_code_generation(session: SparkSession) -> Iterator[None]:
    """A streaming query that starts here generates no code for the plans of its batches, which nothing runs: workers
    read the records."""
    session.conf.set(CODE_GENERATION, "false")
    try:
        yield
    finally:
        session.conf.unset(CODE_GENERATION)


def signs(session: SparkSession, query: StreamingQuery | None) -> Hashable:
    """A value that changes while Spark makes progress: the query's last report (every ten seconds, also when idle), and
    its tasks."""
    tracker = session.sparkContext.statusTracker()
    stages = [(number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds()]
    tasks = tuple((number, info.numCompletedTasks, info.numFailedTasks) for number, info in stages if info)
    progress = query.lastProgress if query is not None else None
    return tasks, progress["timestamp"] if progress else None
