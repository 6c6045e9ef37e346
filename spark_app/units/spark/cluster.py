"""What is different if the executors are processes of a cluster, on this machine or on others.

The reasons: docs/decisions/cluster.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import ConfigurationError, UnreachableError, last_message_line
from spark_app.model.versions import OTHER_VERSIONS, UMASK, VERSIONS, own_versions
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.settings.spark_cluster import SparkSettings

SUBMIT = "PYSPARK_SUBMIT_ARGS"
SECRET = re.compile(r"[!-\[\]-~]{16,}")  # the app gives it as a property of Java, where others have a meaning
CONNECT_S = 5.0
# As in the app's JVM: it handles no single record.
EXECUTOR_JAVA = "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData -XX:TieredStopAtLevel=1"
# RPC and blocks of the session are encrypted, and only who knows the secret may speak to it.
AUTHENTICATION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
}
CIPHER = {"spark.network.crypto.cipher": "AES/GCM/NoPadding"}  # between machines; it also notices changed bytes
NO_PROCESS = "Cannot run program"
OUT_OF_RESOURCES = ("Cannot allocate memory", "Resource temporarily unavailable", "Too many open files")  # may pass
# Texts in the errors of Spark and of workers if an executor cannot work for the app: no record is the cause.
UNUSABLE = (OTHER_VERSIONS, "PYTHON_VERSION_MISMATCH", "No module named", "ModuleNotFoundError", NO_PROCESS)
BROKEN = (
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "Can't get attribute",
    "cannot import name",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
    "Master removed our application",
    "All masters are unresponsive",
)


class MasterUnreachable(UnreachableError):
    """No master of a standalone cluster accepts a connection."""


def options(settings: Settings, package: Path) -> dict[str, str]:
    """Spark's options for executors.

    Args:
        package: the folder of the package `spark_app`.
    """
    spark = settings.spark
    found = CIPHER | {
        "spark.driver.host": spark.driver_host,
        "spark.driver.bindAddress": spark.bind_address or spark.driver_host,
        "spark.executor.extraJavaOptions": EXECUTOR_JAVA,
        "spark.locality.wait": "0s",  # a task prefers the executor that has fetched its records, but never waits for it
        f"spark.executorEnv.{VERSIONS}": json.dumps(own_versions()),
        f"spark.executorEnv.{UMASK}": settings.lake.umask,
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
        ConfigurationError: the file cannot be read, is open to others, or contains no such secret.
    """
    text = config.read_secret(path, "spark.auth_secret_file").strip()
    if os.stat(path).st_mode & 0o077:
        raise ConfigurationError(f"spark.auth_secret_file: {path} is open to other users: chmod 600 {path}")
    if not SECRET.fullmatch(text):
        raise ConfigurationError(
            f"spark.auth_secret_file: {path} is not one line of at least 16 printable characters without blanks and "
            "backslashes: make one, for instance with openssl rand -hex 32"
        )
    return text


@contextlib.contextmanager
def secret_for_jvm(spark: SparkSettings) -> Iterator[None]:
    """Give the secret to the JVM that starts within the block, in a file: its command line is open to everybody."""
    if not spark.auth_secret_file:
        yield
        return
    secret = read_secret(spark.auth_secret_file)
    with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".conf") as file:  # open to its owner alone
        file.write(f"spark.authenticate.secret={secret}\n")
        file.flush()
        os.environ[SUBMIT] = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults pyspark-shell"
        try:
            yield
        finally:
            del os.environ[SUBMIT]


