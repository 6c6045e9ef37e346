"""The users of the settings as roles of PostgreSQL, and what each may read there.

A role that it has made has a comment that names the lake: it touches no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import psycopg
from psycopg import sql

from spark_app.followers.sinks.postgres import Connection, run_statement
from spark_app.model.errors import ConfigurationError
from spark_app.settings.config import read_secret
from spark_app.settings.models import Settings

END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
ROLES = "SELECT rolname, coalesce(shobj_description(oid, 'pg_authid'), '') FROM pg_roles"


class Rights(Protocol):
    """What users may see. By itself it knows nothing of PostgreSQL."""

    def renew(self) -> None:
        """The lake may have changed."""

    def of(self, table: str, columns: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """User -> the columns of the table that the user sees; none = not even that there is such a table.

        Raises:
            ProtolakeError: the lake cannot be read.
        """


class Roles:
    """Those of one schema.

    Attributes:
        rights: what they are granted.
    """

    def __init__(self, settings: Settings, identity: str, rights: Rights | None):
        """
        Args:
            identity: of the lake.
            rights: None = users are not known here, and see nothing.
        """
        self.rights = rights
        known = settings.users if rights is not None else {}
        self._users = {name: user for name, user in known.items() if user.password_file}
        self._namespace = settings.serve.schema_name
        self._mark = f"protolake {identity}"
        self._ours: list[str] = []  # users whose roles are right

    def bring(self, connection: Connection) -> Iterator[str]:
        """Make the roles, with their passwords of now; yields what is in the way. Who is no user any more may neither
        log in nor read."""
        there: dict[str, str] = dict(connection.execute(ROLES).fetchall())
        self._ours = []
        for name, user in self._users.items():
            if there.get(name, self._mark) != self._mark:
                yield f"users.{name}: the server has a role {name} that is not the lake's: name the user otherwise"
                continue
            try:
                password = read_secret(user.password_file, f"users.{name}.password_file")
                yield from self._tried(connection, name, partial(self._make, connection, name, password, there))
            except ConfigurationError as error:
                yield str(error)
            if name in there or connection.execute(ROLES + " WHERE rolname = %s", [name]).fetchone():
                self._ours.append(name)  # also one whose password cannot be read now: what it may see changes
        for name in [name for name, mark in there.items() if mark == self._mark and name not in self._users]:
            yield from self._tried(connection, name, partial(self._end, connection, name))
            # Who may not end its sessions has at least ended its rights.
            yield from self._tried(connection, name, partial(connection.execute, END_SESSIONS, [name]))

    def _tried(self, connection: Connection, name: str, change: Callable[[], object]) -> Iterator[str]:
        try:
            with connection.transaction():
                change()
        except psycopg.Error as error:
            if connection.closed:
                raise
            yield f"users.{name}: {error.diag.message_primary}"

    def _end(self, connection: Connection, name: str) -> None:
        parts = {"role": sql.Identifier(name), "namespace": sql.Identifier(self._namespace)}
        run_statement(connection, "ALTER ROLE {role} NOLOGIN PASSWORD NULL", **parts)
        run_statement(connection, "REVOKE ALL ON ALL TABLES IN SCHEMA {namespace} FROM {role}", **parts)
        run_statement(connection, "REVOKE ALL ON SCHEMA {namespace} FROM {role}", **parts)

    def _make(self, connection: Connection, name: str, password: str, there: Mapping[str, str]) -> None:
        parts = {"role": sql.Identifier(name), "namespace": sql.Identifier(self._namespace)}
        if name not in there:
            run_statement(connection, "CREATE ROLE {role} LOGIN", **parts)
            run_statement(connection, "COMMENT ON ROLE {role} IS {mark}", **parts, mark=self._mark)
        # The server, and its log, get no password: only what it can be checked by.
        hashed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        run_statement(connection, "ALTER ROLE {role} LOGIN PASSWORD {hashed}", **parts, hashed=hashed)
        run_statement(connection, "ALTER ROLE {role} SET search_path = {namespace}", **parts)
        run_statement(connection, "GRANT USAGE ON SCHEMA {namespace} TO {role}", **parts)

    def seen(self, table: str, columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """User -> the columns that the user sees, of those whose roles are right.

        Raises:
            ProtolakeError: the lake cannot be read.
        """
        if self.rights is None or not self._ours:
            return {}
        found = self.rights.of(table, columns)
        return {name: tuple(found.get(name, ())) for name in self._ours}

    def grant(self, connection: Connection, table: sql.Identifier, seen: Mapping[str, Sequence[str]]) -> None:
        """Let each user read these columns of a table, and nothing else of it."""
        for name, columns in seen.items():
            parts = {"table": table, "role": sql.Identifier(name)}
            run_statement(connection, "REVOKE ALL ON {table} FROM {role}", **parts)
            if not columns:
                continue
            # By name for who may not see all: a column that comes later is not seen until that is decided.
            some = sql.SQL(", ").join(map(sql.Identifier, columns))
            what = sql.SQL("SELECT ({})").format(some) if self._users[name].hide else sql.SQL("SELECT")
            run_statement(connection, "GRANT {what} ON {table} TO {role}", **parts, what=what)
