"""The projection of each silver table, by the settings, the columns that the table has now and the reference tables.

A definition names exactly the columns that its rows get: a column of all tables is left out where a table has nothing
for it. So a row is proven by its definition alone, whatever columns its table gets later.

The reasons: docs/decisions/projections.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_app.lake.delta.merged_columns import grows
from spark_app.lake.files.hmac_key import SETTING, fingerprint_of, read_key
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.columns import Aliases, aliased_fields, column_of
from spark_app.model.definitions import Definition, Definitions, Expectation, Join, Projection
from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.model.text import one_line
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf.columns.fit import known_types, table_columns
from spark_app.settings.models import Settings
from spark_app.settings.silver import Silver, SilverTable, joined_names
from spark_app.tables.aliases import UNCLEAR, table_aliases, unclear_names
from spark_app.tables.definitions import number_all
from spark_app.tables.expectations.checks import LINEAGE, columns_in_expression, fields_named, unknown_column
from spark_app.tables.references.joins import TableJoins
from spark_app.tables.route import Routing
from spark_app.tables.sql.expressions import HMAC, calls_hmac, type_of
from spark_app.tables.sql.names import columns_in, write_columns
from spark_app.tables.sql.types import null_of

MOST = 299  # characters of a message
Columns = Callable[[str], pa.Schema | None]  # table -> the columns that it has in Delta


@dataclass(frozen=True)
class Table:
    """One silver table.

    Attributes:
        sent: the columns of its messages.
        seen: `sent` with the joined columns: what expressions see.
        types: `seen`, and the columns that only other messages have.
        joins: by the settings and the versions of the reference tables.
        written: the columns that the table has in Delta; None if it does not exist.
        aliases: other names of `sent`.
        named: the columns, casefolded, that the settings make or drop, as they call them.
    """

    name: str
    sent: pa.Schema
    seen: pa.Schema
    types: pa.Schema
    joins: tuple[Join, ...]
    written: pa.Schema | None
    aliases: Aliases
    named: frozenset[str]

    @property
    def names(self) -> list[str]:
        """All names by which expressions may call its columns."""
        return [*self.seen.names, *(field.name for field in aliased_fields(self.sent, self.aliases))]

    def by_columns(self, silver: Silver) -> Silver:
        """The settings of all tables and of this one, with the table's columns by their own names."""
        if not self.aliases:
            return silver
        own = {self.name: self._by_columns(silver.own(self.name))}
        return silver.model_copy(update={**dict(self._by_columns(silver)), "tables": own})

    def _by_columns(self, part: SilverTable) -> SilverTable:
        columns = {
            self.column(name): write_columns(text, self.seen, self.aliases) for name, text in part.columns.items()
        }
        return SilverTable.model_construct(columns=columns, drop=tuple(map(self.column, part.drop)))

    def column(self, name: str) -> str:
        """The column that a projection makes or drops by this name. A column that the table has comes first, whoever
        made it. If the settings name an alias by both names, they mean two columns."""
        there = (*self.seen.names, *(() if self.written is None else self.written.names))
        column = column_of(name, there, self.aliases)
        return name if column.casefold() in self.named else column

    def problem_of(self, name: str, text: str) -> str | None:
        """Why an expression cannot give the column; None = it can."""
        text = write_columns(text, self.seen, self.aliases)
        # A table has at least one column.
        fields = fields_named(columns_in(text), self.seen, self.types) or pa.schema([LINEAGE.field("_offset")])
        found = type_of(text, fields)
        return found if isinstance(found, str) else self.written_problem(self.column(name), found[1])

    def written_problem(self, name: str, kind: pa.DataType) -> str | None:
        """Why the table cannot have a column of the type; None = it can."""
        written = self.written_field(name)
        if written is None:
            return None
        remedy = f"choose another name, or {self.renewal}"
        if written.name != name:
            return f"the table {self.name} has the column as {written.name}, and case does not count: {remedy}"
        if differs(kind, written.type):
            return f"is of the type {kind}, but the table {self.name} has {written.type} in {name}: {remedy}"
        return None

    def written_field(self, name: str) -> pa.Field | None:
        fields = self.written or ()
        return next((field for field in fields if field.name.casefold() == name.casefold()), None)

    @property
    def renewal(self) -> str:
        """The command that makes the table anew."""
        return f"run `rebuild {self.name} --renew --yes`"


def differs(kind: pa.DataType, written: pa.DataType) -> bool:
    return not (grows(kind, written) or grows(written, kind))


