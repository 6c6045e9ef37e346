"""The PostgreSQL that serves the lake: tables with the rows, columns, comments and keys of the lake's.

    protolake_lake      the lake that is served, and which server this is: one that is new, or empty, gets all rows anew
    protolake_tables    the tables that are the lake's: it changes and drops no other one

Calls change the rows, as those of every sink of PostgreSQL do. `tend` does the rest: it compares what the lake has with
what the server has.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from spark_app.followers.sinks import state
from spark_app.followers.sinks.changes import every_table, sent_tables
from spark_app.followers.sinks.copy_rows import type_of
from spark_app.followers.sinks.postgres import UNIQUE, Connection, PostgresSink, run_statement
from spark_app.followers.sinks.roles import Rights, Roles
from spark_app.followers.sinks.sink import OPERATION, Call, Outcome
from spark_app.lake import sql_tables
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.delta.table_schema import columns_of, top_comments
from spark_app.lake.files.state_files import read_json, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, LeaseLost, ProtolakeError
from spark_app.model.gold_functions import STATE
from spark_app.model.record_schemas import LANDED, LINEAGE_COORDINATES
from spark_app.settings.models import Settings
from spark_app.settings.serving import SERVE

LAKE, TABLES = "protolake_lake", "protolake_tables"
IN_A_BUCKET_S = 30.0  # each look costs money
LONG = {
    "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
    "time": "time without time zone",
}
OF_TABLES = {"22", "23", "2B", "42", "54"}  # classes of errors that are about one table
TIMES = {LONG["timestamptz"], LONG["timestamp"], "date"}
THERE = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), col_description(a.attrelid, a.attnum)
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
COMMENT = "SELECT obj_description(to_regclass(%s), 'pg_class')"
UNIQUE_OF_OTHERS = """
SELECT i.indexrelid::regclass::text FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique
GROUP BY i.indexrelid HAVING array_agg(a.attname::text ORDER BY a.attname) <> %s::text[]
"""


@dataclass(frozen=True)
class Shape:
    """What a table of the server is to be.

    Attributes:
        columns: name -> its type in PostgreSQL, as that prints it, and its comment.
        key: the columns that no two rows have alike; empty = not known.
        indexed: further columns by which people search.
        origin: a hash of what decides, besides the columns, who may see them.
        seen: user -> the columns that the user sees.
    """

    columns: dict[str, tuple[str, str]]
    comment: str
    key: tuple[str, ...]
    indexed: tuple[str, ...]
    origin: str
    seen: dict[str, tuple[str, ...]]


class ServeSink(PostgresSink):
    """The sinks of [serve]."""

    owns_tables = True
    replaces_nul = True  # a table is replaced in one call, which one such value would refuse

    def __init__(self, name: str, settings: Settings, lake: Lake, rights: Rights | None = None):
        """`name` is that of the sink."""
        target = settings.all_sinks[name].postgres
        assert target is not None
        super().__init__(name, target)
        self.tend_s = 1.0 if lake.storage.is_local else IN_A_BUCKET_S
        self._lake = lake
        self._all = settings
        self._tables = Tables(lake, settings.lake, settings.layout)
        self._identity = lake.known_identity()
        self._known = f"{lake.sink(name)}/served.json"
        self._lake_table = sql.Identifier(target.namespace, LAKE)
        self._own = sql.Identifier(target.namespace, TABLES)
        self._shaped: dict[str, Shape] = {}
        self._known_shapes: dict[str, tuple[tuple[int, str], Shape]] = {}
        self._aside = set[str]()  # tables that cannot be made right now: all is sent anew when they can be
        self._server = ""
        self._of_roles: list[str] = []  # what is in the way of roles
        self._roles = Roles(settings, self._identity, rights)
        self._origins: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {}  # table -> origin, and who sees what

    def tend(self) -> str:
        """Make the tables of the server those of the lake; returns what is in the way, "" = nothing."""
        try:
            troubles = [*self._tend(self._connected()), super().tend()]
        except psycopg.Error as error:
            self.close()
            return self._text(error)
        except LeaseLost:
            raise
        except (ProtolakeError, OSError) as error:
            return str(error)
        return "; ".join(filter(None, [*self._of_roles, *troubles]))

    def _tend(self, connection: Connection) -> Iterator[str]:
        definitions = self._definitions()
        shapes = {table: self._shape_of(table, definitions) for table in self._chosen()}
        for table, shape in shapes.items():
            if shape is not None and self._shaped.get(table) != shape:
                yield from self._tried(connection, table, shape)
        yield from self._drop(connection, shapes)
        self._by_day.update(shapes if self._settings.keep_days else ())

    def _tried(self, connection: Connection, table: str, shape: Shape) -> Iterator[str]:
        try:
            with self._transaction(connection, changes_tables=True):
                is_lost = self._take(connection, table)
                if not is_lost:  # what nobody may see any more does not wait for the rest
                    self._grant(connection, table, shape)
            with self._transaction(connection, changes_tables=True):
                is_lost |= self._bring(connection, table, shape, is_current=True)
                if is_lost or table in self._aside:  # before the end of the transaction, so that no crash comes between
                    state.request_all(self._lake, self._name)
        except psycopg.Error as error:
            if connection.closed:
                raise
            yield f"{table}: {self._text(error)}"
        except ConfigurationError as error:
            yield str(error)
        else:
            if table in self._aside:
                self._aside.discard(table)
                self._remember()
            self._look_anew(table)  # it may have lost columns
            self._shaped[table] = shape

    def _look_anew(self, table: str) -> None:
        """The next call makes sure of the table again."""
        self._ready = {one for one in self._ready if one[0] != table}

    def _chosen(self) -> Iterable[str]:
        if self._name == SERVE:
            return [table for table, _ in every_table(self._lake, self._all.layout)]
        return [table for table in self._lake.storage.list("") if self._all.layout.is_silver(table)]

    def _shape_of(self, table: str, definitions: str | None = None) -> Shape | None:
        """None if the table is gone meanwhile. `definitions` are those of now, if they are known."""
        handle = self._tables.look_again(table)
        if handle is None:
            return None
        layout, definitions = self._all.layout, self._definitions() if definitions is None else definitions
        known = self._known_shapes.get(table)
        if known is not None and known[0] == (handle.version(), definitions):
            return known[1]
        comments, columns = top_comments(handle), columns_of(handle)
        key: tuple[str, ...] = ()
        if layout.is_silver(table):
            own = [field for field in columns if not field.name.startswith("_")]
            columns = pa.schema([*own, *(columns.field(name) for name in (*LINEAGE_COORDINATES, LANDED))])
            indexed = {name.casefold() for name in (self._all.event.key, self._all.event.time)} | {LANDED}
        else:
            columns = pa.schema([field for field in columns if not field.name.startswith(STATE)])
            kind = layout.gold_kind(table)
            own_table = None if kind else sql_tables.read(self._lake, table)
            key = self._all.gold_key(kind) if kind else tuple(own_table.key) if own_table else ()
            indexed = {one.name.casefold() for one in columns if printed(one.type) in TIMES}
        names = {one.name.casefold(): one.name for one in columns}
        origin, seen = self._seen(table, columns, definitions)
        shape = Shape(
            {one.name: (printed(one.type), comments.get(one.name, "")) for one in columns},
            comments.get("", ""),
            tuple(names[name.casefold()] for name in key if name.casefold() in names),
            tuple(name for one, name in names.items() if one in indexed and name not in key[:1]),
            origin,
            seen,
        )
        if layout.is_silver(table) or layout.is_gold(table):  # a statement changes without its table
            self._known_shapes[table] = (handle.version(), definitions), shape
        return shape

    def _seen(self, table: str, schema: pa.Schema, definitions: str) -> tuple[str, dict[str, tuple[str, ...]]]:
        """(a hash of what decides besides the columns, user -> the columns that the user sees)"""
        rights = self._roles.rights
        if rights is None or not self._all.users:
            return "", {}
        texts, names = [str(schema), definitions, *self._statements(table)], schema.names
        origin = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
        known = self._origins.get(table)
        if known is None or known[0] != origin:
            rights.renew()
            known = self._origins[table] = origin, self._roles.seen(table, names)
        return known

    def _definitions(self) -> str:
        """What rows may be made of, besides their columns and statements: definitions, and the schemas there are. It is
        for users."""
        if not self._all.users:
            return ""
        storage, found = self._lake.storage, hashlib.sha256()
        for key in (self._lake.definitions, self._lake.ledger):
            found.update(storage.get(key) if storage.exists(key) else b"")
        return found.hexdigest()

    def _statements(self, table: str) -> Iterator[str]:
        """Of a table by SQL, and of those that it reads."""
        one = sql_tables.read(self._lake, table)
        if one is not None:
            yield json.dumps([one.query, one.views, sorted(one.sources), one.is_changing])
            for source in one.sources:
                yield from self._statements(source)

    def _connected(self) -> Connection:
        """As its parent's, after a look whether the server is the one that it was."""
        is_new = self._connection is None or self._connection.closed
        connection = super()._connected()
        if is_new:
            self._shaped.clear()
            self._origins.clear()
            self._known_shapes.clear()
            try:
                with self._transaction(connection):
                    server = self._server = self._claim(connection)
                    self._of_roles = list(self._roles.bring(connection))
            except Exception:
                self.close()
                raise
            known = read_json(self._lake.storage, self._known) or {}
            self._aside = set(known.get("aside", ()))
            if known.get("server") != server:
                if known:  # it has lost its tables, or is another one
                    state.request_all(self._lake, self._name)
                self._remember()
            if self._all.users:  # no row comes before all may see no more than they may now
                list(self._tend(connection))
        return connection

    def _remember(self) -> None:
        known = {"server": self._server, "aside": sorted(self._aside)}
        write_durably(self._lake.storage, self._known, json.dumps(known), "sink.state")

    def _send(self, call: Call) -> Outcome:
        """A table that cannot be made keeps back no other one: its rows are not written, and are asked for again when
        it can be."""
        if call.table not in self._aside:
            outcome = super()._send(call)
            if call.table not in self._aside:
                return outcome
        return Outcome(call.key, "accepted")

    def _prepared(self, connection: Connection, call: Call) -> sql.Identifier:
        if self._all.users and self._shaped.get(call.table) != self._shape_of(call.table):
            self._look_anew(call.table)  # others may see it now
        try:
            return super()._prepared(connection, call)
        except (psycopg.Error, ConfigurationError) as error:
            is_own = isinstance(error, ConfigurationError) or (error.sqlstate or "")[:2] in OF_TABLES
            if is_own and not connection.closed:
                self._aside.add(call.table)
                self._shaped.pop(call.table, None)  # it is tried again
                self._remember()
            raise

    def _claim(self, connection: Connection) -> str:
        """Which server it is.

        Raises:
            ConfigurationError: another lake is served there.
        """
        namespace = self._settings.namespace
        parts = {"lake": self._lake_table, "tables": self._own}
        one = "is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only)"
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"protolake {namespace}"])  # one makes it
        run_statement(connection, f"CREATE TABLE IF NOT EXISTS {{lake}} ({one}, lake text, server text)", **parts)
        run_statement(connection, "CREATE TABLE IF NOT EXISTS {tables} (name text PRIMARY KEY, sink text)", **parts)
        mine = {"identity": self._identity, "server": uuid.uuid4().hex}
        begin = "INSERT INTO {lake} (lake, server) VALUES ({identity}, {server}) ON CONFLICT DO NOTHING"
        run_statement(connection, begin, **parts, **mine)
        found = connection.execute(sql.SQL("SELECT lake, server FROM {lake}").format(**parts)).fetchone()
        assert found is not None
        if found[0] != self._identity:
            why = f"the schema {namespace} has the tables of another lake: name another one"
            raise ConfigurationError(
                f"serve.schema_name: {why}, or drop {namespace}.{LAKE} and {namespace}.{TABLES} there"
            )
        return str(found[1])

    def _make(self, connection: Connection, name: str, call: Call) -> None:
        is_lost = self._take(connection, name)
        path = self._table(name).as_string(connection)
        others = connection.execute(UNIQUE_OF_OTHERS, [path, sorted(call.names)]).fetchall()
        for (index,) in others:
            run_statement(connection, "DROP INDEX {index}", index=sql.SQL(index))  # quoted by the server
        has_key = bool(connection.execute(UNIQUE, [path, sorted(call.names)]).fetchall())
        if call.replaces and call.names and not has_key and self._exists(connection, self._table(name)):
            run_statement(connection, "DELETE FROM {table}", table=self._table(name))  # its rows have another key
        super()._make(connection, name, call)
        shape = self._shape_of(name)
        if shape is not None:
            is_lost |= self._bring(connection, name, shape, is_current=False)
            if is_lost:
                state.request_all(self._lake, self._name)
            if not {*call.rows.column_names} <= {*shape.columns, OPERATION}:
                self._shaped.pop(name, None)

    def _take(self, connection: Connection, table: str) -> bool:
        """Note that a table is the lake's; returns whether somebody has dropped it.

        Raises:
            ConfigurationError: somebody else has made it.
            psycopg.OperationalError: the server has lost its tables since the connection began.
        """
        server = connection.execute(sql.SQL("SELECT server FROM {}").format(self._lake_table)).fetchone()
        if server != (self._server,):
            connection.close()
            raise psycopg.OperationalError("the schema was made anew")
        is_there = self._exists(connection, self._table(table))
        parts = {"tables": self._own, "name": table, "sink": self._name}
        insert = "INSERT INTO {tables} VALUES ({name}, {sink}) ON CONFLICT (name) DO NOTHING"
        is_new = bool(run_statement(connection, insert, **parts))
        if is_new and is_there:
            where = f"{self._settings.namespace}.{table}"
            why = f"serve: {where} exists, and is not the lake's"
            raise ConfigurationError(f"{why}: drop it, or set another serve.schema_name")
        return not is_new and not is_there

    def _grant(self, connection: Connection, table: str, shape: Shape) -> None:
        path = self._table(table).as_string(connection)
        there = {name for name, *_ in connection.execute(THERE, [path])}
        if there:
            seen = {user: [name for name in columns if name in there] for user, columns in shape.seen.items()}
            self._roles.grant(connection, self._table(table), seen)

    def _bring(self, connection: Connection, table: str, shape: Shape, is_current: bool) -> bool:
        """Give a table this shape; returns whether it has lost values by that.

        Args:
            is_current: it has no columns but these; calls of plans of before may need more.
        """
        parts = {"table": self._table(table)}
        path = parts["table"].as_string(connection)
        there = {name: (kind, text or "") for name, kind, text in connection.execute(THERE, [path])}
        changes, is_lost = [], False
        if not there:
            columns = [(sql.Identifier(name), sql.SQL(kind)) for name, (kind, _) in shape.columns.items()]
            self._create(connection, table, [sql.SQL("{} {}").format(*one) for one in columns])
        for name, (kind, _) in shape.columns.items() if there else ():
            if name not in there:
                changes.append(sql.SQL("ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(kind)))
            elif there[name][0] != kind:
                is_lost |= self._retype(connection, parts["table"], sql.Identifier(name), sql.SQL(kind))
        for name in there if is_current else ():
            if name not in shape.columns:
                changes.append(sql.SQL("DROP COLUMN {}").format(sql.Identifier(name)))
        if changes:
            run_statement(connection, "ALTER TABLE {table} {changes}", **parts, changes=sql.SQL(", ").join(changes))
        if shape.key and is_current:
            self._make_key(connection, table, shape.key)
        for name in shape.indexed:
            index = sql.Identifier(f"protolake_{hashlib.sha256(f'{table}.{name}'.encode()).hexdigest()[:16]}")
            create = "CREATE INDEX IF NOT EXISTS {index} ON {table} ({column})"
            run_statement(connection, create, **parts, index=index, column=sql.Identifier(name))
        for name, (_, text) in shape.columns.items():
            if there.get(name, ("", ""))[1] != text:
                on = "COMMENT ON COLUMN {table}.{column} IS {text}"
                run_statement(connection, on, **parts, column=sql.Identifier(name), text=text)
        if (connection.execute(COMMENT, [path]).fetchone() or ("",))[0] != (shape.comment or None):
            run_statement(connection, "COMMENT ON TABLE {table} IS {text}", **parts, text=shape.comment)
        self._grant(connection, table, shape)
        return is_lost

    def _retype(self, connection: Connection, table: sql.Identifier, column: sql.Identifier, kind: sql.SQL) -> bool:
        """Give a column another type; returns whether its values could not be kept."""
        for using in ("{column}::text::{kind}", "NULL"):
            try:
                with connection.transaction():
                    change = f"ALTER TABLE {{table}} ALTER COLUMN {{column}} TYPE {{kind}} USING {using}"
                    run_statement(connection, change, table=table, column=column, kind=kind)
                return using == "NULL"
            except psycopg.errors.DataError:
                continue
        raise AssertionError("NULL has every type")

    def _drop(self, connection: Connection, wanted: Iterable[str]) -> Iterator[str]:
        """Drop the tables that the lake has no longer."""
        kept = {*wanted, *(sent_tables(self._lake, self._name) if self._name == SERVE else ())}
        if self._lake.known_identity() != self._identity:  # its folder is gone for a moment
            return
        found = connection.execute(sql.SQL("SELECT name, sink FROM {}").format(self._own)).fetchall()
        sinks = self._all.all_sinks.keys()
        for table, sink in found:
            is_orphan = self._name == SERVE and sink not in sinks
            if not is_orphan and (sink != self._name or table in kept):
                continue
            try:
                with self._transaction(connection, changes_tables=True):
                    run_statement(connection, "DROP TABLE IF EXISTS {table}", table=self._table(table))
                    run_statement(connection, "DELETE FROM {tables} WHERE name = {name}", tables=self._own, name=table)
            except psycopg.Error as error:
                if connection.closed:
                    raise
                yield f"{table} cannot be dropped: {self._text(error)}"
            self._shaped.pop(table, None)
            self._ready.clear()


def printed(kind: pa.DataType) -> str:
    """The type of a column as PostgreSQL prints it."""
    name = type_of(kind)
    if name.startswith("numeric"):
        precision, scale = [*re.findall(r"\d+", name), "0"][:2]
        return f"numeric({precision},{scale})"
    return LONG.get(name, name)
