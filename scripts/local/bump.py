"""A second ./scripts/run beside a running stack: new PRODUCER_* variables for the running producer, nothing else."""

import os
import time
from dataclasses import replace

from scripts.local.environment import changes
from scripts.local.errors import USAGE, LocalError
from scripts.local.options import Options
from scripts.local.program import Program
from scripts.local.supervision import Supervisor

PATIENCE_SECONDS = 60.0


def bump(options: Options, holder: int) -> int:
    """Restarts the producer if a variable differs; `holder` is the process id of the stack's ./scripts/run."""
    where = f"a stack is running already (process {holder}, state {options.state})"
    if options.fresh or options.records:
        raise LocalError(f"{where}: stop it first, or give this one its own --state, --lake and ports", USAGE)
    supervisor = Supervisor(options.state)
    path = supervisor.run / "producer.json"
    if not _is_up(supervisor):
        raise LocalError(f"{where} but has no producer running to hand new variables to", USAGE)
    program = Program.read(path)
    new = changes(program.environment, os.environ)
    if not new:
        print(f"{where}: no PRODUCER_* variable differs, nothing changed")
        return 0
    replace(program, environment=program.environment | new).write(supervisor.run)
    supervisor.relaunch("producer")
    print(f"{where}: restarted its producer with {' '.join(f'{name}={value}' for name, value in sorted(new.items()))}")
    return 0


def _is_up(supervisor: Supervisor) -> bool:
    """Waits for a stack that is still coming up: until its producer was started once."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for process in supervisor.processes():
            if process.name == "producer" and (process.state == "RUNNING" or process.code is not None):
                return True
        if not supervisor.answers() or "producer" not in [one.name for one in supervisor.processes()]:
            return False
        time.sleep(0.2)
    return False
