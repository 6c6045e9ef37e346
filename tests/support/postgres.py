"""A real PostgreSQL on the loopback: the programs of the machine, with data and log in a folder of the test. Without
them the test is skipped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql

from scripts.local.ports import HOST
from scripts.local.server import Server
from spark_app.followers.sinks.postgres import PostgresSink
from spark_app.settings.sinks import Postgres

PASSWORD = "p4ss w0rd'of=tests"
NOBODY = "nobody"  # the programs refuse to run as root


def program(name: str) -> str:
    """The path of a program of PostgreSQL, in the newest version there is. Debian has them beside the PATH."""
    found = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)]
    path = next(filter(None, found), None)
    if path is None:
        pytest.skip(f"no {name} here: apt-get install postgresql")
    return path


class PostgresServer(Server):
    """Its clients log in with `PASSWORD`."""

    name = "postgres"
    option = "another run"

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Self]:
        """In a folder that its user can reach, which those of pytest are not for other users."""
        program("postgres")
        with tempfile.TemporaryDirectory(prefix="protolake-postgres-") as folder:
            os.chmod(folder, 0o755)
            with cls(Path(folder)) as server:
                yield server

    def prepare(self) -> None:
        if self.folder.exists():
            return
        self.folder.mkdir(mode=0o700)
        secret = self.folder.with_name("password")
        secret.write_text(PASSWORD)
        if _is_root():
            for path in (self.folder, secret):
                shutil.chown(path, NOBODY)
        options = ["--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command = [*_as_nobody(), program("initdb"), f"--pgdata={self.folder}", f"--pwfile={secret}", *options]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        secret.unlink()

    def command(self) -> list[str]:
        given = {"listen_addresses": HOST, "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        options = [f"--{name}={value}" for name, value in given.items()]
        return [*_as_nobody(), program("postgres"), "-D", str(self.folder), *options]

    def is_ready(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Without waiting for its clients."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def connect(self, user: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        where: dict[str, Any] = {"host": HOST, "port": self.port, "dbname": "postgres", "connect_timeout": 10}
        return psycopg.connect(**where, user=user, password=PASSWORD, autocommit=True)


class Database:
    """A schema of a test's own, and a sink that writes there."""

    def __init__(self, server: PostgresServer, schema: str, folder: Path):
        self.server = server
        self.schema = schema
        self.dsn = folder / "dsn"
        self.run("DROP SCHEMA IF EXISTS {schema} CASCADE")
        self.run("CREATE SCHEMA {schema}")
        self.log_in()

    def log_in(self, user: str = "postgres", password: str = PASSWORD, port: int = 0) -> None:
        """Write the file with the connection string."""
        string = psycopg.conninfo.make_conninfo(
            host=HOST, port=port or self.server.port, dbname="postgres", user=user, password=password
        )
        self.dsn.write_text(string + "\n")

    def section(self, **values: Any) -> dict[str, Any]:
        """The settings of the sink."""
        return {"dsn_file": str(self.dsn), "schema": self.schema, **values}

    def sink(self, name: str = "crm", **values: Any) -> PostgresSink:
        return PostgresSink(name, Postgres(**self.section(**values)))

    def run(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement, in which {schema} may be."""
        with self.server.connect() as connection:
            done = connection.execute(sql.SQL(statement).format(schema=sql.Identifier(self.schema)), parameters)
            return done.fetchall() if done.description is not None else []

    def rows(self, table: str, columns: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        return self.run(f'SELECT {columns} FROM {{schema}}."{table}" ORDER BY {order}')

    def types(self, table: str) -> dict[str, str]:
        """Column -> its type."""
        found = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        where = f"attrelid = '{self.schema}.{table}'::regclass AND attnum > 0 AND NOT attisdropped"
        return dict(self.run(f"{found} WHERE {where} ORDER BY attnum"))


def _is_root() -> bool:
    return os.getuid() == 0


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups"] if _is_root() else []
