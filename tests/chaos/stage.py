"""The real Spark app and the real producer as processes, on their own topic and lake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.local import java
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.environment import class_archive
from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.registry import Registry
from spark_app.lake import cursors
from spark_app.lake.files import failpoints
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ExitCode
from spark_app.model.table_names import gold_kind_of
from tests.chaos.read_back import wrong_events

IN_USE = "is in use by"
MOST_RUNS = 8  # of a drain
HANGS_S = 600.0  # a limit, so that every wait ends; promised times are measured
# A busy machine may not compile a new schema within the app's 5 s: its records would wait, and it would be no bump.
WAITS_FOR_SCHEMAS = {"SCHEMAS__RESOLVE_TIMEOUT_S": "60", "REGISTRY__TIMEOUT_S": "30"}
QUICK = "-XX:TieredStopAtLevel=1"  # in an app that runs for seconds the second compiler does not pay off


class Stage:
    """A topic and a lake on the shared servers.

    Attributes:
        lake: the folder of the lake, or of its files on this machine if the lake is in a bucket.
        address: where the lake is; another `lake` may be set before the start.
    """

    def __init__(
        self,
        folder: Path,
        kafka: Kafka,
        registry: Registry,
        topic: str,
        objects: ObjectStore | None = None,
        **settings: str,
    ):
        self.lake = folder / "lake"
        self._in_bucket = objects.address(topic, self.lake) if objects else None
        self.topic = topic
        self.brokers, self.registry = kafka.bootstrap, registry
        self.log = folder / "app.log"
        self.acks = folder / "acks.jsonl"
        found, jars = java.find(), ensure("spark")
        self._app_env = {
            "PROTOLAKE_KAFKA__BROKERS": kafka.bootstrap,
            "PROTOLAKE_KAFKA__TOPIC": topic,
            "PROTOLAKE_REGISTRY__URL": registry.url,
            "PROTOLAKE_LAKE__PATH": self.address.root,
            "PROTOLAKE_STORE__ENDPOINT": self.address.endpoint,
            "PROTOLAKE_STORE__REGION": self.address.region,
            "PROTOLAKE_STORE__CREDENTIALS_FILE": self.address.credentials_file,
            "PROTOLAKE_STORE__LOCAL_PATH": self.address.local,
            "PROTOLAKE_SPARK__JARS": str(jars),
            "PROTOLAKE_RUN__BACKOFF_S": "0",  # otherwise repeated kills would delay the starts
            "JAVA_HOME": str(found.spark_home()),
            "JAVA_TOOL_OPTIONS": QUICK,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        archive = class_archive(found, jars)
        if archive:
            self._app_env["PROTOLAKE_SPARK__CLASS_ARCHIVE"] = str(archive)
        self._app_env |= {f"PROTOLAKE_{key}": value for key, value in settings.items()}
        self._producer_env = {
            "PRODUCER_BROKERS": kafka.bootstrap,
            "PRODUCER_REGISTRY": registry.url,
            "PRODUCER_TOPIC": topic,
            "PRODUCER_COMPATIBILITY": "BACKWARD_TRANSITIVE",
            "PRODUCER_RATE": "0",
            "PRODUCER_ACKS": str(self.acks),
        }

    @property
    def address(self) -> StorageAddress:
        return self._in_bucket or StorageAddress(str(self.lake))

    def produce(self, records: int, **options: str) -> None:
        """Set up topic and subject if necessary, and send `records` events."""
        env = self._producer_env | {"PRODUCER_RECORDS": str(records)}
        env |= {f"PRODUCER_{key.upper()}": value for key, value in options.items()}
        for command in ("setup", "run"):
            subprocess.run(
                [sys.executable, "-m", "producer", command],
                env=_env(env),
                cwd=ROOT,
                check=True,
                timeout=HANGS_S + records / 1000,
                stderr=subprocess.DEVNULL,
            )

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start the app in its own process group; its output goes to `log`."""
        return self.spawn("run", *arguments, **settings)

    def spawn(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start any command of the app in the same way."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "spark_app", *arguments],
                env=self._environment(settings),
                cwd=ROOT,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )

    def run(self, *arguments: str, timeout: float = HANGS_S, **settings: str) -> int:
        """Run the app to its end; returns its exit code."""
        app = self.start(*arguments, **settings)
        try:
            return app.wait(timeout)
        finally:
            kill(app)

    def command(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout: float = HANGS_S,
        without: Collection[str] = (),
        **settings: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run another command on the same lake, such as `replay`.

        Args:
            stdin: its input.
            without: settings of the stage that the command does not get.
        """
        env = self._environment(settings)
        return subprocess.run(
            [sys.executable, "-m", "spark_app", *arguments],
            env={name: value for name, value in env.items() if name.removeprefix("PROTOLAKE_") not in without},
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def drain(self, timeout: float = HANGS_S, **settings: str) -> list[int]:
        """Ingest everything, restarted after each bump and each refused start as the restart policy would; returns the
        exit codes."""
        codes: list[int] = []
        while len(codes) < MOST_RUNS:
            logged = len(self.lines())
            codes.append(self.run("--available-now", timeout=timeout, **settings))
            if codes[-1] != ExitCode.BUMP and not self.was_refused(codes[-1], logged):
                break
        return codes

    def was_refused(self, code: int | None, logged: int) -> bool:
        """Whether a start met the lake in use, by a command or the JVM of a killed driver, which takes seconds to end.

        Args:
            code: of its exit.
            logged: lines of the log before it.
        """
        return code == ExitCode.UNREACHABLE and IN_USE in "".join(self.lines()[logged:])

    def verify(self, timeout: float = 3600, **settings: str) -> dict[str, object]:
        """The differences that the audit finds, record by record, also against the records that Kafka acknowledged
        to the producer; and records that were not ingested or not merged into gold. Empty = none. Call it after
        `drain`."""
        acks = ("--acks", str(self.acks)) if self.acks.exists() else ()
        done = self.command("audit", "--json", *acks, timeout=timeout, **settings)
        if not done.stdout:
            return {"audit": f"ended with {done.returncode}: {done.stderr[-1000:]}"}
        verdict = json.loads(done.stdout)
        found: dict[str, object] = {kind: wrongs[:3] for kind, wrongs in verdict["named"].items()}
        lake = Lake(self.address)
        kinds = {"gold", *(name for name in cursors.names(lake) if gold_kind_of(name))}
        in_gold = min(cursors.read(lake, name) or 0 for name in kinds)
        left = {"left": verdict["left"], "units_not_in_gold": max(lake.units(), default=0) - in_gold}
        found |= {f"events {what}": units[:3] for what, units in wrong_events(self.address, in_gold).items() if units}
        return found | {what: count for what, count in left.items() if count}

    def arm(self, points: Sequence[str]) -> None:
        """Arm failpoints: the app kills itself at each of them once. It has to be started with FAILPOINTS="on"."""
        path = self.lake / failpoints.FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(list(points)))

    def unmet(self) -> list[str]:
        """The armed failpoints that the app has not reached yet."""
        found: list[str] = json.loads((self.lake / failpoints.FILE).read_text())
        return found

    def status(self) -> dict[str, Any]:
        return read_json(Lake(self.address).storage, Lake.status) or {}

    def unit(self) -> int:
        """The last ingest unit that any process committed, from its status."""
        return int((self.status().get("batch") or {}).get("sequence", 0))

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        return _env(self._app_env | {f"PROTOLAKE_{key}": value for key, value in settings.items()})


def kill(app: subprocess.Popen[bytes]) -> None:
    """kill -9 of the app with its JVM and workers."""
    try:
        os.killpg(app.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    app.wait()


def wait_for(app: subprocess.Popen[bytes], seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
    """Wait while the app runs, at most so many seconds; True if the condition became true."""
    deadline = time.monotonic() + seconds
    while app.poll() is None and time.monotonic() < deadline:
        if until():
            return True
        time.sleep(0.05)
    return False


def wait_until(condition: Callable[[], Any], what: str, timeout: float = HANGS_S) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {timeout:.0f} s")
        time.sleep(0.2)


def _env(more: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROTOLAKE_", "PRODUCER_"))}
    return kept | more | {"PYTHONPATH": str(ROOT)}
