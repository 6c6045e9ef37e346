"""Runs protoc with limits, as a child process: `protoc.py CPU_SECONDS MEMORY_BYTES FILE_BYTES ARGUMENT...`.

The child sets its limits itself, because code between fork and exec may deadlock in a process with threads.
"""

from __future__ import annotations

import resource
import sys

REFUSED = 65  # protoc reported an error in the schema
OUT_OF_MEMORY = 66  # Python ran out of memory; protoc and the C library exit with other codes
BROKEN = 1  # Python's own exit code if it fails before protoc starts


def limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, hard))


def main(arguments: list[str]) -> int:
    from grpc_tools import protoc  # imported before any limit is set: a failure here is not caused by the schema

    seconds, memory, size = map(int, arguments[:3])
    limit(resource.RLIMIT_CPU, seconds)  # at the soft limit the kernel sends SIGXCPU, which has no other source
    limit(resource.RLIMIT_FSIZE, size)
    limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # macOS cannot start a process under an address space limit
        limit(resource.RLIMIT_AS, memory)
    try:
        return REFUSED if protoc.main(["protoc", *arguments[3:]]) else 0
    except MemoryError:
        return OUT_OF_MEMORY


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
