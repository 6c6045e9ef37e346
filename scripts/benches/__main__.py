"""`python -m scripts.benches`: ./scripts/bench, once .venv exists."""

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

from scripts.benches.options import ENTRIES, Options, listing, parse
from scripts.local.errors import LocalError


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        options = parse(sys.argv[1:])
        if options.name is None:
            print(listing())
            return 0
        _measure(ENTRIES[options.name].module, options)
    except LocalError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return fault.code
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
    return 0


def _measure(module: str, options: Options) -> None:
    """Measure, print and store."""
    # Imported late: --help and --list must work before anything is installed.
    from scripts.benches import page, result
    from scripts.local import results

    outcome = import_module(module).run(options)
    line = result.record(options, outcome)
    results.append(result.FILE, line)
    for figure in outcome.figures:
        print(figure.line())
    print(f"load {line['load']}")
    if options.publish:
        page.publish(line)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # PySpark's exit handlers report an error when the JVM has ended
