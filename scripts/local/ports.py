"""Loopback ports: finds a free one, and checks that a given one is free."""

import secrets
import socket

from scripts.local.errors import LocalError

HOST = "127.0.0.1"

# Below the ports that Linux and macOS give to the client's end of a connection, and drawn at random: a server that
# starts seconds later still finds its port free, although connections are made and other stacks draw ports meanwhile.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        if _is_free(port):
            return port


def free_ports(count: int, *besides: int) -> list[int]:
    """Ports that differ from each other and from those in `besides`, on which nobody may listen yet."""
    found: list[int] = []
    while len(found) < count:
        port = free_port()
        if port not in (*found, *besides):
            found.append(port)
    return found


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def require_free(port: int, what: str, option: str) -> None:
    """A LocalError that names port and option if `what` could not listen on `port`."""
    if not _is_free(port):
        raise LocalError(
            f"port {port} for {what} is in use: stop the program that listens on it, or choose another with {option}"
        )


def _is_free(port: int) -> bool:
    # Connecting finds a listener on all addresses, which on BSD systems does not prevent binding; binding finds all
    # others.
    return not is_listening(port) and _can_bind(port)


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
