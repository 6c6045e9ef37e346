"""Environment variables of the producer and the Spark app, from the options and the user's environment."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from producer.errors import ProducerError
from producer.settings import read_command
from scripts.local.artifacts import ROOT
from scripts.local.downloads import shipped_jars
from scripts.local.errors import LocalError
from scripts.local.java import Java
from scripts.local.lakes import variables
from scripts.local.options import DEMO, SETTINGS_VARIABLE, TOPIC, Options
from scripts.local.postgres import Postgres

RETENTION_HOURS = 24
RETENTION_BYTES = 1 << 30  # for the whole topic, so that a night at full rate does not fill a laptop's disk
PARTITIONS = 4
PLANTS = "no_player=0.005,test_device=0.005,late_time=0.005"  # as in .env: each breaks one of the demo's rules
LOOPBACK = "127.0.0.1,localhost"


def shared(user: Mapping[str, str]) -> dict[str, str]:
    """Variables for every program of the stack."""
    return {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **without_proxy(user)}


def without_proxy(user: Mapping[str, str]) -> dict[str, str]:
    """No proxy is used between programs of one machine."""
    return {
        name: ",".join(filter(None, (user.get(name, "").removesuffix(LOOPBACK).rstrip(","), LOOPBACK)))
        for name in ("NO_PROXY", "no_proxy")
    }


def for_app(options: Options, java: Java, jars: Path, brokers: str | None, registry: str) -> dict[str, str]:
    """The Spark app's settings."""
    archive = class_archive(java, jars)
    found = {
        "JAVA_HOME": str(java.spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PROTOLAKE_REGISTRY__URL": registry,
        "PROTOLAKE_LAKE__PATH": options.lake,
        "PROTOLAKE_SPARK__JARS": str(jars),
    }
    if brokers:
        found["PROTOLAKE_KAFKA__BROKERS"] = brokers
    if options.starts_store:
        found |= variables(options.address)
    if options.topic:
        found["PROTOLAKE_KAFKA__TOPIC"] = options.topic
    if options.demo:
        found[SETTINGS_VARIABLE] = str(DEMO)
    if options.serve:
        found["PROTOLAKE_SERVE__DSN_FILE"] = str(Postgres(options.state, options.postgres_port).dsn_file)
    if archive:
        found["PROTOLAKE_SPARK__CLASS_ARCHIVE"] = str(archive)
    return found


def class_archive(java: Java, jars: Path) -> Path | None:
    """The class archive of the app's JVM; a JVM ignores it if a jar's path, size or time has changed, so reinstalled
    packages need another one."""
    found = [(path, path.stat()) for path in [*shipped_jars(), *sorted(jars.glob("*.jar"))]]
    return java.archive("spark", "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in found))


def for_producer(options: Options, user: Mapping[str, str], brokers: str, registry: str) -> dict[str, str]:
    """The producer's variables: defaults of this stack, then the user's, then those that the options fix."""
    partitions = user.get("PRODUCER_PARTITIONS", "")
    share = RETENTION_BYTES // max(1, int(partitions) if partitions.isdecimal() else PARTITIONS)
    defaults = {"PRODUCER_RETENTION_HOURS": str(RETENTION_HOURS), "PRODUCER_RETENTION_BYTES": str(share)}
    if options.is_embedded:
        # The embedded registry's FULL rejects every added field; Confluent's does not.
        defaults["PRODUCER_COMPATIBILITY"] = "BACKWARD_TRANSITIVE"
    if options.demo:
        defaults["PRODUCER_PLANT"] = PLANTS
    fixed = {"PRODUCER_BROKERS": brokers, "PRODUCER_REGISTRY": registry}
    if options.topic or "PRODUCER_TOPIC" not in user:
        fixed["PRODUCER_TOPIC"] = options.topic or TOPIC
    if options.records:
        fixed["PRODUCER_RECORDS"] = str(options.records)
    return defaults | own(user) | fixed


def check_producer(variables: Mapping[str, str]) -> None:
    """A LocalError if the producer would not start with these variables."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        read_command(["run"])
    except ProducerError as error:
        raise LocalError(str(error), error.exit_code) from None
    finally:
        os.environ.clear()
        os.environ.update(before)


def own(user: Mapping[str, str]) -> dict[str, str]:
    """The user's PRODUCER_* variables."""
    return {name: value for name, value in user.items() if name.startswith("PRODUCER_")}


def changes(running: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    """Variables that a second ./scripts/run changes; addresses do not change."""
    kept = ("PRODUCER_BROKERS", "PRODUCER_REGISTRY", "PRODUCER_TOPIC")
    return {name: value for name, value in own(user).items() if name not in kept and running.get(name) != value}
