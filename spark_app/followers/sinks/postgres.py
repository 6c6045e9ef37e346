"""Rows into tables of PostgreSQL, by psycopg: each call is a transaction, and its rows are copied.

protolake_calls    the keys of the calls of the last days: a call that is repeated changes nothing

Rows that are kept for some days are in one partition per day, `<table>_20261231`, by the day on which they landed.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spark_app.followers.sinks.copy_rows import copy_text, type_of
from spark_app.followers.sinks.sink import DELETE, OPERATION, UPSERT, Call, Outcome
from spark_app.model.errors import ConfigurationError
from spark_app.model.record_schemas import LANDED
from spark_app.settings.config import read_secret
from spark_app.settings.sinks import Postgres

CALLS, STAGE = "protolake_calls", "protolake_rows"
CLEAN_EVERY, MOST_CLEANED = 100, 1000  # calls; keys that are removed then, which is more than the calls have added
MOST_WAITED_MS = 2000
MOST_COPIED = 100_000  # rows of a statement
LONGEST_NAME = 63  # bytes; PostgreSQL would cut off the rest
DAY = "_%Y%m%d"  # at the end of the name of a partition
# The classes of errors that are about the rows: several for one, data, constraints, and limits of a value. All others
# are about the target, and the rows wait.
ABOUT_ROWS = {"21", "22", "23", "54"}
COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
# An index by which no two rows have these columns alike, also if one of them is NULL.
UNIQUE = """
SELECT i.indexrelid FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND indisunique AND indimmediate AND indisvalid
  AND indpred IS NULL AND indexprs IS NULL
GROUP BY i.indexrelid
HAVING array_agg(a.attname::text ORDER BY a.attname) = %s::text[]
  AND (bool_and(a.attnotnull) OR pg_get_indexdef(i.indexrelid) LIKE '%%NULLS NOT DISTINCT%%')
