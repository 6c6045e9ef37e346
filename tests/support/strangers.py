"""Clients that connect to a port and send nothing."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# Another process, which may have more open files than this one. Each connection is accepted before the next one.
HOLD = """
import resource, socket, sys, time
port, number = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (number + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(number)]
print(len(held), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holding(port: int, number: int) -> Iterator[int]:
    """The number of connections that are made, and kept until the block ends."""
    command = [sys.executable, "-c", HOLD, str(port), str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        yield int(process.stdout.readline() or 0)
        process.stdin.close()
