"""What is different if the executors are processes of a cluster, on this machine or on others."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import SparkSettings

SUBMIT = "PYSPARK_SUBMIT_ARGS"
CONNECT_S = 5.0
# As in the app's JVM: records do not pass through it.
EXECUTOR_JAVA = "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData -XX:TieredStopAtLevel=1"
# RPC and blocks of the session are encrypted, and only who knows the secret may speak to it.
AUTHENTICATION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
# What Spark's and Java's errors say if an executor lacks the app, or has another one: no record is the cause.
BROKEN = (
    "ModuleNotFoundError",
    "No module named",
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "Cannot run program",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
)


class MasterUnreachable(UnreachableError):
    """No master of a standalone cluster takes a connection."""


def options(settings: Settings, package: Path) -> dict[str, str]:
    """Spark's options for executors.

    Args:
        package: the folder that holds the package `spark_app`.
    """
    spark = settings.spark
    found = {
        "spark.driver.host": spark.driver_host,
        "spark.driver.bindAddress": spark.bind_address or spark.driver_host,
        "spark.executor.extraJavaOptions": EXECUTOR_JAVA,
        # With Unix sockets a job starts 40 ms sooner, but they would be open to other users of a worker's machine.
        "spark.python.unix.domain.socket.enabled": "false",
    }
    if not spark.executor_python:
        found["spark.executorEnv.PYTHONPATH"] = str(package)
    if cache := os.environ.get("NUMBA_CACHE_DIR"):
        found["spark.executorEnv.NUMBA_CACHE_DIR"] = cache
    return found


def read_secret(path: str) -> str:
    """The secret of a cluster.

    Raises:
        ConfigurationError: the file cannot be read, is open to others, or is too short to be a secret.
    """
    try:
        mode, text = os.stat(path).st_mode, Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"spark.auth_secret_file: cannot read {path} ({reason})") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(f"spark.auth_secret_file: {path} is open to other users: chmod 600 {path}")
    if len(text) < 16:
        raise ConfigurationError(f"spark.auth_secret_file: {path} has fewer than 16 characters: make a longer secret")
    return text


@contextlib.contextmanager
def secret_for_jvm(spark: SparkSettings) -> Iterator[None]:
    """Give the secret to the JVM that starts within the block, in a file: its command line is open to everybody."""
    if not spark.auth_secret_file:
        yield
        return
    secret = read_secret(spark.auth_secret_file)
    with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".conf") as file:  # open to its owner alone
        file.write(f"spark.authenticate.secret {secret}\n")
        file.flush()
        os.environ[SUBMIT] = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults pyspark-shell"
        try:
            yield
        finally:
            del os.environ[SUBMIT]


def look_for_master(master: str) -> None:
    """
    Raises:
        MasterUnreachable: none takes a connection.
    """
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        found = urlsplit(f"//{address}")
        try:
            socket.create_connection((found.hostname or "", found.port or 0), CONNECT_S).close()
        except OSError as error:
            reasons.append(str(error))
        else:
            return
    raise MasterUnreachable(f"the master {master} does not answer ({reasons[0]}): is it up?")


def is_broken(error: BaseException) -> bool:
    """Whether an error of Spark says that executors, and not records, are its cause."""
    return any(words in str(error) for words in BROKEN)