def look_for_master(master: str) -> None:
    """
    Raises:
        MasterUnreachable: none accepts a connection.
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


def cause_of(error: Exception) -> ConfigurationError | UnreachableError | None:
    """The error of executors or of the object store that an error of a job names; None if records may be its cause."""
    text = str(error)
    if is_store_error(error):
        return UnreachableError(last_message_line(error))
    if own := _own_error(text):
        return own
    if (line := _line_with((NO_PROCESS,), text)) and any(words in line for words in OUT_OF_RESOURCES):
        return UnreachableError(f"a worker cannot start a process: {line}")
    if line := _line_with(UNUSABLE, text):
        return ConfigurationError(
            f"a worker{_host(text)} cannot be used ({line}): install the same wheel and the same "
            "requirements.lock there, and name its Python with spark.executor_python"
        )
    if line := _line_with(BROKEN, text):
        return UnreachableError(f"the cluster does not run the app's jobs: {line}")
    return None


def _own_error(text: str) -> ConfigurationError | UnreachableError | None:
    """The error of the app's own code in a task, which found what it needs besides the records missing or wrong."""
    for kind in (ConfigurationError, UnreachableError):
        begin = f"{kind.__module__}.{kind.__name__}: "
        for line in text.splitlines():
            if line.startswith(begin):
                return kind(f"a worker{_host(text)}: {line.removeprefix(begin)[:300]}")
    return None


def _host(text: str) -> str:
    host = re.search(r"\((\S+) executor ", text)
    return f" on {host[1]}" if host else ""


def _line_with(words: Sequence[str], text: str) -> str:
    """The first line that has one of the words, at most 300 characters; empty if there is none."""
    lines = (line.strip()[:300] for line in text.splitlines())
    return next((line for line in lines if any(word in line for word in words)), "")


# The master and the workers of a Spark cluster of one's own, as Spark ships them. Spark has scripts for them, which the
# package of PySpark lacks. Unlike there, nobody without the secret reaches them: neither their RPC, nor their pages
# with the logs of executors, nor the requests that end a worker.
SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # Spark's own name; a worker hands it on to its executors
DEPLOY = "org.apache.spark.deploy"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1"


def run_master(host: str, port: int, folder: Path, secret_file: str) -> NoReturn:
    """Become the master. It keeps in `folder` which applications and workers there are, so that it can be restarted."""
    options = {"spark.deploy.recoveryMode": "FILESYSTEM", "spark.deploy.recoveryDirectory": str(folder)}
    options["spark.deploy.maxExecutorRetries"] = "-1"  # else it ends an app whose executors were killed ten times
    given = ["--host", host, "--port", str(port), "--webui-port", "0"]
    _become("master.Master", given, options, host, folder, secret_file)


def run_worker(
    master: str, listen: tuple[str, int], cores: int, memory: str, folder: Path, secret_file: str
) -> NoReturn:
    """Become a worker, which starts executors. Their logs are in `folder`."""
    options = {
        "spark.worker.cleanup.enabled": "true",
        "spark.worker.cleanup.appDataTtl": "86400",
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": str(8 << 20),
        "spark.executor.logs.rolling.maxRetainedFiles": "4",
    }
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "blocks")
    given = ["--host", listen[0], "--port", str(listen[1]), "--webui-port", "0"]
    given += ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder)]
    _become("worker.Worker", [*given, master], options, listen[0], folder, secret_file)


def _become(
    name: str, arguments: list[str], options: dict[str, str], host: str, folder: Path, secret_file: str
) -> NoReturn:
    secret = read_secret(secret_file)
    os.umask(0o077)
    options |= (
        AUTHENTICATION
        | CIPHER
        | {
            "spark.master.rest.enabled": "false",  # it would run programs for everybody on the machine
            "spark.ui.killEnabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.ui.filters": "org.apache.spark.ui.JWSFilter",  # who does not have the key sees nothing
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": secrets.token_urlsafe(32),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    given = folder / "spark.conf"  # a command line is open to everybody
    given.unlink(missing_ok=True)
    given.touch(mode=0o600)
    given.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    from pyspark.find_spark_home import _find_spark_home

    home = _find_spark_home()
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS, SECRET_VARIABLE: secret}
    environment |= {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "512m", "SPARK_PUBLIC_DNS": host}
    command = os.path.join(home, "bin", "spark-class")
    os.execve(command, [command, f"{DEPLOY}.{name}", "--properties-file", str(given), *arguments], environment)
