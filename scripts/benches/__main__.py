"""`python -m scripts.benches`, which is ./scripts/bench once .venv is there."""

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

from scripts.benches.options import ENTRIES, listing, parse
from scripts.local.errors import LocalError


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        options = parse(sys.argv[1:])
        if options.name is None:
            print(listing())
            return 0
        # Late: --help and --list must work before anything is installed.
        import_module(ENTRIES[options.name].module).run(options)
    except LocalError as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return fault.code
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # PySpark's exit handlers complain of a JVM that has gone
