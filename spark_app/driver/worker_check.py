"""A first job on a cluster, which tries whether its workers can do what units need of them."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.model.errors import ConfigurationError, UnreachableError, first_message_line, last_message_line
from spark_app.model.versions import differences, own_versions
from spark_app.ops.log import log
from spark_app.storage.lake import Lake
from spark_app.storage.storage import Storage

WAIT_S = 0.3  # that a task takes, so that each core gets one
Answer = tuple[str, str]  # host of the worker, and what is wrong with it


def check_workers(session: SparkSession, lake: Lake) -> None:
    """Ask the executors for their versions, and let each try to read and write the lake.

    Raises:
        ConfigurationError: a worker cannot be used; the message names its host.
        UnreachableError: the cluster ended the job.
    """
    context, ask = session.sparkContext, _question(lake, own_versions())
    try:
        context.parallelize([0], 1).mapPartitions(ask).collect()  # waits for the first executor
        tasks = max(2, context.defaultParallelism)
        answers = context.parallelize(range(1, tasks + 1), tasks).mapPartitions(ask).collect()
    except ConnectionError:
        raise
    except Exception as error:
        raise _explained(error) from error
    for host, wrong in answers:
        if wrong:
            raise ConfigurationError(f"worker {host} cannot be used: {wrong}")
    log.info("the workers are right", hosts=len({host for host, _ in answers}), cores=tasks)


def _question(lake: Lake, wanted: dict[str, str]) -> Callable[[Iterable[int]], Iterator[Answer]]:
    storage, trial, id_key, identity = lake.storage, lake.trial(uuid.uuid4().hex), lake.id, lake.known_identity()

    def ask(numbers: Iterable[int]) -> Iterator[Answer]:
        for number in numbers:
            wrong = differences(wanted, own_versions())
            wrong = wrong and f"it has {wrong}: install the same wheel and the same requirements.lock there"
            yield socket.gethostname(), wrong or _try(storage, f"{trial}-{number}", id_key, identity)
            time.sleep(WAIT_S)

    return ask


def _try(storage: Storage, trial: str, id_key: str, identity: str) -> str:
    """What is wrong with the lake as the worker sees it."""
    try:
        if storage.get(id_key).decode().strip() != identity:
            return "another lake is there: use a folder that all machines share, or a bucket"
        storage.probe(trial)
    except FileNotFoundError:
        return "the lake is not there: use a folder that all machines share, or a bucket"
    except (OSError, UnreachableError, ConfigurationError) as error:
        return f"it cannot use the lake ({first_message_line(error)})"
    return ""


def _explained(error: Exception) -> ConfigurationError | UnreachableError:
    said = str(error)
    if "No module named" in said or "ModuleNotFoundError" in said or "Cannot run program" in said:
        return ConfigurationError(
            f"a worker cannot load Protolake ({last_message_line(error)}): install its wheel there, and name "
            "its Python with spark.executor_python"
        )
    if "PYTHON_VERSION_MISMATCH" in said:
        return ConfigurationError(f"a worker has another version of Python: {last_message_line(error)}")
    if isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError":
        return UnreachableError(f"the cluster did not run a first job ({last_message_line(error)}): is it up?")
    raise error
