"""A real PostgreSQL, loopback only, that serves the lake: programs of this machine, with the data in <state>/postgres.

`with Postgres(state, port) as server: server.dsn_file`. That file has the connection string with a random password, and
only its owner may read it.
"""

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from scripts.local.errors import LocalError
from scripts.local.ports import HOST
from scripts.local.server import Server

USER, DATABASE = "protolake", "postgres"
NOT_ROOT = "postgres", "nobody"  # the programs refuse to run as root: the first of these users that there is


class Postgres(Server):
    """The server; it is ready when it lets its own user in."""

    name = "postgres"
    option = "--postgres-port"
    user = USER
    given = ("--encoding=UTF8", "--locale=C.UTF-8")  # of initdb

    @property
    def dsn_file(self) -> Path:
        """Has the connection string of a user who may do everything."""
        return self.state / "postgres.dsn"

    @property
    def served(self) -> str:
        """Where people find it, for them."""
        return f"postgresql://{self.user}@{HOST}:{self.port}/{DATABASE}, with its password in {self.dsn_file}"

    def prepare(self) -> None:
        if not self.folder.exists():
            self._initialize()
        values: dict[str, Any] = {
            "host": HOST,
            "port": self.port,
            "dbname": DATABASE,
            "user": self.user,
            "password": self._password,
        }
        with open(os.open(self.dsn_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(make_conninfo("", **values) + "\n")

    def command(self) -> list[str]:
        given = {"listen_addresses": HOST, "port": self.port, "unix_socket_directories": "", **self._options()}
        options = [f"--{name}={value}" for name, value in given.items()]
        return [*_as_another(), program("postgres"), "-D", str(self.folder), *options]

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.dsn_file.read_text(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Without waiting for its clients."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def _options(self) -> dict[str, str]:
        return {}

    @property
    def _password(self) -> str:
        """That of the file, or a new one."""
        file = self.state / "postgres.password"
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as new:
                new.write(secrets.token_hex(24))
        return file.read_text()

    def _initialize(self) -> None:
        made = self.folder.with_name("postgres.new")  # what is whole gets its name last
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True, mode=0o700)
        secret = self.folder.with_name("postgres.initial")
        secret.touch(mode=0o600)
        secret.write_text(self._password)
        if _as_another():
            for path in (made, secret):
                shutil.chown(path, *_user())
            if subprocess.run([*_as_another(), "test", "-x", str(made)], check=False).returncode:
                why = f"PostgreSQL does not run as root, and user {_user()[0]} cannot reach {self.folder}"
                raise LocalError(f"{why}: run this as another user, or give a --state that all users can enter")
        command = [*_as_another(), program("initdb"), f"--pgdata={made}", f"--pwfile={secret}"]
        command += ["--auth=scram-sha-256", f"--username={self.user}", *self.given]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")
        secret.unlink()
        if done.returncode:
            raise LocalError(f"PostgreSQL cannot make its data folder {self.folder}: {done.stderr.strip()}")
        made.rename(self.folder)


def program(name: str) -> str:
    """The path of a program of PostgreSQL, in the newest version there is. Debian has them beside the PATH.

    Raises:
        LocalError: there is none.
    """
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    found = [shutil.which(name), *map(str, reversed(installed))]
    path = next(filter(None, found), None)
    if path is None:
        remedy = "install it (Debian: apt-get install postgresql), or name a server of your own with serve.dsn_file"
        raise LocalError(f"there is no {name} of PostgreSQL here: {remedy}")
    return path


def _user() -> tuple[str, str]:
    """(user, group) of the server, where root starts it."""
    import grp
    import pwd

    known = {one.pw_name: one for one in pwd.getpwall()}
    user = next(known[name] for name in NOT_ROOT if name in known)
    return user.pw_name, grp.getgrgid(user.pw_gid).gr_name


def _as_another() -> list[str]:
    if os.getuid():
        return []
    user, group = _user()
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
