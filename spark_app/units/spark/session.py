"""The only module where a Spark session is configured.

The reasons: docs/decisions/spark.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_app
from spark_app.lake.files.disk import temporary_folders
from spark_app.model.errors import BrokenError, ConfigurationError, UnreachableError, last_message_line
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import MAY_BE_SECRET
from spark_app.units.spark import cluster, jvm

OLDEST_JAVA = 17
LOGGING = Path(__file__).with_name("log4j2.properties")
PACKAGE = Path(spark_app.__file__).parents[1]
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
JVM_OPTIONS = f"-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Dlog4j2.configurationFile={LOGGING}"
JVM_OPTIONS += " -XX:-UsePerfData"  # it maps a file in the temporary folder, and a full one would end the JVM
# Workers read, decode and write: the JVM has too little work for the second compiler to pay off.
BRIEF = " -XX:TieredStopAtLevel=1"

# PySpark's loggers that repeat raised errors: 7,000 characters of JSON for a mistyped name.
REPEATERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start(settings: Settings, name: str = "protolake", quiet: bool = False, queries: bool = False) -> SparkSession:
    """A session with Delta's reader and the Kafka source.

    Args:
        queries: for interactive use: the JVM's optimising compiler is on; it makes the start slower.

    Raises:
        ConfigurationError: there is no Java, or the jars are not where the settings say.
        UnreachableError: there is no master, or it does not accept this app.
    """
    cluster.look_for_master(settings.spark.master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.spark.on_cluster and settings.spark.executor_python:
        os.environ["PYSPARK_PYTHON"] = settings.spark.executor_python  # tasks of RDDs read no option
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(temporary_folders()[0]))  # Spark's default may be another folder
    for repeater in REPEATERS:
        PySparkLogger.getLogger(repeater).disabled = True
    builder = SparkSession.builder.appName(name).master(settings.spark.master)
    for key, value in _options(settings, queries).items():
        builder = builder.config(key, value)
    with cluster.secret_for_jvm(settings.spark):
        session = _create(builder, settings.spark.master if settings.spark.on_cluster else "")
    jvm.guard_callbacks(session)
    if quiet:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _create(builder: Any, cluster_master: str) -> SparkSession:
    """Start the JVM. Retry once: a JVM that dies during its start may have been killed.

    Raises:
        ConfigurationError: there is no Java that can run it, or Spark refuses a setting.
        UnreachableError: the cluster does not accept the app.
        BrokenError: the JVM ended twice, and a restart may help.
    """
    jvm.avoid_python_in_forks()
    for last in (False, True):
        try:
            return builder.getOrCreate()  # type: ignore[no-any-return]
        except Exception as error:
            if cluster_master and jvm.jvm_lives():
                raise UnreachableError(
                    f"the cluster {cluster_master} does not accept this app ({last_message_line(error)}): compare the "
                    "secret (spark.auth_secret_file) and the version of Spark; spark.driver_host and "
                    "spark.bind_address must be addresses of this machine"
                ) from error
            if problem := _reason(error) if jvm.jvm_lives() else java_problem():
                raise ConfigurationError(f"Spark does not start: {problem}") from error
            if last:
                what = f"Spark's JVM ended twice while it started: {_reason(error)}"
                raise BrokenError(f"{what}; if it was not killed, its own messages are in the log above") from error
            jvm.forget()
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


def _options(settings: Settings, queries: bool = False) -> dict[str, str]:
    spark, batch = settings.spark, settings.batch
    options = {
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": _java_options(settings, queries),
        "spark.hadoop.fs.permissions.umask-mode": settings.lake.umask,  # Hadoop ignores the process's umask
        "spark.ui.enabled": str(spark.ui_port > 0).lower(),
        "spark.ui.killEnabled": "false",  # the UI has no login
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": MAY_BE_SECRET,
        "spark.sql.redaction.options.regex": MAY_BE_SECRET,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch.max_arrow_records),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(batch.max_arrow_bytes),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
        # Gold reads a small file of each table: the driver lists the files, without a job, and a task reads many.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        "spark.sql.files.openCostInBytes": str(128 << 10),
        # A task clears a batch of this size per file, however few rows it has: half of gold's CPU time with 4,096.
        "spark.sql.parquet.columnarReaderBatchSize": "512",
        "spark.sql.streaming.stopTimeout": "20000",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "spark_app.units.spark.daemon",
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",  # SQL sets it: RDDs would have workers of their own
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": "10000",  # ms that Arrow keeps free memory: for the next unit
        "spark.python.unix.domain.socket.enabled": str(_holds_sockets(temporary_folders()[0])).lower(),
        "spark.cleaner.periodicGC.interval": "10min",
    }
    options |= cluster.AUTHENTICATION  # in local mode Spark makes a secret per start, which stays in the JVM's memory
    options |= cluster.options(settings, PACKAGE) if spark.on_cluster else LOOPBACK
    if spark.ui_port:
        options |= {"spark.ui.port": str(spark.ui_port), "spark.ui.host": spark.ui_host}
    if spark.jars:
        options["spark.driver.extraClassPath"] = os.pathsep.join(_jars(Path(spark.jars)))
    return _with_own(options, spark.options)


def _with_own(options: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """
    Raises:
        ConfigurationError: a setting would replace what the app depends on.
    """
    if reserved := sorted({"spark.master", *options} & own.keys()):
        raise ConfigurationError(f"spark.options: the app sets {reserved[0]} itself: remove it")
    return options | own


def _holds_sockets(folder: Path) -> bool:
    """True if Spark may use Unix sockets in this folder for its Python workers. With TCP each job waits 40 ms for an
    acknowledgement; but every user who may write to a socket file may use it."""
    trial = folder / f".{uuid.uuid4()}.socket"  # longer than Spark's, as paths are limited
    try:
        found = folder.stat()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(trial))
        trial.unlink()
    except OSError:
        return False  # Spark reports an unusable folder
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


def _jars(folder: Path) -> list[str]:
    jars = sorted(str(path) for path in folder.glob("*.jar"))
    if not any("delta-spark" in jar for jar in jars):
        raise ConfigurationError(
            f"spark.jars: {folder} does not contain Spark's Kafka and Delta jars; ./scripts/run fetches them"
        )
    return jars


def _java_options(settings: Settings, queries: bool) -> str:
    options = f'{JVM_OPTIONS}{"" if queries else BRIEF} "-Djava.io.tmpdir={temporary_folders()[0]}"'
    if settings.kafka.uses_oauth:  # Kafka's client only requests tokens from addresses that are named at the start
        options += f' "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={settings.kafka.oauth_token_url}"'
    if settings.spark.class_archive:
        options += f" -XX:SharedArchiveFile={settings.spark.class_archive} -XX:+AutoCreateSharedArchive"
        options += " -Xlog:cds=off -Xlog:cds*=off"
    return options


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


def signs(session: SparkSession, query: StreamingQuery | None) -> Hashable:
    """A value that changes while Spark makes progress: the query's last report (every ten seconds, also when idle), and
    its tasks."""
    tracker = session.sparkContext.statusTracker()
    stages = [(number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds()]
    tasks = tuple((number, info.numCompletedTasks, info.numFailedTasks) for number, info in stages if info)
    progress = query.lastProgress if query is not None else None
    return tasks, progress["timestamp"] if progress else None
