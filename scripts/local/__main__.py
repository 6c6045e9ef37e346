"""`python -m scripts.local`: ./scripts/run, once .venv exists."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from scripts.local import lakes
from scripts.local.errors import LocalError
from scripts.local.options import Options, parse


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return run(parse(sys.argv[1:]))
    except LocalError as fault:
        print(f"run: {fault}", file=sys.stderr)
        return fault.code
    except KeyboardInterrupt:
        print("run: stopped", file=sys.stderr)
        return 0


def run(options: Options) -> int:
    """Run one stack, or pass new variables to a stack that already runs."""
    # Imported late: --help must work before anything is installed.
    from scripts.local.acceptance import accept_loss
    from scripts.local.bump import bump, note
    from scripts.local.claim import Claim
    from scripts.local.environment import without_proxy
    from scripts.local.fresh import move_aside
    from scripts.local.stack import Stack
    from scripts.local.supervision import Supervisor
    from scripts.local.watch import watch

    if options.accept_loss:
        return accept_loss(options)
    claim = Claim(options.state)
    if not claim.acquire():
        return bump(options, claim.holder() or 0)
    Supervisor(options.state).end_orphans()
    if options.fresh:
        move_aside(Path(options.lake), options.state, options.yes)
    note(options)
    if options.starts_store:
        lakes.note(options.address, options.state)
        os.environ |= lakes.variables(options.address) | without_proxy(os.environ)  # this process reads the lake, too
    stack = Stack(options, claim)
    try:
        stack.up()
        return watch(stack)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a further signal must not interrupt the stop
        stack.down()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a download thread in its last file would delay the exit
