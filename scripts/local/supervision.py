"""Starts, observes and stops the stack's programs, each with an attendant.

Input: programs in the order of their start, and a state folder. Output: processes that are restarted by exit code, with
rotated logs in <state>/logs.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from scripts.local.artifacts import ROOT
from scripts.local.program import Process, Program, attended

LOOK_S = 0.5


class Supervisor:
    """The programs of one state folder."""

    def __init__(self, state: Path) -> None:
        self.state, self.run, self.logs = state, state / "run", state / "logs"
        self._attendants: dict[str, subprocess.Popen[bytes]] = {}
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
        self._attendants[name] = subprocess.Popen(
            attended(self.run / f"{name}.json"),
            cwd=ROOT,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must only reach this process, which stops the others in order
            pass_fds=(self._keep_open,),
        )

    def dead(self) -> list[str]:
        """Programs whose attendant has ended; an attendant never ends by itself."""
        return [name for name, attendant in self._attendants.items() if attendant.poll() is not None]

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
