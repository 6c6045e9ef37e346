"""protoc under limits of its own: `protoc.py CPU_SECONDS MEMORY_BYTES FILE_BYTES ARGUMENT...`, run as a child process.

The child sets its limits itself: code between fork and exec may deadlock in a process that has threads.
"""

from __future__ import annotations

import resource
import sys

REFUSED = 65  # protoc's own no
OUT_OF_MEMORY = 66  # said by Python; protoc and the C library have other ways to end then
BROKEN = 1  # what Python ends with when it cannot even begin


def limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, hard))


def main(arguments: list[str]) -> int:
    from grpc_tools import protoc  # before any limit: a failure is this machine's, not the schema's

    seconds, memory, size = map(int, arguments[:3])
    limit(resource.RLIMIT_CPU, seconds)  # the soft limit ends it with SIGXCPU, which nothing else sends
    limit(resource.RLIMIT_FSIZE, size)
    limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # macOS refuses to start anything under an address space limit
        limit(resource.RLIMIT_AS, memory)
    try:
        return REFUSED if protoc.main(["protoc", *arguments[3:]]) else 0
    except MemoryError:
        return OUT_OF_MEMORY


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
