"""A real PostgreSQL on the loopback: the programs of the machine, with data and log in a folder of the test. Without
them the test is skipped."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql

from scripts.local.errors import LocalError
from scripts.local.ports import HOST
from scripts.local.postgres import Postgres, program
from spark_app.followers.sinks.postgres import PostgresSink
from spark_app.settings.sinks import Postgres as Section

PASSWORD = "p4ss w0rd'of=tests"


class PostgresServer(Postgres):
    """Its clients log in with `PASSWORD`."""

    option = "another run"
    user = "postgres"
    given = ("--encoding=UTF8", "--locale=C", "--no-sync")

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Self]:
        """In a folder that its user can reach, which those of pytest are not for other users."""
        try:
            program("postgres")
        except LocalError as error:
            pytest.skip(str(error))
        with tempfile.TemporaryDirectory(prefix="protolake-postgres-") as folder:
            os.chmod(folder, 0o755)
            with cls(Path(folder)) as server:
                yield server

    @property
    def _password(self) -> str:
        return PASSWORD

    def _options(self) -> dict[str, str]:
        return {"fsync": "off"}

    def connect(self, user: str = "postgres", password: str = PASSWORD) -> psycopg.Connection[tuple[Any, ...]]:
        where: dict[str, Any] = {"host": HOST, "port": self.port, "dbname": "postgres", "connect_timeout": 10}
        return psycopg.connect(**where, user=user, password=password, autocommit=True)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for the tests of a module."""
    with PostgresServer.running() as running:
        yield running


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
        return PostgresSink(name, Section(**self.section(**values)))

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
