"""A Spark cluster of local processes: a master, and workers of one core each. All listen on loopback only, and nobody
without the secret, which only its owner may read, can use them."""

import contextlib
import os
import secrets
import shutil
import socket
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.local.java import Java
from scripts.local.ports import HOST, free_port
from scripts.local.server import Server

MEMORY = "2g"  # of a worker, for its executor


class ClusterServer(Server):
    """The master or a worker. `folder` holds what it keeps; the secret is that of the whole cluster."""

    option = "--cluster"

    @property
    def secret_file(self) -> Path:
        return self.state / "cluster-secret"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.secret_file.is_file():
            new = self.secret_file.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(secrets.token_hex(32))
            new.replace(self.secret_file)

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), 1).close()
            return True
        return False

    def _command(self, name: str, *arguments: str) -> list[str]:
        options = ["--secret-file", str(self.secret_file), "--folder", str(self.folder), "--host", HOST]
        java = f"JAVA_HOME={self.java.spark_home()}"
        return ["env", java, sys.executable, "-m", "spark_app", name, *arguments, *options, "--port", str(self.port)]


class SparkMaster(ClusterServer):
    """The master; apps and workers are known to it again after a restart."""

    name = "master"

    def forget(self) -> None:
        """Forget the apps and workers of an earlier run: a restarted master waits a minute for them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return self._command("spark-master")

    def settings(self) -> dict[str, str]:
        """Settings of the app that runs on the cluster."""
        return {
            "PROTOLAKE_SPARK__MASTER": self.url,
            "PROTOLAKE_SPARK__AUTH_SECRET_FILE": str(self.secret_file),
        }


class SparkWorker(ClusterServer):
    """A worker. Several have different names."""

    def __init__(self, master: SparkMaster, number: int = 1, java: Java | None = None, cores: int = 1) -> None:
        super().__init__(master.state, free_port(), java)
        self.name = f"worker-{number}"  # type: ignore[misc]
        self._master, self._cores = master, cores

    def command(self) -> list[str]:
        return [*self._command("spark-worker", self._master.url), "--cores", str(self._cores), "--memory", MEMORY]

    def executors(self) -> list[int]:
        """The process ids of its executors."""
        running = []
        for child in psutil.Process(self.pid).children(recursive=True) if self.pid else []:
            with contextlib.suppress(psutil.Error):  # it has ended
                running += [child.pid] if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()) else []
        return running


def kill_executor(worker: SparkWorker) -> int:
    """Send SIGKILL to an executor of the worker; returns the number of those that it had."""
    running = worker.executors()
    for pid in running[:1]:
        os.kill(pid, 9)
    return len(running)
