"""`python -m producer setup | run | faults`: parses the command line, runs one command and exits with its code."""

import sys
from collections.abc import Sequence

from producer.errors import ProducerError
from producer.faults import FAULTS
from producer.patience import StopRequestedError, StopSignal
from producer.plants import PLANTS
from producer.progress import print_line
from producer.publish import publish
from producer.settings import Run, Setup, read_command
from producer.setup import prepare


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns 0 if it is done or was stopped, otherwise the error's exit code after one line on
    stderr."""
    try:
        command = read_command(arguments)
        if isinstance(command, Setup):
            prepare(command, StopSignal().listen())
        elif isinstance(command, Run):
            publish(command, StopSignal().listen())
        else:
            print_faults()
    except StopRequestedError:
        print_line("stopped")
    except ProducerError as error:
        print_line(str(error))
        return error.exit_code
    return 0


def print_faults() -> None:
    """Print the table of faults: name, hop at which a reader must detect it (`rule` for what is planted), what is
    wrong."""
    for name, fault in FAULTS.items():
        print(f"{name:20} {fault.hop:8} {fault.meaning}")
    for name, plant in PLANTS.items():
        print(f"{name:20} {'rule':8} {plant.meaning}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
