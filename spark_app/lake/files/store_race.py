"""Lets clients of an object store write one object at the same time: only one of them may succeed.

The start of the app looks whether a store knows conditional writes; some stores know them, and fail to keep them when
requests come at the same moment.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from spark_app.lake.files.objects import ObjectStorage
from spark_app.model.address import StorageAddress
from spark_app.model.errors import LeaseLost

CLIENTS = 8
ROUNDS = 5


def race(address: StorageAddress, key: str) -> list[str]:
    """Race `CLIENTS` clients to create an object, and then to replace it, `ROUNDS` times.

    Args:
        key: beginning of the names of the objects, which are removed again.

    Returns:
        The races that had more than one winner, or none, or whose winner's content is not there, one line each.

    Raises:
        PermissionError, StoreError
    """
    key = f"{key}-{secrets.token_hex(8)}"
    clients = [ObjectStorage(address) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        return [fault for number in range(ROUNDS) for fault in _race_once(pool, clients, f"{key}-{number}")]


def _race_once(pool: ThreadPoolExecutor, clients: list[ObjectStorage], key: str) -> list[str]:
    try:
        created = _fault(pool, clients, key, "create", lambda client, data: client.put_if_absent(key, data))
        list(pool.map(lambda client: client.get(key), clients))
        replaced = _fault(pool, clients, key, "replace", lambda client, data: client.swap(key, data))
    finally:
        clients[0].delete(key)
    return created + replaced


def _fault(
    pool: ThreadPoolExecutor,
    clients: list[ObjectStorage],
    key: str,
    what: str,
    write: Callable[[ObjectStorage, bytes], None],
) -> list[str]:
    together = Barrier(CLIENTS)

    def attempt(number: int) -> bool:
        together.wait()
        try:
            write(clients[number], _content(what, number))
        except (FileExistsError, LeaseLost):
            return False
        return True

    winners = [number for number, won in enumerate(pool.map(attempt, range(CLIENTS))) if won]
    if len(winners) != 1:
        return [f"{len(winners)} of {CLIENTS} clients were told that they alone did {what} {key}"]
    if clients[0].get(key) != _content(what, winners[0]):
        return [f"the client that was told that it did {what} {key} did not"]
    return []


def _content(what: str, number: int) -> bytes:
    return f"{what} {number}".encode()
