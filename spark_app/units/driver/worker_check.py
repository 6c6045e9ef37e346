"""A first job on a cluster, which tries whether its workers can do what units need of them."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.files.hmac_key import SETTING, fingerprint_of, read_key
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import StoreError
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UnreachableError, first_message_line, last_message_line
from spark_app.model.log import log
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.sources.files.folder import Changed, Listed, SourceFolder, as_text, open_folder
from spark_app.sources.files.scanning import format_of
from spark_app.sources.kafka import input as kafka_input
from spark_app.units.spark.cluster import cause_of

WAIT_S = 0.3  # that a task takes, so that each core gets one
MOST_TRIED = 100  # files of the source that the app tries to open, for one that it can
SHARE = ": use a folder that all machines share under the same path, or a bucket"
Answer = tuple[str, str]  # host of the worker, and what is wrong with it


def check_workers(session: SparkSession, lake: Lake, settings: Settings) -> None:
    """Let each executor that is there try to read and write the lake, to create a consumer of Kafka or to read a file
    of the source, and compare its key of `hmac()` with the app's. Workers with other versions do not begin.

    Raises:
        ConfigurationError: a worker cannot be used; the message names its host.
        UnreachableError: the cluster ended the job.
    """
    kafka = settings.kafka if settings.source.kind == "kafka" else None
    links = settings.source.follow_links
    trial = FileTrial.of(open_folder(settings.source_address, links)) if settings.source.kind == "files" else None
    context, check = session.sparkContext, _check_of(lake, settings.silver.hmac_key_path, kafka, trial)
    try:
        context.parallelize([0], 1).mapPartitions(check).collect()  # waits for the first executor
        tasks = max(2, context.defaultParallelism)
        answers = context.parallelize(range(1, tasks + 1), tasks).mapPartitions(check).collect()
    except ConnectionError:
        raise
    except Exception as error:
        raise _explained(error) from error
    for host, wrong in answers:
        if wrong and not (trial is not None and trial.is_over(wrong)):
            raise ConfigurationError(f"worker {host} cannot be used: {wrong}")
    log.info("the workers are right", hosts=len({host for host, _ in answers}), cores=tasks)


@dataclass(frozen=True)
class FileTrial:
    """A try at the folder of a file source.

    Attributes:
        file: one that the app itself can read; None = the folder has none.
    """

    folder: SourceFolder
    file: Listed | None

    @staticmethod
    def of(folder: SourceFolder) -> FileTrial:
        """
        Raises:
            StoreError: the object store is not to be had.
        """
        try:
            files = (one for one in folder.files() if format_of(one.key))
            return FileTrial(
                folder, next((one for one in islice(files, MOST_TRIED) if _is_readable(folder, one)), None)
            )
        except StoreError:
            raise
        except OSError:
            return FileTrial(folder, None)  # the run waits for a folder that does not answer

    @property
    def unseen(self) -> str:
        name = as_text(self.file.key) if self.file else ""
        return f"source.path: it does not see {self.folder.path}/{name}, which the app sees{SHARE}"

    def wrong(self) -> str:
        """What is wrong with the folder as the worker sees it."""
        try:
            if self.file is None:
                return "" if self.folder.exists() else f"source.path: it has no folder {self.folder.path}{SHARE}"
            if (there := self.folder.look(self.file.key)) is None:
                return self.unseen
            _read_a_byte(self.folder, there)
        except StoreError:
            raise  # the worker may be right
        except FileNotFoundError:
            return self.unseen
        except Changed:
            return ""
        except (OSError, UnreachableError, ConfigurationError) as error:
            return f"source.path: it cannot read {self.folder.path} ({first_message_line(error)}){SHARE}"
        return ""

    def is_over(self, wrong: str) -> bool:
        """Whether a worker did not see the file because it was removed meanwhile."""
        return wrong == self.unseen and self.file is not None and self.folder.look(self.file.key) is None


def _is_readable(folder: SourceFolder, file: Listed) -> bool:
    try:
        _read_a_byte(folder, file)
    except StoreError:
        raise
    except (OSError, Changed):
        return False
    return True


def _read_a_byte(folder: SourceFolder, file: Listed) -> None:
    with folder.open_input(file) as opened:
        opened.read(1)


def _check_of(
    lake: Lake, hmac_key_file: str, kafka: KafkaSettings | None, source: FileTrial | None
) -> Callable[[Iterable[int]], Iterator[Answer]]:
    """
    Args:
        hmac_key_file: the file of the key; "" = there is none.
        kafka: None = the source is no Kafka.
        source: None = the source is no folder.
    """
    storage, trial, id_key, identity = lake.storage, lake.trial(uuid.uuid4().hex), lake.id, lake.identity()
    fingerprint = fingerprint_of(read_key(hmac_key_file)) if hmac_key_file else ""

    def check(numbers: Iterable[int]) -> Iterator[Answer]:
        for number in numbers:
            wrong = _try(storage, f"{trial}-{number}", id_key, identity)
            wrong = wrong or _try_key(hmac_key_file, fingerprint) or _try_kafka(kafka)
            wrong = wrong or (source.wrong() if source is not None else "")
            yield socket.gethostname(), wrong
            time.sleep(WAIT_S)

    return check


def _try(storage: Storage, trial: str, id_key: str, identity: str) -> str:
    """What is wrong with the lake as the worker sees it."""
    try:
        if storage.get(id_key).decode().strip() != identity:
            return "another lake is there: use a folder that all machines share, or a bucket"
        storage.probe(trial)
    except FileNotFoundError:
        return "the lake is not there: use a folder that all machines share, or a bucket"
    except StoreError:
        raise  # the worker may be right
    except (OSError, UnreachableError, ConfigurationError) as error:
        return f"it cannot use the lake ({first_message_line(error)})"
    return ""


def _try_key(path: str, fingerprint: str) -> str:
    """What is wrong with the key of `hmac()` on the worker's machine."""
    try:
        if not path or fingerprint_of(read_key(path)) == fingerprint:
            return ""
    except ConfigurationError as error:
        return str(error)
    return f"{SETTING}: {path} there is another key than on the machine of the app"


def _try_kafka(kafka: KafkaSettings | None) -> str:
    """What keeps a consumer from being created on the worker's machine, such as a file that is not there."""
    try:
        if kafka is not None:
            kafka_input.try_consumer(kafka)
    except (ValueError, ConfigurationError) as error:
        return f"no consumer of Kafka can be created there ({first_message_line(error)})"
    return ""


def _explained(error: Exception) -> Exception:
    if cause := cause_of(error):
        return cause
    if isinstance(error, (PySparkException, Py4JJavaError)):
        return UnreachableError(f"the cluster did not run a first job ({last_message_line(error)}): is it up?")
    return error