"""
PARTITIONS = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = to_regclass(%s)"
Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresSink:
    """The kind `postgres`."""

    can_replace = True
    replaces_nul = False
    tend_s = 60.0

    def __init__(self, name: str, settings: Postgres):
        """`name` is that of the sink."""
        self._name = name
        self._settings = settings
        self._ms = max(1, round(settings.timeout_s * 1000))
        self._calls = sql.Identifier(settings.namespace, CALLS)
        self._connection: Connection | None = None
        self._ready: set[tuple[str, pa.Schema, tuple[str, ...]]] = set()  # tables that were found right, or made so
        self._secrets: set[str] = set()
        self._written = 0  # calls
        self._by_day = set[str]()  # tables with partitions

    def open(self, options: Mapping[str, Any]) -> None:
        """Check the connection string."""
        self._parameters()

    def send(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        return [self._send(call) for call in calls]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, call: Call) -> Outcome:
        """
        Raises:
            ConfigurationError: PostgreSQL cannot have what the settings, or the names of the columns, ask for.
        """
        is_ready = False
        try:
            connection = self._connected()
            table = self._prepared(connection, call)
            is_ready = True  # what fails before is not about the rows: another sink may make the same table right now
            with self._transaction(connection):
                self._deliver(connection, table, call)
        except psycopg.Error as error:
            if is_ready and (error.sqlstate or "")[:2] in ABOUT_ROWS:
                return Outcome(call.key, "refused", answer=self._text(error))
            self.close()  # the next call connects, and looks at the tables, anew
            return Outcome(call.key, "unavailable", answer=self._text(error))
        except (ValueError, OverflowError) as error:
            return Outcome(call.key, "refused", answer=str(error))
        return Outcome(call.key, "accepted")

    def _text(self, error: psycopg.Error) -> str:
        """What the server says, without the row that it adds, or why there is no connection."""
        said = error.diag.message_primary or " ".join(str(error).split())
        where = (error.diag.context or "").partition(":")[0]  # such as: COPY rummy, line 3, column bet
        text = " ".join(filter(None, (error.sqlstate, said, where and f"({where})")))
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _parameters(self) -> dict[str, Any]:
        """Those of a connection; the file is read anew for each."""
        setting = f"sinks.{self._name}.postgres.dsn_file"
        try:
            given = conninfo_to_dict(read_secret(self._settings.dsn_file, setting))
        except psycopg.ProgrammingError:  # it repeats a part of the text
            form = "postgresql://user:password@host/database"
            raise ConfigurationError(f"{setting}: the file has no connection string such as {form}") from None
        self._secrets |= {str(given[key]) for key in ("password", "sslpassword") if given.get(key)}
        seconds = math.ceil(self._settings.timeout_s)
        # By the last three a server that has gone without a word is noticed, too.
        most = {"connect_timeout": seconds, "keepalives_idle": seconds, "keepalives_interval": seconds}
        most["tcp_user_timeout"] = self._ms
        return {"application_name": f"protolake {self._name}", **most, **given, "client_encoding": "UTF8"}

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._ready.clear()
            # Without what lasts longer than a transaction: a pooler may give the next one to another session.
            string = make_conninfo(**self._parameters())
            self._connection = psycopg.connect(string, autocommit=True, prepare_threshold=None)
        return self._connection

    @contextlib.contextmanager
    def _transaction(self, connection: Connection, changes_tables: bool = False) -> Iterator[Connection]:
        """
        Args:
            changes_tables: who reads a table is waited for, but not for long: those who come later wait behind.
        """
        with connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(self._ms)])
            if changes_tables:
                connection.execute("SELECT set_config('lock_timeout', %s, true)", [str(MOST_WAITED_MS)])
            yield connection

    def _prepared(self, connection: Connection, call: Call) -> sql.Identifier:
        """The table of the call, which has all columns of it."""
        name = self._name_of(call)
        for one in (f"{name}_20261231" if self._settings.keep_days else name, *call.rows.column_names):
            if not 0 < len(one.encode()) <= LONGEST_NAME:
                most = f"PostgreSQL takes names of 1 to {LONGEST_NAME} bytes, and not {one!r}"
                raise ConfigurationError(f"sinks.{self._name}: {call.table}: {most}")
        table = self._table(name)
        seen = (name, call.rows.schema, tuple(call.names))
        if seen not in self._ready:
            with self._transaction(connection, changes_tables=True):
                self._make_calls(connection)
                self._make(connection, name, call)
            self._ready.add(seen)
        return table

    def _name_of(self, call: Call) -> str:
        return self._settings.table.format(name=call.name, table=call.table)

    def _make_calls(self, connection: Connection) -> None:
        if not connection.execute(COLUMNS, [self._calls.as_string(connection)]).fetchall():
            columns = "sink text NOT NULL, key text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()"
            run_statement(connection, f"CREATE TABLE {{calls}} ({columns})", calls=self._calls)
            run_statement(connection, "CREATE INDEX ON {calls} (sink, at)", calls=self._calls)

    def _make(self, connection: Connection, name: str, call: Call) -> None:
        """Make the table, or add what it lacks. If it lacks nothing, the rights to read and write are enough."""
        table = self._table(name)
        path = table.as_string(connection)
        there = {name for (name,) in connection.execute(COLUMNS, [path])}
        missing = [field for field in call.rows.schema if field.name not in (*there, OPERATION)]
        columns = [sql.SQL("{} {}").format(_name(one.name), sql.SQL(type_of(one.type))) for one in missing]
        if not there:
            self._create(connection, name, columns)
        elif missing:
            added = [sql.SQL("ADD COLUMN {}").format(column) for column in columns]
            run_statement(connection, "ALTER TABLE {table} {added}", table=table, added=_list(added))
        if call.names:
            self._make_key(connection, name, call.names)

    def _create(self, connection: Connection, name: str, columns: Iterable[sql.Composable]) -> None:
        by_day = f' PARTITION BY RANGE ("{LANDED}")' if self._settings.keep_days else ""
        create = "CREATE TABLE {table} ({columns})" + by_day
        run_statement(connection, create, table=self._table(name), columns=_list(columns))

    def _exists(self, connection: Connection, table: sql.Identifier) -> bool:
        return connection.execute("SELECT to_regclass(%s)", [table.as_string(connection)]).fetchone() != (None,)

    def _make_key(self, connection: Connection, name: str, key: Sequence[str]) -> None:
        """Make an index by which no two rows have these columns alike, unless there is one."""
        table = self._table(name)
        if connection.execute(UNIQUE, [table.as_string(connection), sorted(key)]).fetchall():
            return
        if connection.info.server_version < 15_00_00:
            needed = f"{', '.join(key)} may be NULL: this needs PostgreSQL 15, or a primary key of them"
            raise ConfigurationError(f"sinks.{self._name}: {name}: {needed}")
        unique = "CREATE UNIQUE INDEX ON {table} ({keys}) NULLS NOT DISTINCT"
        run_statement(connection, unique, table=table, keys=_list(map(_name, key)))

    def _table(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._settings.namespace, name)

    def _recent(self, connection: Connection, name: str, rows: pa.Table) -> pa.Table:
        """The rows whose days are kept, for which there are partitions now."""
        days = pc.cast(rows[LANDED], pa.date32())
        is_kept = pc.greater_equal(days, self._first_day)
        self._by_day.add(name)
        for day in pc.unique(days.filter(is_kept)).to_pylist():
            partition = self._table(name + day.strftime(DAY))
            if self._exists(connection, partition):
                continue
            # To attach a table locks no reader out, to create it as a partition does.
            parts = {"table": self._table(name), "partition": partition}
            run_statement(connection, "CREATE TABLE {partition} (LIKE {table} INCLUDING ALL)", **parts)
            bounds = {"first": f"{day}Z", "end": f"{day + datetime.timedelta(1)}Z"}
            attach = "ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({first}) TO ({end})"
            run_statement(connection, attach, **parts, **bounds)
        return rows.filter(is_kept)

    @property
    def _first_day(self) -> datetime.date:
        """The first one that is kept."""
        return datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(self._settings.keep_days)

    def tend(self) -> str:
        """Drop the partitions of days that are kept no longer; returns what is in the way, "" = nothing."""
        try:
            for table in self._by_day:
                path = self._table(table).as_string(self._connected())
                for (name,) in self._connected().execute(PARTITIONS, [path]).fetchall():
                    if name < table + self._first_day.strftime(DAY) and len(name) == len(table) + 9:
                        with self._transaction(self._connected(), changes_tables=True) as connection:
                            run_statement(connection, "DROP TABLE {partition}", partition=self._table(name))
        except psycopg.Error as error:
            self.close()
            return self._text(error)
        except ConfigurationError as error:
            return str(error)
        return ""

    def _deliver(self, connection: Connection, table: sql.Identifier, call: Call) -> None:
        claim = "INSERT INTO {calls} (sink, key) VALUES ({sink}, {key}) ON CONFLICT (key) DO NOTHING"
        if not run_statement(connection, claim, calls=self._calls, sink=self._name, key=call.key):
            return
        rows = call.rows
        if self._settings.keep_days:
            rows = self._recent(connection, self._name_of(call), rows)
        if call.replaces:
            # Readers see the old rows until the end, and wait for nothing. TRUNCATE, or a new table that gets the name,
            # would lock them out, and show an empty table to older snapshots, or lose grants and views.
            run_statement(connection, "DELETE FROM {table}", table=table)
            if OPERATION in rows.column_names:
                rows = rows.filter(pc.equal(rows[OPERATION], UPSERT)).drop_columns(OPERATION)
        if OPERATION in rows.column_names:
            _merge(connection, table, rows, call.names, self.replaces_nul)
        else:
            _copy(connection, table, rows, self.replaces_nul)
        self._written += 1
        if self._written % CLEAN_EVERY == 0:
            old = "SELECT key FROM {calls} WHERE sink = {sink} AND at < now() - interval '7 days' LIMIT {most}"
            clean = f"DELETE FROM {{calls}} WHERE key = ANY (ARRAY({old}))"
            run_statement(connection, clean, calls=self._calls, sink=self._name, most=MOST_CLEANED)


def _merge(
    connection: Connection, table: sql.Identifier, rows: pa.Table, keys: Sequence[str], replaces_nul: bool
) -> None:
    """Insert, change and delete rows by their keys, through a table that lasts until the end of the transaction."""
    names = [name for name in rows.column_names if name != OPERATION]
    parts = {"table": table, "stage": _name(STAGE), "op": _name(OPERATION), "names": _list(map(_name, names))}
    made = "CREATE TEMP TABLE {stage} ON COMMIT DROP AS SELECT {names}, NULL::text AS {op} FROM {table} WITH NO DATA"
    run_statement(connection, made, **parts)
    _copy(connection, _name(STAGE), rows, replaces_nul)
    put = "INSERT INTO {table} ({names}) SELECT {names} FROM {stage} WHERE {op} = {upsert} ON CONFLICT ({keys}) DO "
    put += "UPDATE SET {changes}" if set(names) - set(keys) else "NOTHING"
    changes = [sql.SQL("{0} = excluded.{0}").format(_name(name)) for name in names if name not in keys]
    run_statement(connection, put, **parts, upsert=UPSERT, keys=_list(map(_name, keys)), changes=_list(changes))
    gone = rows.filter(pc.equal(rows[OPERATION], DELETE))
    # `IS NOT DISTINCT FROM` uses no index; a statement for each set of columns that are NULL does.
    for nulls in set(zip(*(gone[key].is_null().to_pylist() for key in keys), strict=True)):
        tests = [" AND t.{0} IS NULL AND s.{0} IS NULL" if is_null else " AND t.{0} = s.{0}" for is_null in nulls]
        same = sql.Composed([sql.SQL(test).format(_name(key)) for test, key in zip(tests, keys, strict=True)])
        drop = "DELETE FROM {table} t USING {stage} s WHERE s.{op} = {delete}{same}"
        run_statement(connection, drop, **parts, delete=DELETE, same=same)


def _copy(connection: Connection, table: sql.Identifier, rows: pa.Table, replaces_nul: bool) -> None:
    copied = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _list(map(_name, rows.column_names)))
    for first in range(0, len(rows), MOST_COPIED):
        text = copy_text(rows.slice(first, MOST_COPIED), replaces_nul)
        with connection.cursor() as cursor, cursor.copy(copied) as copy:
            copy.write(text)


def run_statement(connection: Connection, statement: str, **parts: Any) -> int:
    """Run a statement with parts that are quoted; returns the number of rows that it has changed."""
    return connection.execute(sql.SQL(statement).format(**parts)).rowcount


def _name(name: str) -> sql.Identifier:
    return sql.Identifier(name)


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
