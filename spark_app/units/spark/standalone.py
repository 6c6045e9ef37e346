"""The master and the workers of a Spark cluster of one's own, as Spark ships them.

Unlike by Spark's own scripts, which the package of PySpark lacks, nobody without the secret reaches them: neither their
RPC, nor their pages with the logs of executors, nor the requests that end a worker.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import NoReturn

from pyspark.find_spark_home import _find_spark_home

from spark_app.units.spark.cluster import AUTHENTICATION, CIPHER, read_secret

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
    home = _find_spark_home()
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS, SECRET_VARIABLE: secret}
    environment |= {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "512m", "SPARK_PUBLIC_DNS": host}
    command = os.path.join(home, "bin", "spark-class")
    os.execve(command, [command, f"{DEPLOY}.{name}", "--properties-file", str(given), *arguments], environment)
