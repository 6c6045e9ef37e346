"""Starts, observes and stops the stack's programs, each with an attendant.

Input: programs in the order of their start, and a state folder. Output: processes that are restarted by exit code, with
rotated logs in <state>/logs.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from scripts.local.artifacts import ROOT
from scripts.local.program import MARK, Exit, Process, Program, attended, backoff_seconds, note_exit

LOOK_S = 0.5
ENDS_S = 10.0  # a killed process ends within this time, unless its disk hangs


class Supervisor:
    """The programs of one state folder."""

    def __init__(self, state: Path) -> None:
        self.state, self.run, self.logs = state, state / "run", state / "logs"
        self._attendants: dict[str, subprocess.Popen[bytes]] = {}
        self._launched: dict[str, float] = {}  # Unix time
        self._deaths: dict[str, list[Exit]] = {}
        self._due: dict[str, float] = {}  # of attendants that have died -> the time of the next start (monotonic)
        self._environment: dict[str, str] = {}
        self._keep_open = 0

    def start(
        self, programs: Sequence[Program], environment: dict[str, str], keep_open: int, later: Sequence[str] = ()
    ) -> None:
        """Start the programs in their order, except those that `launch` starts `later`. The attendants end with this
        process, and inherit the file descriptor `keep_open`."""
        self._environment, self._keep_open = environment, keep_open
        for old in self.run.glob("*.state"):
            old.unlink()
        for number, one in enumerate(programs):
            outlived = [other.name for other in programs[number + 1 :]]
            replace(one, log=str(self.logs / f"{one.name}.log"), outlives=outlived).write(self.run)
        (self.run / "order").write_text("\n".join(one.name for one in programs))
        for one in programs:
            if one.name not in later:
                self.launch(one.name)

    def launch(self, name: str) -> None:
        self._launched[name] = time.time()
        self._due.pop(name, None)
        self._attendants[name] = subprocess.Popen(
            attended(self.run / f"{name}.json"),
            cwd=ROOT,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must only reach this process, which stops the others in order
            pass_fds=(self._keep_open,),
        )

    def attendant(self, name: str) -> int:
        """The process id of the program's attendant; it may have ended."""
        return self._attendants[name].pid

    def dead(self) -> list[str]:
        """Programs whose attendant has ended; an attendant never ends by itself."""
        return [name for name, attendant in self._attendants.items() if attendant.poll() is not None]

    def revive(self) -> None:
        """Start the attendants that were killed again, and their programs with them; after a wait if that happens soon
        after a start. Call it twice a second."""
        for name in self.dead():
            if name not in self._due:
                self.end_orphans()
                deaths = self._deaths.setdefault(name, [])
                deaths.append(note_exit(self.run / f"{name}.json", -signal.SIGKILL, self._launched[name], asked=False))
                self._due[name] = time.monotonic() + backoff_seconds(deaths)
            if time.monotonic() >= self._due[name]:
                self.launch(name)

    def end_orphans(self) -> None:
        """Kill what is left of programs whose attendant is gone."""
        found, dead = [], self.dead()
        living = {name for name in self._attendants if name not in dead}  # one that has just begun has no report yet
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has ended, or belongs to another user
                path = Path(process.environ().get(MARK, ""))
                if path.parent != self.run.resolve() or path.stem in living:
                    continue
                if not Process.read(self.run, path.stem).attendant:
                    process.kill()
                    found.append(process)
        psutil.wait_procs(found, timeout=ENDS_S)

    def processes(self) -> list[Process]:
        """The programs in the order of their start; empty if no stack runs. Any process may call it."""
        try:
            names = (self.run / "order").read_text().split()
        except FileNotFoundError:
            return []
        found = [Process.read(self.run, name) for name in names]
        return found if any(one.attendant for one in found) else []

    def relaunch(self, name: str) -> None:
        """Restart the program with the current content of its file. Any process may call it."""
        os.kill(Process.read(self.run, name).attendant, signal.SIGUSR1)

    def stop(self, watch: Callable[[], None] = lambda: None) -> None:
        """End the programs in reverse order; returns when all have ended. Meanwhile `watch` is called twice a
        second."""
        for attendant in reversed(self._attendants.values()):
            attendant.terminate()
            while True:
                try:
                    attendant.wait(LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    watch()
            watch()
        self._attendants.clear()
        self.end_orphans()