class TableProjections:
    """Of one lake with its settings."""

    def __init__(
        self, lake: Lake, settings: Settings, wrapper: Wrapper | None, written: Columns, projected: Collection[str]
    ):
        """
        Args:
            written: returns the columns of a table in Delta; None if the table does not exist.
            projected: the columns, casefolded, that some definition of the lake has made.
        """
        self._lake = lake
        self._settings = settings
        self._silver = settings.silver
        self._wrapper = wrapper
        self._written = written
        self._projected = projected
        self._numbers: dict[tuple[tuple[Expectation, ...], Projection], Definition] = {}
        self._resolved: dict[str, tuple[tuple[str, ...], Projection]] = {}
        self._catalog: Catalog | None = None
        self._unclear: set[tuple[str, str]] = set()
        self._unknown_drops: set[tuple[str, str]] = set()  # those that were logged
        self._hmac = any(calls_hmac(text) for _, own in self._silver.parts() for text in own.columns.values())
        self.joins = TableJoins(lake, settings.reference)

    def definitions(self, base: Definitions, catalog: Catalog, routing: Routing) -> Definitions:
        """The definitions with the projections of all tables; new ones are durable.

        Args:
            base: the definitions by expectations.

        Raises:
            ConfigurationError: the key of `hmac()` cannot be read, or a reference table, of which the lake has no
                version.
        """
        if not self._settings.are_columns_changed:
            return base
        self._follow_references()
        key = self._fingerprint()
        resolved = {name: _with_key(self._resolve(name, catalog, routing), key) for name in routing.messages}
        projections = {name: projection for name, projection in resolved.items() if projection}
        self._number_new(
            (expectations, p) for name, p in projections.items() for expectations in _expectations_of(base, name)
        )
        own, by_origin = dict(base.own), dict(base.by_origin)
        for name, projection in projections.items():
            old = base.of(name)
            own[name] = self._numbers[() if old is None else old.expectations, projection]
            found = base.by_origin.get(name, {})
            by_origin[name] = {origin: self._numbers[one.expectations, projection] for origin, one in found.items()}
        return replace(base, own=own, by_origin=by_origin)

    def _follow_references(self) -> None:
        """Compute all projections anew: the reference tables have other versions."""
        if self.joins.follow():
            self._numbers = {}
            self.forget()

    def forget(self) -> None:
        """Compare the settings with the tables again before the next unit."""
        self._catalog = None

    def _number_new(self, wanted: Iterable[tuple[tuple[Expectation, ...], Projection]]) -> None:
        new = [one for one in dict.fromkeys(wanted) if one not in self._numbers]
        if new:
            self._numbers |= zip(new, number_all(self._lake, new), strict=True)

    def _fingerprint(self) -> str:
        if not self._hmac:
            return ""
        if not self._silver.hmac_key_file:
            raise ConfigurationError(f"{SETTING}: is empty, but an expression calls hmac()")
        return fingerprint_of(read_key(self._silver.hmac_key_file))

    def _resolve(self, name: str, catalog: Catalog, routing: Routing) -> Projection:
        if catalog is not self._catalog:
            self._resolved, self._catalog = {}, catalog
        messages = routing.messages[name]
        known = self._resolved.get(name)
        if known is None or known[0] != messages:
            table = self._table(name, catalog, routing)
            self._log_unclear(table)
            projection = self._safe(table, self._projection(table))
            known = self._resolved[name] = messages, self._without_keys(table, projection)
        return known[1]

    def _log_unclear(self, table: Table) -> None:
        """Log names of the settings that are a column, and another name of a column, too."""
        own = self._silver, self._silver.own(table.name)
        named = {name for part in own for name in (*part.columns, *part.drop)}
        named |= {name for part in own for text in part.columns.values() for name in columns_in(text)}
        for column, other in unclear_names(named, table.seen, table.aliases):
            if (table.name, column) not in self._unclear:
                self._unclear.add((table.name, column))
                log.warning(UNCLEAR, table=table.name, setting="silver", column=column, not_column=other)

    def _table(self, name: str, catalog: Catalog, routing: Routing) -> Table:
        sent = table_columns(routing.messages[name], catalog.columns, self._wrapper, routing.fixed.get(name))
        written = self._written(self._settings.layout.silver_of(name))
        return self._made(name, sent, catalog, written, table_aliases(routing.messages[name], catalog))

    def _made(self, name: str, sent: pa.Schema, catalog: Catalog, written: pa.Schema | None, aliases: Aliases) -> Table:
        joins = self.joins.of(name, sent, aliases)
        joined = [field for _, field in self.joins.fields(joins)]
        replaced = {field.name.casefold() for field in joined}
        seen = pa.schema([*(field for field in sent if field.name.casefold() not in replaced), *joined])
        return Table(name, sent, seen, known_types(seen, catalog), joins, written, aliases, self._silver.touched(name))

    def _possible(self, catalog: Catalog, name: str = "") -> list[Table]:
        """A table for each message that is known."""
        return [
            self._made(name, sent, catalog, None, catalog.aliases.get(kind, {}))
            for kind, sent in catalog.columns.items()
        ]

    def _projection(self, table: Table) -> Projection:
        """The projection of the table by the settings."""
        there, silver = self._names(table.seen), table.by_columns(self._silver)
        general = silver.general_columns(table.name)
        columns = {name: text for name, text in general.items() if self._applies(name, text, there)}
        columns |= silver.own(table.name).columns
        drops = silver.drops(table.name)
        dropped = {name.casefold() for name in drops}
        kept = {name: text for name, text in columns.items() if name.casefold() not in dropped}
        drops = [name for name in drops if name.casefold() in there]
        return Projection(tuple(sorted(kept.items())), tuple(drops), joins=table.joins)

    def _names(self, sent: pa.Schema) -> frozenset[str]:
        keyed = self._settings.decode.framed_keys
        lineage = (name for name in LINEAGE.names if keyed or name != "_key")
        return frozenset(name.casefold() for name in (*sent.names, *lineage))

    def _applies(self, name: str, text: str, there: frozenset[str]) -> bool:
        """Whether a column of all tables is one of this table: it replaces one there, or all that it names is there."""
        named = {one.casefold() for one in columns_in(text)}
        return name.casefold() in there or named <= there

    def _without_keys(self, table: Table, projection: Projection) -> Projection:
        """The projection, without decoded keys if they may contain text that it hides. The start refuses such settings
        for the tables and messages that it knows."""
        if not self._hides_but_for_keys(table, projection):
            return projection
        log.warning("the column _key is dropped: it may have what the projection hides", table=table.name)
        return replace(projection, drops=(*projection.drops, "_key"))

    def _hides_but_for_keys(self, table: Table, projection: Projection) -> frozenset[str]:
        """The columns, casefolded, whose text decoded keys may still show."""
        hidden = (projection.names & self._names(table.sent)) - {"_key"}
        shows = self._settings.decode.framed_keys and "_key" not in projection.names
        return hidden if shows else frozenset()

    def _safe(self, table: Table, projection: Projection) -> Projection:
        """The projection without expressions that have no type by now, or another one than their column: such a column
        is NULL from now on, and the app goes on. Its start refuses such settings."""
        columns, drops = [], list(projection.drops)
        for name, text in projection.columns:
            problem = table.problem_of(name, text)
            field = None if problem is None else table.written_field(name)
            if problem is None:
                columns.append((name, text))
                continue
            log.warning("a column of silver is NULL from now on", table=table.name, column=name, reason=problem)
            if field is not None:
                columns.append((field.name, null_of(field.type)))
            else:
                drops.append(name)
        return replace(projection, columns=tuple(columns), drops=tuple(drops))

    def check(self, catalog: Catalog, routing: Routing) -> None:
        """Compare the settings with the columns that are known, and with those of the tables. While no schema is
        known, only the expressions are checked.

        Raises:
            ConfigurationError: the text names the setting.
        """
        if not self._settings.are_columns_changed and not self._projected:
            return
        self._follow_references()
        for setting, own in self._silver.parts():
            for name, text in own.columns.items():
                columns_in_expression(f"{setting}.columns.{name}", text, frozenset({HMAC}))
        self._fingerprint()
        tables = [self._table(name, catalog, routing) for name in routing.messages]
        messages = self._possible(catalog)
        self._check_names((*messages, *tables))
        self._check_joins(messages, tables)
        for table in tables:
            self._check_routing(table)
            self._check_table(table)
            self._check_former(table, routing.messages[table.name], catalog)
        self._check_without_tables(catalog, routing)
        self._check_keys(tables or messages)

    def _check_names(self, tables: Sequence[Table]) -> None:
        """Refuse names that no schema has. One to be dropped may come: it is hidden from its first row on."""
        names = {
            name.casefold(): name for known in (LINEAGE.names, *(table.names for table in tables)) for name in known
        }
        if len(names) == len(LINEAGE):
            return
        for setting, own in self._silver.parts():
            named = [(f"columns.{name}", columns_in(text)) for name, text in own.columns.items()]
            for part, wanted in [*named, ("drop", own.drop)]:
                for name in sorted(wanted, key=str.lower):
                    if name.casefold() in names:
                        continue
                    reason = unknown_column(name, list(names.values()))
                    if part != "drop":
                        raise _refusal(f"{setting}.{part}", reason)
                    if (setting, name) not in self._unknown_drops:
                        self._unknown_drops.add((setting, name))
                        log.warning("a column to drop is in no schema yet", setting=f"{setting}.drop", reason=reason)

    def _check_joins(self, messages: Iterable[Table], tables: Iterable[Table]) -> None:
        """Refuse one that no message can have, and a joined column that a table has with another type.

        Args:
            messages: a table for each message that is known.
        """
        self.joins.check([(table.sent, table.aliases, table.joins) for table in (*messages, *tables)])
        for table in tables:
            made = self._made_otherwise(table)
            for reference, field in self.joins.fields(table.joins):
                problem = table.written_problem(field.name, field.type)
                if problem is not None and field.name.casefold() not in made:
                    raise _refusal(f"reference.{reference}", f"{field.name} {problem}")

    def _made_otherwise(self, table: Table) -> frozenset[str]:
        """The columns, casefolded, that expressions make or that are dropped."""
        return replace(self._projection(table), joins=()).names

    def _check_table(self, table: Table) -> None:
        own = table.by_columns(self._silver).own(table.name).columns
        for name, text in self._projection(table).columns:
            problem = table.problem_of(name, text)
            if problem is not None:
                setting = f"silver.tables.{table.name}" if name in own else "silver"
                raise _refusal(f"{setting}.columns.{name}", problem)

    def _check_routing(self, table: Table) -> None:
        event = self._settings.event
        routing = table.column(event.routing) if table.aliases and event.route_by != "message" else ""
        if routing and routing.casefold() in self._projection(table).names:
            raise _refusal("silver", f"{routing} names the table, and stays as it is")

    def _check_former(self, table: Table, messages: tuple[str, ...], catalog: Catalog) -> None:
        """Refuse to write a column as it is sent, if a projection of before has made it of another type."""
        touched = table.by_columns(self._silver).touched(table.name) | joined_names(self._settings.reference)
        for field in table_columns(messages, catalog.columns, self._wrapper):
            written = table.written_field(field.name)
            former = field.name.casefold() in self._projected and field.name.casefold() not in touched
            if former and written is not None and differs(field.type, written.type):
                raise _refusal(
                    "silver.columns",
                    f"{field.name} of {table.name} is sent as {field.type}, but a projection of before made it "
                    f"{written.type}: give it an expression of that type, or {table.renewal}",
                )

    def _check_without_tables(self, catalog: Catalog, routing: Routing) -> None:
        """An expression of a table that does not exist yet has to fit at least one message."""
        for setting, own in self._silver.parts():
            named = setting.removeprefix("silver.tables.")
            if named in routing.messages or (own is self._silver and routing.messages) or not catalog.columns:
                continue
            for name, text in own.columns.items():
                problems = [table.problem_of(name, text) for table in self._possible(catalog, named)]
                if all(problems):
                    raise _refusal(f"{setting}.columns.{name}", problems[0] or "")

    def _check_keys(self, tables: Iterable[Table]) -> None:
        """Decoded keys may contain the text that the columns hide."""
        for table in tables:
            hidden = self._hides_but_for_keys(table, self._projection(table))
            if hidden:
                raise _refusal(
                    "silver",
                    f"{table.name or 'a table'} hides {min(hidden)}, but decode.framed_keys writes the record key into "
                    '_key: drop _key, or replace it; _key = "_key" keeps it',
                )


def _expectations_of(base: Definitions, name: str) -> Iterator[tuple[Expectation, ...]]:
    """The expectations that rows of a table may meet; at least none at all."""
    yield () if (usual := base.of(name)) is None else usual.expectations
    yield from (one.expectations for one in base.by_origin.get(name, {}).values())


def _with_key(projection: Projection, key: str) -> Projection:
    return replace(projection, key=key) if any(calls_hmac(text) for _, text in projection.columns) else projection


def _refusal(setting: str, text: str) -> ConfigurationError:
    return ConfigurationError(one_line(f"{setting}: {text}")[:MOST])
