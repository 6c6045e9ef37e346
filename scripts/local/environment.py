"""What the producer and the Spark app are told: variables, out of the options and the user's own environment."""

import sys
from collections.abc import Mapping
from pathlib import Path

from scripts.local.artifacts import ROOT
from scripts.local.downloads import shipped_jars
from scripts.local.java import Java
from scripts.local.options import TOPIC, Options

RETENTION_HOURS = 24
RETENTION_BYTES = 1 << 30  # of the whole topic: a night at full rate does not fill a laptop's disk
PARTITIONS = 4
LOOPBACK = "127.0.0.1,localhost"


def shared(user: Mapping[str, str]) -> dict[str, str]:
    """For every program of the stack. A proxy never stands between programs of one machine."""
    proxies = {name: ",".join(filter(None, (user.get(name), LOOPBACK))) for name in ("NO_PROXY", "no_proxy")}
    return {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **proxies}


def for_app(options: Options, java: Java, jars: Path, brokers: str, registry: str) -> dict[str, str]:
    """The Spark app's settings."""
    archive = class_archive(java, jars)
    found = {
        "JAVA_HOME": str(java.spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PROTOLAKE_KAFKA__BROKERS": brokers,
        "PROTOLAKE_REGISTRY__URL": registry,
        "PROTOLAKE_LAKE__PATH": str(options.lake),
        "PROTOLAKE_SPARK__JARS": str(jars),
    }
    if options.topic:
        found["PROTOLAKE_KAFKA__TOPIC"] = options.topic
    if archive:
        found["PROTOLAKE_SPARK__CLASS_ARCHIVE"] = str(archive)
    return found


def class_archive(java: Java, jars: Path) -> Path | None:
    """That of the app's JVM, which does not use one when a jar has another place, size or time than at its training:
    packages that were installed anew need another one."""
    found = [(path, path.stat()) for path in [*shipped_jars(), *sorted(jars.glob("*.jar"))]]
    return java.archive("spark", "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in found))


def for_producer(options: Options, user: Mapping[str, str], brokers: str, registry: str) -> dict[str, str]:
    """The producer's variables: defaults of this stack, then the user's, then what the options fix."""
    partitions = user.get("PRODUCER_PARTITIONS", "")
    share = RETENTION_BYTES // max(1, int(partitions) if partitions.isdecimal() else PARTITIONS)
    defaults = {"PRODUCER_RETENTION_HOURS": str(RETENTION_HOURS), "PRODUCER_RETENTION_BYTES": str(share)}
    if options.is_embedded:
        # The embedded registry's FULL refuses every added field; Confluent's does not.
        defaults["PRODUCER_COMPATIBILITY"] = "BACKWARD_TRANSITIVE"
    fixed = {"PRODUCER_BROKERS": brokers, "PRODUCER_REGISTRY": registry}
    if options.topic or "PRODUCER_TOPIC" not in user:
        fixed["PRODUCER_TOPIC"] = options.topic or TOPIC
    if options.records:
        fixed["PRODUCER_RECORDS"] = str(options.records)
    return defaults | own(user) | fixed


def own(user: Mapping[str, str]) -> dict[str, str]:
    """The user's PRODUCER_* variables."""
    return {name: value for name, value in user.items() if name.startswith("PRODUCER_")}


def changes(running: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    """What a second ./scripts/run would change for the running producer; addresses stay what they are."""
    kept = ("PRODUCER_BROKERS", "PRODUCER_REGISTRY", "PRODUCER_TOPIC")
    return {name: value for name, value in own(user).items() if name not in kept and running.get(name) != value}
