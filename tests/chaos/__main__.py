"""`python -m tests.chaos`: ./scripts/chaos, once .venv exists."""

from __future__ import annotations

import random
import signal
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from scripts.local.errors import LocalError
from tests.chaos import lanes
from tests.chaos.options import Options, command, listing, parse
from tests.chaos.scenarios import ENTRIES

if TYPE_CHECKING:
    from tests.chaos.lab import Lab

LOST = 65


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        options = parse(sys.argv[1:])
        if options.list:
            print(listing())
            return 0
        # Imported late: --help and --list must work before anything is installed.
        from tests.chaos.lab import open_lab

        if options.lanes > 1 and len(options.names) > 1:
            failed = lanes.play(options)
        else:
            with open_lab(options.keep, options.storage) as lab:
                failed = [name for name in options.names if not play(lab, name, options)]
                if options.keep:
                    print(f"kept in {lab.folder}")
    except LocalError as fault:
        print(f"chaos: {fault}", file=sys.stderr)
        return fault.code
    except KeyboardInterrupt:
        print("chaos: stopped", file=sys.stderr)
        return 0
    if failed:
        print(f"chaos: the promise was broken in {', '.join(failed)}", file=sys.stderr)
    return LOST if failed else 0


def play(lab: Lab, name: str, options: Options) -> bool:
    """Run one scenario with its own random seed; True if nothing was lost."""
    from scripts.local import results
    from tests.chaos import outcome

    entry = ENTRIES[name]
    module, function = entry.function.rsplit(".", 1)
    run = getattr(import_module(f"tests.chaos.scenarios.{module}"), function)
    size = entry.size(options.tier, options.times or 0, options.records or 0)
    again = command(options, name)
    print(f"{name}: {entry.about}, {size.times} times ({again})", file=sys.stderr, flush=True)
    began = time.monotonic()
    found = run(lab, size, random.Random(f"{options.seed} {name}"))
    line = outcome.record(name, entry.row, options.seed, again, found, time.monotonic() - began)
    results.append(outcome.FILE, line)
    if options.publish:
        outcome.publish(line)
    figures = ", ".join(f"{key} {value}" for key, value in found.figures.items())
    verdict = "clean" if not found.faults else f"FAULTS {dict(found.faults)}"
    print(f"{name}: {found.done} times in {line['seconds']} s: {verdict}; {figures}", flush=True)
    return not found.faults


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
