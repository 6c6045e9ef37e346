"""A second ./scripts/run beside a running stack: passes new PRODUCER_* variables to the running producer."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from scripts.local.environment import changes, check_producer
from scripts.local.errors import USAGE, LocalError
from scripts.local.options import Options, parse
from scripts.local.patience import Patience, Signs
from scripts.local.program import Program
from scripts.local.supervision import Supervisor

REMEDY = "stop it first, or start this one beside it with its own --state FOLDER, --lake and ports (--page-port 0)"
FIXED = (
    "lake",
    "kafka_port",
    "registry_port",
    "object_store_port",
    "topic",
    "brokers",
    "registry",
    "settings",
    "producer",
    "page",
    "page_port",
)


def note(options: Options) -> None:
    """Store the options of this stack for a second ./scripts/run in <state>/run/options.json."""
    _noted(options.state).write_text(json.dumps(_fixed(options)))


def bump(options: Options, holder: int) -> int:
    """Restart the producer if a variable differs; `holder` is the process id of the stack's ./scripts/run."""
    where = f"a stack is running already (process {holder}, state {options.state})"
    if options.fresh or options.records:
        raise LocalError(f"{where}: {REMEDY}", USAGE)
    differing = _differing(options)
    if differing:
        raise LocalError(f"{where} with a different {' and '.join(differing)}: {REMEDY}", USAGE)
    supervisor = Supervisor(options.state)
    path = supervisor.run / "producer.json"
    if not _is_up(supervisor, holder):
        raise LocalError(f"{where}, but its producer does not run and cannot get new variables", USAGE)
    program = Program.read(path)
    new = changes(program.environment, os.environ)
    if not new:
        print(f"{where}: no PRODUCER_* variable differs, nothing changed")
        return 0
    try:
        check_producer(program.environment | new)
    except LocalError as fault:
        raise LocalError(f"{fault}; nothing changed, and the producer goes on as before", fault.code) from None
    replace(program, environment=program.environment | new).write(supervisor.run)
    supervisor.relaunch("producer")
    print(f"{where}: restarted its producer with {' '.join(f'{name}={value}' for name, value in sorted(new.items()))}")
    return 0


def _differing(options: Options) -> list[str]:
    """Options that were given and differ from those of the running stack."""
    path, defaults = _noted(options.state), _fixed(parse([]))
    running = json.loads(path.read_text()) if path.is_file() else {}
    given = {name: value for name, value in _fixed(options).items() if value != defaults[name]}
    return [f"--{name.replace('_', '-')}" for name, value in given.items() if running.get(name) != value]


def _fixed(options: Options) -> dict[str, str]:
    return {name: str(getattr(options, name)) for name in FIXED}


def _noted(state: Path) -> Path:
    return state / "run" / "options.json"


def _is_up(supervisor: Supervisor, holder: int) -> bool:
    """Wait for a stack that is still starting, until its producer was started once."""
    log = supervisor.logs / "setup.log"
    patience = Patience("the stack", log, lambda: Signs.of([holder], log))
    while True:
        patience.check()
        found = {process.name: process for process in supervisor.processes()}
        if "producer" not in found:
            return False
        if found["producer"].attendant:
            return True
        time.sleep(0.2)
