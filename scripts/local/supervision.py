"""supervisord over the stack's programs: its configuration, its start, its answers, its end.

Comes in: programs and a state folder. Goes out: processes that are relaunched by exit code, with rotated logs in
<state>/logs, and a control socket that only this user can open.
"""

import contextlib
import hashlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xmlrpc.client import Fault as Refusal
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from scripts.local.artifacts import ROOT
from scripts.local.errors import LocalError
from scripts.local.program import STAYS_DOWN, Program, attended
from scripts.local.server import last_line

LONGEST_SOCKET_PATH = 100  # bytes; the system's limit is 104 on macOS
STOP_SECONDS = 32.0  # the sum of what the programs may take one after another


@dataclass(frozen=True)
class Supervised:
    """One program under supervisord. A higher `priority` starts later and stops earlier."""

    program: Program
    priority: int
    autostart: bool
    relaunch: Literal["always", "by exit code"]


@dataclass(frozen=True)
class Process:
    """What supervisord says of one program; `code` is of its last exit, None before that."""

    name: str
    state: str
    pid: int
    code: int | None

    @property
    def is_down(self) -> bool:
        """Ended, and supervisord will not start it again."""
        return self.state in ("EXITED", "FATAL") and (self.state == "FATAL" or self.code in STAYS_DOWN)


class Supervisor:
    """supervisord of one state folder."""

    def __init__(self, state: Path) -> None:
        self.state, self.run, self.logs = state, state / "run", state / "logs"
        self.socket = socket_path(state)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, programs: list[Supervised], environment: dict[str, str], keep_open: int) -> None:
        """Starts supervisord, which ends with this process; it inherits the file descriptor `keep_open`."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in programs:
            one.program.write(self.run)
        (self.run / "supervisord.conf").write_text(render(programs, self.state, self.socket))
        command = [sys.executable, "-m", "supervisor.supervisord", "-c", "run/supervisord.conf"]
        path = Program("supervisord", command, {}, str(self.state), STOP_SECONDS, relaunches=False).write(self.run)
        self._process = subprocess.Popen(
            attended(path),
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process alone, which stops the others in order
            pass_fds=(keep_open,),
        )
        self._await_answer()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def processes(self) -> list[Process]:
        """The programs, in the order they start; empty while supervisord does not answer."""
        try:
            answer: Any = self._rpc().supervisor.getAllProcessInfo()
        except (OSError, Refusal):
            return []
        return [_process(one) for one in answer]

    def launch(self, name: str) -> None:
        self._rpc().supervisor.startProcess(_address(name), False)

    def relaunch(self, name: str) -> None:
        """Stops the program, waits for its end, starts it again."""
        try:
            self._rpc().supervisor.stopProcess(_address(name), True)
        except Refusal:  # it is down already
            pass
        self.launch(name)

    def stop(self, watch: Callable[[], None] = lambda: None) -> None:
        """Stops the programs in order, then supervisord; returns when all are gone. Meanwhile `watch` is called twice a
        second: supervisord answers no questions while it stops."""
        if self._process:
            self._process.terminate()
            while self._process.poll() is None:
                watch()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.5)
            watch()
            self._process = None
        self.socket.unlink(missing_ok=True)

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def _rpc(self) -> Any:
        return ServerProxy("http://127.0.0.1", SupervisorTransport(None, None, f"unix://{self.socket}"))

    def _await_answer(self) -> None:
        deadline = time.monotonic() + 20
        while not self.answers():
            if not self.is_alive() or time.monotonic() > deadline:
                raise LocalError(f"supervisord did not start: {last_line(self.logs / 'supervisord.log')}", 70)
            time.sleep(0.05)


def socket_path(state: Path) -> Path:
    """<state>/run/supervisor.sock, or a private temporary folder where that path is too long for a socket."""
    path = state / "run" / "supervisor.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    name = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"protolake-{os.getuid()}-{name}" / "supervisor.sock"


def render(programs: list[Supervised], state: Path, socket: Path) -> str:
    """supervisord.conf. A program's own file holds what it runs and its environment: neither is repeated here.

    supervisord runs in the state folder and gets its paths relative to it: it expands `%` in paths, once or twice.
    """
    if socket.is_relative_to(state):
        socket = socket.relative_to(state)
    sections: dict[str, dict[str, object]] = {
        "unix_http_server": {"file": socket, "chmod": "0700"},
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface",
        },
        "supervisord": {
            "nodaemon": "true",
            "silent": "true",
            "logfile": "logs/supervisord.log",
            "logfile_maxbytes": "5MB",
            "logfile_backups": 1,
            "pidfile": "run/supervisord.pid",
            "childlogdir": "logs",
            **({"user": "root"} if os.geteuid() == 0 else {}),
        },
    }
    for one in programs:
        sections[f"program:{one.program.name}"] = _section(one)
    return "\n".join(_render_section(name, settings) for name, settings in sections.items())


def _section(one: Supervised) -> dict[str, object]:
    return {
        "command": shlex.join(attended(Path("run", f"{one.program.name}.json"))),
        "priority": one.priority,
        "autostart": str(one.autostart).lower(),
        "autorestart": "true" if one.relaunch == "always" else "unexpected",
        "exitcodes": ",".join(map(str, STAYS_DOWN)),
        # With 0 every exit is judged by its code, however early; the attendant does the waiting.
        "startsecs": 0,
        "stopsignal": "TERM",
        "stopwaitsecs": round(one.program.grace + 2),
        "redirect_stderr": "true",
        "stdout_logfile": f"logs/{one.program.name}.log",
        "stdout_logfile_maxbytes": "10MB",
        "stdout_logfile_backups": 3,
    }


def _render_section(name: str, settings: dict[str, object]) -> str:
    lines = (f"{key}={str(value).replace('%', '%%')}\n" for key, value in settings.items())
    return f"[{name}]\n{''.join(lines)}"


def _address(name: str) -> str:
    return f"{name}:{name}"


def _process(answer: dict[str, Any]) -> Process:
    has_ended = answer["stop"] > 0 and answer["statename"] not in ("STARTING", "RUNNING")
    return Process(answer["name"], answer["statename"], answer["pid"], answer["exitstatus"] if has_ended else None)
