"""The options of a Spark session: the only module where one is configured. It loads nothing of PySpark.

The reasons: docs/decisions/spark.md.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from pathlib import Path

import spark_app
from spark_app.model.errors import ConfigurationError
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import MAY_BE_SECRET
from spark_app.units.spark import cluster

NAME = "protolake"
LOGGING = Path(__file__).with_name("log4j2.properties")
PACKAGE = Path(spark_app.__file__).parents[1]
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
JVM_OPTIONS = f"-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Dlog4j2.configurationFile={LOGGING}"
JVM_OPTIONS += " -XX:-UsePerfData"  # it maps a file in the temporary folder, and a full one would end the JVM
# Workers read, decode and write: the JVM has too little work for the second compiler to pay off.
BRIEF = " -XX:TieredStopAtLevel=1"

CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


def variables(settings: Settings, folder: Path) -> dict[str, str]:
    """The variables of the environment that the JVM and its Python daemons need; `folder` as for `of`."""
    given, python = os.environ, sys.executable
    own = settings.spark.on_cluster and settings.spark.executor_python
    return {
        "PYSPARK_PYTHON": own or given.get("PYSPARK_PYTHON", python),  # tasks of RDDs read no option
        "PYSPARK_DRIVER_PYTHON": given.get("PYSPARK_DRIVER_PYTHON", python),
        "PYTHONPATH": os.pathsep.join([str(PACKAGE), given.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_DIRS": given.get("SPARK_LOCAL_DIRS", str(folder)),  # Spark's default may be another folder
    }


def of(settings: Settings, folder: Path, name: str = NAME, queries: bool = False) -> dict[str, str]:
    """All of a session's options, in the order in which PySpark gives them to spark-submit.

    Args:
        folder: the app's own temporary folder.
        queries: for interactive use: the JVM's optimising compiler is on; it makes the start slower.

    Raises:
        ConfigurationError: the jars are not where the settings say, or a setting is one that the app needs itself.
    """
    spark, batch = settings.spark, settings.batch
    options = {
        "spark.app.name": name,
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": _java_options(settings, folder, queries),
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
        "spark.python.unix.domain.socket.enabled": str(_holds_sockets(folder)).lower(),
        "spark.cleaner.periodicGC.interval": "10min",
        # Without Hadoop's native library, its local file system forks a process for each file of the checkpoint and for
        # that file's checksum: 15 in a trigger.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # A larger result of a task would go through a port to the same process.
        "spark.task.maxDirectResultSize": str(100 << 20),
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
    if reserved := sorted(options.keys() & own.keys() - {"spark.app.name"}):
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


def _java_options(settings: Settings, folder: Path, queries: bool) -> str:
    options = f'{JVM_OPTIONS}{"" if queries else BRIEF} "-Djava.io.tmpdir={folder}"'
    if settings.kafka.uses_oauth:  # Kafka's client only requests tokens from addresses that are named at the start
        options += f' "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={settings.kafka.oauth_token_url}"'
    if settings.spark.class_archive:
        options += f" -XX:SharedArchiveFile={settings.spark.class_archive} -XX:+AutoCreateSharedArchive"
        options += " -Xlog:cds=off -Xlog:cds*=off"
    return options
