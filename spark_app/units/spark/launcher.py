"""Starts the JVM of Spark without spark-submit, and before PySpark is loaded.

spark-submit asks a JVM of its own for the command of the app's JVM: half a second of CPU in each start. All of that
command follows from the app's options but the executable, the end of the class path and the options that Spark gives
this Java. Those are read from a JVM that spark-submit has started, and kept beside the class archive, which is trusted
as much. Where anything is not as usual, spark-submit starts the JVM.

The reasons: docs/decisions/spark.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from spark_app.model.processes import BOUND

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # PySpark's variable: where the JVM writes its port and its token
CLASS_PATH, MEMORY, JAVA = "spark.driver.extraClassPath", "spark.driver.memory", "spark.driver.extraJavaOptions"
# Other options that spark-submit reads for its command.
UNUSUAL = ("spark.driver.defaultJavaOptions", "spark.driver.extraLibraryPath", "spark.submit.", "spark.launcher.")
# Variables that it reads, beside those that are read here.
READ = (
    "JAVA_HOME",
    "SPARK_HOME",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_SCALA_VERSION",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
# The JVM ignores SIGINT, and dies with Python, as it must no longer write then.
AS_CHILD = ["sh", "-c", f'trap "" INT; {BOUND}', "sh"]


@dataclass(frozen=True)
class Begun:
    """A JVM that was started before PySpark asked for one.

    Attributes:
        arguments: those of spark-submit.
        connection: where it writes its port and its token.
    """

    process: subprocess.Popen[bytes]
    arguments: list[str]
    connection: Path

    def remove_connection(self) -> None:
        shutil.rmtree(self.connection.parent, ignore_errors=True)


class Launcher:
    """Starts JVMs for one class archive; "" = none, and then all by spark-submit."""

    def __init__(self, archive: str) -> None:
        self._kept = Path(archive).with_suffix(".command.json") if archive else None
        self._begun: Begun | None = None
        self._connected: Begun | None = None
        self._submitted: list[str] | None = None

    def begin(self, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start a JVM with these options of Spark now, if spark-submit is not needed for it."""
        arguments = [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
        arguments.append("pyspark-shell")
        if (command := self._command(arguments)) is None:
            return
        connection = Path(tempfile.mkdtemp(), "connection")
        given = os.environ | environment | {"SPARK_CONNECT_MODE": "0", CONNECTION: str(connection)}
        process = _start(command, {"stdin": subprocess.PIPE, "env": given})
        self._begun = Begun(process, arguments, connection)

    def popen(self, command: list[str], preexec_fn: Any = None, **given: Any) -> subprocess.Popen[bytes]:
        """Start a JVM as `subprocess.Popen` does with spark-submit's command, or hand over the one that was begun for
        the same arguments.

        PySpark's `preexec_fn` makes the JVM ignore SIGINT. Before such code runs in the forked process, CPython (3.11)
        waits for a lock that another thread may have held at the fork, such as one of Kafka's client: then the start
        hangs for ever. A shell does the same without Python.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            if begun.arguments == command[1:] and begun.process.poll() is None:
                Path(given["env"][CONNECTION]).symlink_to(begun.connection)
                self._connected = begun
                return begun.process
            begun.process.kill()
            begun.process.wait()
            begun.remove_connection()
        if (direct := self._command(command[1:])) is not None:
            return _start(direct, given)
        self._submitted = command[1:]
        return _popen(command, given)

    def keep(self, process: subprocess.Popen[bytes]) -> None:
        """Call once the session is made: keep what spark-submit added to its arguments in the command of this process,
        if it was asked, and remove the token of a JVM that was begun."""
        if self._connected is not None:
            self._connected.remove_connection()
        options = _own_options(self._submitted) if self._submitted else None
        if self._kept is None or options is None:
            return
        with contextlib.suppress(OSError, ValueError):
            command = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[:-1]
            java, _, class_path, *rest = command
            own = [f"-Xmx{options[MEMORY]}", *shlex.split(options[JAVA])]
            added = rest[len(own) : rest.index(SUBMIT)]
            kept = {"for": _surroundings(), "java": java, "options": added}
            kept["class_path"] = class_path.removeprefix(options[CLASS_PATH])
            if _compose(kept, options) == command[: command.index(SUBMIT) + 1]:
                partial = self._kept.with_suffix(f".{os.getpid()}")
                partial.write_text(json.dumps(kept))
                partial.replace(self._kept)

    def forget(self) -> None:
        """Start the next JVM by spark-submit."""
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept.unlink()

    def _command(self, arguments: Sequence[str]) -> list[str] | None:
        options = _own_options(arguments)
        if self._kept is None or options is None:
            return None
        try:
            found = self._kept.stat()
            kept = json.loads(self._kept.read_text())
        except (OSError, ValueError):
            return None
        is_trusted = found.st_uid in (0, os.getuid()) and not found.st_mode & 0o022
        if not is_trusted or kept.get("for") != _surroundings():
            return None
        return [*_compose(kept, options), *arguments]


@cache
def of(archive: str) -> Launcher:
    """The launcher of this process for a class archive."""
    return Launcher(archive)


def _start(command: Sequence[str], given: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a JVM with the variables that spark-submit gives it."""
    home = _spark_home()
    variables = {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(home / "conf"), "PYTHONHASHSEED": "0"}
    return _popen(command, given | {"env": given["env"] | variables})


def _popen(command: Sequence[str], given: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*AS_CHILD, *command], **given)


def _compose(kept: Mapping[str, Any], options: Mapping[str, str]) -> list[str]:
    own = [f"-Xmx{options[MEMORY]}", *shlex.split(options[JAVA])]
    return [kept["java"], "-cp", options[CLASS_PATH] + kept["class_path"], *own, *kept["options"], SUBMIT]


def _own_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """Spark's options among spark-submit's arguments; None if spark-submit would make more of them than this module."""
    *pairs, last = arguments or [""]
    if last != "pyspark-shell" or set(pairs[::2]) != {"--conf"}:
        return None
    options = {key: value for key, _, value in (pair.partition("=") for pair in pairs[1::2])}
    if not {CLASS_PATH, MEMORY, JAVA} <= options.keys() or any(key.startswith(UNUSUAL) for key in options):
        return None
    home = _spark_home()
    return None if (home / "conf").exists() or "SPARK_CONF_DIR" in os.environ else options


def _spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    return Path(str(distribution("pyspark").locate_file("pyspark"))).resolve()


def _surroundings() -> dict[str, str]:
    """What the answer of spark-submit depends on, beside the options."""
    read = {name: os.environ[name] for name in READ if name in os.environ}
    return read | {"spark": distribution("pyspark").version, "java": shutil.which("java") or ""}
