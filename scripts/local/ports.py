"""Loopback ports: finds a free one, and checks that a given one is free."""

import socket

from scripts.local.errors import LocalError

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def require_free(port: int, what: str, option: str) -> None:
    """A LocalError that names port and option if `what` could not listen on `port`.

    Connecting finds a listener on all addresses, which on BSD systems does not prevent binding; binding finds all
    others.
    """
    if is_listening(port) or not _can_bind(port):
        raise LocalError(
            f"port {port} for {what} is in use: stop the program that listens on it, or choose another with {option}"
        )


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
