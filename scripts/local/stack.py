"""Starts, observes and stops the stack of one ./scripts/run.

Order of `up`: 1. create everything that must be on disk, and check the ports; 2. start the
servers and the Spark app together (its JVM takes longest, and the app waits for the broker by itself), but the app only
when the object store is ready, if its lake is there; 3. create topic and subject; 4. start the page and the producer.
`down` is the reverse, and the attendants keep this order when this
process dies.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts.local import environment, java, status
from scripts.local.artifacts import ROOT
from scripts.local.claim import Claim
from scripts.local.downloads import ensure
from scripts.local.errors import LocalError
from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.options import Options
from scripts.local.patience import KILLS, Patience, Signs, last_error
from scripts.local.postgres import Postgres
from scripts.local.program import HEALTHY_AFTER_S, Exit, Process, Program, quick_exits, read_exits
from scripts.local.registry import Registry
from scripts.local.reports import Reports
from scripts.local.server import Server, last_line
from scripts.local.spark_cluster import ClusterServer, SparkMaster, SparkWorker
from scripts.local.supervision import Supervisor
from scripts.local.table import View
from scripts.local.training import ARCHIVE, Training
from spark_app.lake.files.object_clients import read_credentials
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode, ProtolakeError, UnreachableError
from spark_app.page.files import PageFiles, make_folders
from spark_app.settings import config

SPARK_STOP_S = 22.0
STOP_EXPLAINED_S = 2.0
ENDED = ("held", "stopped")  # states that the app writes as its last
HELD = {int(code) for code in ExitCode if code.held}
MEND = "a restart cannot help: mend that, then stop the stack with Ctrl-C and start it again"
PAGE_PORT = "start the stack with another --page-port (0 = a free one), or with --no-page"


class Stack:
    """All programs that one ./scripts/run starts."""

    def __init__(self, options: Options, claim: Claim) -> None:
        self.options, self._claim = options, claim
        self.started, self.first_silver = time.time(), None
        self.supervisor = Supervisor(options.state)
        self._lake, self._before = Lake(options.address), status.Status()
        self._reports = Reports(self._lake)
        self._stores: list[Server] = []
        self._servers: list[Server] = []  # that the app waits for by itself
        self._cluster: list[ClusterServer] = []
        self._on_cluster: dict[str, str] = {}  # settings of the app
        self._patience: dict[str, Patience] = {}  # with programs that are starting
        self._training: Training | None = None
        self._is_going = False  # the app has begun to ingest

    first_silver: float | None

    @property
    def expected(self) -> int:
        """The number of bronze rows once the records of --records are ingested."""
        return self._before.bronze + (self.options.records or 0)

    def up(self) -> None:
        """Start everything; a LocalError names the part that failed."""
        brokers, registry = self._addresses()
        producer = environment.for_producer(self.options, os.environ, brokers, registry) if brokers else {}
        if self.options.producer:
            environment.check_producer(producer)
        if self.options.settings:
            _check_settings(self.options)
        if not self.options.starts_store:
            self._look_at_lake()
        found, jars = java.find(), ensure("spark")
        self._prepare(found)
        app = environment.for_app(self.options, found, jars, brokers, registry)
        training = Training(app, self.supervisor.logs / "training.log")
        if not training.is_ready:
            self._training = training
            app.pop(ARCHIVE, None)  # a JVM that does not find it would write it when it ends
        servers = "".join(f"{server.name}, " for server in reversed(self._all_servers()))
        _print(f"starting {servers}and Spark; the first rows appear after 10 to 30 s ...")
        programs, shared = self._programs(app, producer), environment.shared(os.environ)
        self.started = time.time()  # downloads are over: the programs' own time to start counts from here
        self.supervisor.start(programs, shared, self._claim.file.fileno(), later=self._later())
        if self._stores:
            self._await(self._stores)
            self._look_at_lake()
            self.supervisor.launch("spark")
        self._await([*self._servers, *self._cluster])
        if self.options.page:
            self._start_page()
        if self.options.producer:
            self._set_up(producer)
            self.supervisor.launch("producer")
            _print("producer started")

    def tend(self) -> None:
        """Start again what was killed, and train the class archive once rows are there. Call it twice a second."""
        self.supervisor.revive()
        if self._training is None or not self._is_going or self._training.step():
            return
        if self._training.is_ready:  # for the app's next start
            spark = Program.read(self.supervisor.run / "spark.json")
            archive = {ARCHIVE: str(self._training.archive)}
            replace(spark, environment=spark.environment | archive).write(self.supervisor.run)
        self._training = None

    def down(self) -> None:
        """Stop everything in order; does nothing if nothing was started."""
        self._reports.end()
        if self._training is not None:
            self._training.end()
        self.supervisor.stop(_Stopping(self).look if self.supervisor.processes() else lambda: None)

    def look(self) -> View:
        """The current state of the stack."""
        now, report, processes = time.time(), self.report(), self.supervisor.processes()
        page = PageFiles(self._lake).address()
        if self.first_silver is None and report.silver > self._before.silver:
            self.first_silver = now - self.started
        self._is_going = report.state == "running" and (self.first_silver is not None or report.lag == 0)
        return View(
            status=report,
            processes=processes,
            exits=self._exits("spark"),
            troubles=[*self._troubles(processes, report), *self._slow_starts(processes, report, page)],
            up=now - self.started,
            first_silver=self.first_silver,
            page=page,
            served=next((one.served for one in self._servers if isinstance(one, Postgres)), None),
            lake=self.options.lake,
            logs=self.supervisor.logs,
            had_silver=self._before.silver > 0,
        )

    def report(self) -> status.Status:
        """The app's status; of an earlier run, or of a process that was killed, only the row counts are used."""
        found = self._reports.latest()
        killed_at = 0.0 if found.state in ENDED else self.ended_at("spark")
        return found if found.updated_at >= max(self.started, killed_at) else status.stale(found)

    def code_of(self, name: str) -> int | None:
        """The exit code of a program that is down without a restart; otherwise None."""
        for process in self.supervisor.processes():
            if process.name == name and process.is_down:
                return process.code if process.code is not None else 70
        return None

    def ended_at(self, name: str) -> float:
        """Time (Unix) of the program's last exit."""
        return max((one.at for one in self._exits(name)), default=0.0)

    def _look_at_lake(self) -> None:
        """Check that the lake can be written, and read what an earlier run has left in it."""
        if self._lake.storage.is_local:
            _require_folder(Path(self.options.lake), self._umask)
        else:
            _require_bucket(self._lake)
        self._before = self._reports.read()

    def _prepare(self, found: java.Java) -> None:
        """Create what the servers need on disk."""
        state = self.options.state
        if self.options.starts_store:
            self._stores = [ObjectStore(state, self.options.object_store_port, self.options.address.bucket)]
        if self.options.is_embedded:
            self._servers = [
                Registry(state, self.options.registry_port, found),
                Kafka(state, self.options.kafka_port, found),
            ]
        if self.options.serve:
            self._servers.append(Postgres(state, self.options.postgres_port))
        if self.options.cluster:
            master = SparkMaster(state, java=found)
            master.forget()
            self._on_cluster = master.settings()
            self._cluster = [master, *(SparkWorker(master, n + 1, found) for n in range(self.options.cluster))]
        for server in self._all_servers():
            server.check_port()
        for server in self._servers:
            if not isinstance(server, Postgres):  # which is installed, and not fetched
                ensure(server.name)
        for server in self._all_servers():
            server.prepare()

    def _all_servers(self) -> list[Server]:
        """In the order of their start, so the store ends after everything that writes to it."""
        return [*self._stores, *self._servers, *self._cluster]

    def _later(self) -> list[str]:
        """Programs that are not started at once."""
        return ["producer", "page", *(["spark"] if self._stores else [])]

    def _addresses(self) -> tuple[str | None, str]:
        """The addresses of the brokers, None for a source of files, and of the registry."""
        if self.options.registry:
            return self.options.brokers, self.options.registry
        port = self.options.registry_port
        return f"127.0.0.1:{self.options.kafka_port}", Registry(self.options.state, port).url

    def _programs(self, app: dict[str, str], producer: dict[str, str]) -> list[Program]:
        settings = ["--settings", str(self.options.settings)] if self.options.settings else []
        spark = Program(
            "spark", [sys.executable, "-m", "spark_app", "run", *settings], app | self._on_cluster, grace=SPARK_STOP_S
        )
        page = Program("page", [sys.executable, "-m", "spark_app", "page", *settings], self._for_page(app), grace=2.0)
        sender = Program("producer", [sys.executable, "-m", "producer", "run"], producer, grace=2.0)
        servers = [server.program() for server in self._all_servers()]
        deliver = Program("deliver", [sys.executable, "-m", "spark_app", "deliver", *settings], app, grace=15.0)
        beside = [deliver] if self.options.serve or config.load(self.options.settings).all_sinks else []
        beside += [page] if self.options.page else []
        return [*servers, spark, *beside, *([sender] if self.options.producer else [])]

    def _for_page(self, app: dict[str, str]) -> dict[str, str]:
        port = self.options.page_port
        return app if port is None else app | {"PROTOLAKE_PAGE__PORT": str(port)}

    def _start_page(self) -> None:
        """Start the page, with or without the app: what it needs of the lake is made here. It says itself what is wrong
        with it, which does not concern the rest of the stack."""
        before = os.umask(self._umask)
        try:
            make_folders(self._lake)
        except (OSError, ConfigurationError, UnreachableError):
            pass
        finally:
            os.umask(before)
        self.supervisor.launch("page")

    @property
    def _umask(self) -> int:
        return int(config.load(self.options.settings).lake.umask, 8)

    def _await(self, servers: Sequence[Server]) -> None:
        attendant = self.supervisor.attendant
        waiting = {one: one.patience(partial(attendant, one.name)) for one in servers}
        while waiting:
            for server in [one for one in waiting if one.is_ready()]:
                del waiting[server]
                _print(f"{server.name} ready after {time.time() - self.started:.1f} s on 127.0.0.1:{server.port}")
            for server, patience in waiting.items():
                patience.check(self._exits(server.name))
            self.supervisor.revive()
            time.sleep(0.1)

    def _set_up(self, producer: dict[str, str]) -> None:
        """Create topic and subject with the producer's `setup` command."""
        log = self.supervisor.logs / "setup.log"
        code = self._run_setup(producer, log)
        for _ in range(KILLS):
            code = self._run_setup(producer, log) if code == -signal.SIGKILL else code
        if code:
            why = f"topic and subject could not be set up: {last_line(log)} (log: {log})"
            raise LocalError(why, code if code > 0 else 70)
        _print("topic and subject set up")

    def _run_setup(self, producer: dict[str, str], log: Path) -> int:
        """The exit code. Meanwhile its servers make the progress."""
        command = [sys.executable, "-m", "producer", "setup"]
        surroundings = os.environ | environment.shared(os.environ) | producer
        with (
            log.open("wb") as file,
            subprocess.Popen(command, env=surroundings, stdout=file, stderr=file) as process,
        ):
            working = [self.supervisor.attendant(one.name) for one in self._servers]
            patience = Patience("producer setup", log, lambda: Signs.of([process.pid, *working], log))
            try:
                while process.poll() is None:
                    patience.check()
                    self.supervisor.revive()
                    time.sleep(0.1)
            finally:
                process.kill()
        return process.returncode

    def _troubles(self, processes: list[Process], report: status.Status) -> list[str]:
        """One line for each program that is down or keeps failing; the app's line comes from its status."""
        lines, servers = {}, [server.name for server in self._all_servers()]
        for process in processes:
            trouble = self._trouble(process)
            if trouble:
                remedy = f"; {MEND}" if process.is_down and process.code in HELD else ""
                log = self._log(process.name)  # a server's last line may be any
                found = last_error(log) if process.name in servers else last_line(log)
                reason = (report.reason if process.name == "spark" else None) or found
                if process.name == "page" and "page.port" in reason:
                    reason, remedy = reason.partition(";")[0], f"; {PAGE_PORT}"
                lines[process.name] = f"{process.name} {trouble}: {reason}{remedy}"
        if report.reason:
            lines.setdefault("spark", f"app {report.state}: {report.reason}")
        return list(lines.values())

    def _trouble(self, process: Process) -> str | None:
        exits = self._exits(process.name)
        quick = quick_exits(exits) if exits and exits[-1].at > time.time() - HEALTHY_AFTER_S else 0
        if process.is_down and process.code != 0:
            return f"is down (exit code {process.code})"
        return f"failed {quick} times and is restarted" if quick > 1 else None

    def _slow_starts(self, processes: list[Process], report: status.Status, page: str | None) -> Iterator[str]:
        """One line for app and page if it runs, but does not get on with its start."""
        starting = {"spark": not report.updated_at, "page": page is None}
        for one in processes:
            if one.state != "running" or not starting.get(one.name):
                self._patience.pop(one.name, None)
                continue
            if one.name not in self._patience:
                log = self._log(one.name)
                signs = partial(_signs, self.supervisor, one.name, log)
                self._patience[one.name] = Patience(one.name, log, signs)
            try:
                self._patience[one.name].check()
            except LocalError as problem:
                yield str(problem)

    def _exits(self, name: str) -> list[Exit]:
        return read_exits(self.supervisor.run / f"{name}.json", since=self.started)

    def _log(self, name: str) -> Path:
        return self.supervisor.logs / f"{name}.log"


