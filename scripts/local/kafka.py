"""A real Kafka broker: one node, KRaft, loopback only.

`with Kafka(state, port) as kafka: kafka.bootstrap`. The data is in <state>/kafka; it is created once and kept.
"""

import base64
import subprocess
import uuid
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from scripts.local.artifacts import fingerprint, read
from scripts.local.downloads import ensure
from scripts.local.errors import LocalError
from scripts.local.ports import HOST, free_ports, is_listening
from scripts.local.server import JVM, Server

SEGMENT_BYTES = 64 * 1024**2  # retention removes whole segments


class Kafka(Server):
    """The broker; it is ready when it answers under the cluster id of its own data folder."""

    name = "kafka"
    option = "--kafka-port"

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _meta(self) -> Path:
        return self.folder / "data" / "meta.properties"

    @cached_property
    def _class_path(self) -> str:
        return ":".join(str(path) for path in sorted(ensure("kafka").glob("*.jar")))

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        [self._controller_port] = free_ports(1, self.port)
        self._properties.write_text(render(properties(self.folder / "data", self.port, self._controller_port)))
        if not self._meta.is_file():
            self._format()

    def command(self) -> list[str]:
        return [*self._java_command(), "kafka.Kafka", str(self._properties)]

    def is_ready(self) -> bool:
        if not is_listening(self.port):
            return False
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return bool(admin.list_topics(timeout=2).cluster_id == self._cluster_id())
        except KafkaException:
            return False

    def _java_command(self) -> list[str]:
        archive = self.java.archive_options(self.name, fingerprint(read(self.name)) + self._class_path)
        log = "-Dorg.apache.logging.log4j.level=WARN"
        return [self.java.command, *JVM, *archive, log, "-cp", self._class_path]

    def _format(self) -> None:
        cluster_id = new_cluster_id()
        options = ["-t", cluster_id, "-c", str(self._properties), "--ignore-formatted"]
        command = [self.java.command, *JVM, "-cp", self._class_path, "kafka.tools.StorageTool", "format", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LocalError(f"Kafka cannot create its data folder {self._meta.parent}: {_reason(done)}")

    def _cluster_id(self) -> str | None:
        lines = self._meta.read_text().splitlines() if self._meta.is_file() else []
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The innermost exception of a Java program that failed, or what it said first."""
    lines = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes[-1:] or lines[:1] or ["no message"])[0]


def properties(data: Path, port: int, controller_port: int) -> dict[str, object]:
    """server.properties. The quorum is set here, not in the data, because the controller's port may differ at each
    start."""
    listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}"
    alone = {
        f"{topic}.{setting}": 1
        for topic, settings in {
            "offsets.topic": ("replication.factor", "num.partitions"),
            "transaction.state.log": ("replication.factor", "min.isr", "num.partitions"),
            "share.coordinator.state.topic": ("replication.factor", "min.isr", "num.partitions"),
        }.items()
        for setting in settings
    }
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        **alone,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        # Fits the small heap; the default 128 MiB does not.
        "log.cleaner.dedupe.buffer.size": 16 * 1024**2,
        "log.segment.bytes": SEGMENT_BYTES,
        "log.retention.hours": 24,
        "log.retention.check.interval.ms": 60_000,
        # After a kill -9 the broker waits for its old session to expire.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }


def render(settings: dict[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def new_cluster_id() -> str:
    """A random id; the tool would treat one that begins with "-" as an option."""
    drawn = iter(lambda: base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="), "")
    return next(cluster_id for cluster_id in drawn if not cluster_id.startswith("-"))
