"""The folder of a lake to which `protolake page` writes; it only reads the rest of the lake."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import sys
import time
from typing import Any

from spark_app.lake.files.disk import is_full
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UnreachableError

TOKEN = re.compile(r"[\w-]{40,100}", re.ASCII)
TOKEN_BYTES = 32
ACQUIRE_S = 1.0  # `address` of other processes locks it for a moment


class PageFiles:
    """One process at a time has them, which `acquire` sees to."""

    def __init__(self, lake: Lake):
        self.lake = lake
        self._storage = lake.local_state
        self._token = f"{lake.page}/token"
        self._lock = f"{lake.page}/lock"
        self._alerts = f"{lake.page}/alerts.json"
        self._address = f"{lake.page}/address"
        self._folder = lake.page
        self._lock_file = -1  # file descriptor

    @property
    def token_file(self) -> str:
        return self._storage.uri(self._token)

    def acquire(self) -> None:
        """Become the only page of the lake, until this process ends.

        Raises:
            ConfigurationError: this user may not write to the folder.
            UnreachableError: another process is the page of this lake.
        """
        try:
            self._storage.create_folders(self._folder)
            file = os.open(self._storage.uri(self._lock), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"lake.path: cannot write to {self._storage.uri(self._folder)} ({error.strerror}); the page keeps its "
                "token there, and may read the rest of the lake only"
            ) from None
        until = time.monotonic() + ACQUIRE_S
        while not _lock(file):
            if time.monotonic() > until:
                os.close(file)
                where = self._storage.root
                raise UnreachableError(f"another `protolake page` serves the lake {where}: stop it first")
            time.sleep(ACQUIRE_S / 10)
        self._lock_file = file

    def check(self) -> None:
        """
        Raises:
            UnreachableError: the lake that `acquire` found was moved away, and perhaps replaced.
        """
        try:
            if os.path.samestat(os.fstat(self._lock_file), os.stat(self._storage.uri(self._lock))):
                return
        except FileNotFoundError:
            pass
        raise UnreachableError(f"the lake {self._storage.root} was moved away or replaced: start the page again")

    def token(self) -> str:
        """The token of the page; the first call makes it.

        Raises:
            ConfigurationError: its file is open to other users, or damaged.
        """
        if not self._storage.exists(self._token):
            text = secrets.token_urlsafe(TOKEN_BYTES)
            with contextlib.suppress(FileExistsError):
                self._storage.put_if_absent(self._token, f"{text}\n".encode(), durable=True, private=True)
        if self._storage.is_open_to_others(self._token):
            raise ConfigurationError(f"{self.token_file} is open to other users; run chmod 600 {self.token_file}")
        return self._read_token()

    def _read_token(self) -> str:
        found = self._storage.get(self._token).decode(errors="replace").strip()
        if not TOKEN.fullmatch(found):
            raise ConfigurationError(f"{self.token_file} has no token: remove it, and the page makes a new one")
        return found

    def write_address(self, address: str) -> None:
        """Store where the page is reached, without the token."""
        self._storage.replace(self._address, f"{address}\n".encode(), durable=False)

    def address(self) -> str | None:
        """Where the page of the lake is reached, for people who read the standard output; None if no page runs. A
        terminal gets the token if this user may read it; a file or a pipe, which others may read, gets its path."""
        if not self._is_locked():
            return None
        try:
            address = self._storage.get(self._address).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None
        with contextlib.suppress(OSError, ConfigurationError):
            token = self._read_token()
            return f"{address}/?token={token}" if sys.stdout.isatty() else f"{address}/ (token: {self.token_file})"
        return f"{address}/"

    def _is_locked(self) -> bool:
        """Whether a process is the page of the lake. For a moment this keeps another one from becoming it."""
        try:
            probe = os.open(self._storage.uri(self._lock), os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(probe)
        return False

    def read_alerts(self) -> dict[str, Any]:
        """The states of the alerts; empty if there are none yet.

        Raises:
            ContractError: the file is damaged.
        """
        return read_durable(self._storage, self._alerts) or {}

    def write_alerts(self, states: dict[str, Any], durable: bool) -> None:
        """Replace the states of the alerts in one step.

        Raises:
            OSError: the disk is full, or the folder is read-only.
        """
        self._storage.replace(self._alerts, json.dumps(states).encode(), durable)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def make_folders(lake: Lake) -> None:
    """Make what the page writes to, as far as it is not there: for a page that may only read the rest of the lake, or
    that comes before the app, which makes the lake.

    Raises:
        ConfigurationError: this user may not write to the lake, or the file of the token cannot be used.
        OSError: the disk is full.
    """
    from spark_app.followers.events import spool
    from spark_app.page.alerts.book import WRITER  # it imports this file

    try:
        lake.local_state.create_folders(lake.page)
        lake.storage.create_folders(lake.requests, lake.sinks, spool.folder(lake, WRITER))
        PageFiles(lake).token()
    except OSError as error:
        if is_full(error):
            raise
        raise lake.not_writable(error) from None