def _signs(supervisor: Supervisor, name: str, log: Path) -> Signs:
    return Signs.of([supervisor.attendant(name)], log)


class _Stopping:
    """Prints which programs have not ended yet and, once, why the app may take long."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._began, self._explained = stack, time.time(), False
        self._left = [one.name for one in reversed(stack.supervisor.processes()) if one.state == "running"]
        _print(f"stopping {', '.join(self._left)} ...")

    def look(self) -> None:
        for name in [one for one in self._left if self._stack.ended_at(one) >= self._began]:
            self._left.remove(name)
            _print(
                f"{name} ended after {self._seconds():.0f} s"
                + (f", {', '.join(self._left)} still running" if self._left else "")
            )
        if "spark" in self._left and self._seconds() > STOP_EXPLAINED_S and not self._explained:
            self._explained = True
            _print(f"the Spark app finishes its batch and gold: {SPARK_STOP_S:.0f} s at most")

    def _seconds(self) -> float:
        return time.time() - self._began


def _check_settings(options: Options) -> None:
    """Let the app look at its settings now: it would end because of them only after everything else has started."""
    command = [sys.executable, "-m", "spark_app", "settings", str(options.settings), "--lake", options.lake]
    surroundings = os.environ | environment.shared(os.environ)
    done = subprocess.run(command, env=surroundings, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == ExitCode.CONFIGURATION:
        raise LocalError("; ".join((done.stdout or done.stderr).splitlines()), done.returncode)


def _require_folder(lake: Path, umask: int) -> None:
    """Check the lake's folder now: the app would reject it only a minute later. A new one has the mode of the rest."""
    try:
        lake.mkdir(0o777 & ~umask, parents=True, exist_ok=True)
        (probe := lake / f".probe-{os.getpid()}").touch()
        probe.unlink()
    except OSError as error:
        if error.errno != errno.ENOSPC:  # the app waits for free disk space
            raise LocalError(f"cannot write {lake} ({error.strerror}): name another folder with --lake") from None


def _require_bucket(lake: Lake) -> None:
    """Check the bucket and the keys now, as for a folder."""
    try:
        if keys := lake.address.credentials_file:
            read_credentials(keys)  # says what is wrong in the file
        lake.storage.probe(lake.trial(str(os.getpid())))
    except ProtolakeError as error:
        raise LocalError(str(error), error.exit_code) from None
    except OSError as error:
        raise LocalError(str(lake.not_writable(error))) from None


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
