"""The expectations that rows have to meet: those of the settings, and the rules in the .proto of the schema that wrote
the row.

An expectation of the settings may call a column by another name. Its definition has the name of the column in the table
at hand, so whoever reads a definition needs no other names. The rules in the .proto are found anew when a schema is
resolved or a table gets another message type, so they are in force before the first row of the schema lands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.columns import Aliases, merge_aliases
from spark_app.model.definitions import AS_SENT, MAX_EXPECTATIONS, Action, Definition, Definitions, Expectation, Origin
from spark_app.model.log import log
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf.columns.fit import table_columns
from spark_app.protobuf.schemas.ledger import Ledger, message_schemas
from spark_app.settings.models import ExpectationSettings, Settings
from spark_app.tables.admission import TableAdmission
from spark_app.tables.aliases import UNCLEAR, table_aliases, unclear_names
from spark_app.tables.definitions import number_all, record
from spark_app.tables.expectations.checks import check_columns, columns_of
from spark_app.tables.expectations.proto_rules import Found, find_rules
from spark_app.tables.route import Routing
from spark_app.tables.sql.names import write_columns

MOST_NAMED = 100  # log lines for one message


class ExpectationsInForce:
    """
    Attributes:
        of_settings: the definitions that the settings make.
    """

    def __init__(self, lake: Lake, settings: Settings, ledger: Ledger, tables: TableAdmission):
        self.of_settings = record(lake, settings.expectations)
        self._lake = lake
        self._wrapper = settings.wrapper.names
        self._action = settings.schemas.proto_rules
        self._ledger = ledger
        self._tables = tables
        self._own: Mapping[str, Definition] = {}
        self._by_origin: Mapping[str, Mapping[Origin, Definition]] = {}
        self._found_for: tuple[Catalog, Routing, Definitions] | None = None
        self._logged: set[Found] = set()
        self._unclear: set[tuple[str, ...]] = set()
        self.renew()

    @property
    def definitions(self) -> Definitions:
        """The definitions of the last renewal."""
        own = {**self.of_settings.own, **self._own}
        return replace(self.of_settings, own=own, by_origin=self._by_origin)

    def renew(self) -> Definitions:
        """The definitions for the schemas and tables that are known now. New ones are durable."""
        if self._action == "off" and not (self.of_settings and self._ledger.catalog().aliases):
            return self.of_settings
        state = self._ledger.catalog(), self._tables.routing(), self.of_settings
        if state != self._found_for:
            self._own = dict(self._find_own(state[0], state[1]))
            if self._action != "off":
                self._by_origin = self._find(state[0], state[1], self._action)
            self._found_for = state
        return self.definitions

    def _find_own(self, catalog: Catalog, routing: Routing) -> Iterator[tuple[str, Definition]]:
        """(routing name, definition) of the tables for which an expectation of the settings has another name of a
        column."""
        written: dict[Hashable, tuple[Expectation, ...]] = {}
        kinds: dict[str, Hashable] = {}
        for name, messages in routing.messages.items() if catalog.aliases else ():
            usual = self.of_settings.of(name)
            if usual is None:
                continue
            kind = messages, routing.fixed.get(name), usual
            kinds[name] = kind
            if kind not in written:
                written[kind] = with_column_names(usual.expectations, name, catalog, routing, self._wrapper)
                self._log_unclear(name, usual.expectations, catalog, routing)
        several = list(dict.fromkeys(written.values()))
        numbered = dict(zip(several, number_all(self._lake, ((one, AS_SENT) for one in several)), strict=True))
        for name in kinds:
            definition = numbered[written[kinds[name]]]
            if definition != self.of_settings.of(name):
                yield name, definition

    def _log_unclear(self, name: str, expectations: Iterable[Expectation], catalog: Catalog, routing: Routing) -> None:
        columns, aliases = _names_in(name, catalog, routing, self._wrapper)
        for expectation in expectations:
            for column, other in unclear_names(columns_of(expectation.name, expectation.check), columns, aliases):
                if (name, expectation.name, column) not in self._unclear:
                    self._unclear.add((name, expectation.name, column))
                    log.warning(UNCLEAR, table=name, rule=expectation.name, column=column, not_column=other)

    def _find(self, catalog: Catalog, routing: Routing, action: Action) -> dict[str, Mapping[Origin, Definition]]:
        """Tables that are alike share one mapping, because the definitions travel with every task."""
        alike: dict[Hashable, dict[Origin, tuple[Expectation, ...]]] = {}
        kinds: dict[str, Hashable] = {}
        for name, messages in routing.messages.items():
            usual = self._own.get(name, self.of_settings.of(name))
            kinds[name] = kind = (messages, routing.fixed.get(name), usual)
            if kind not in alike:
                expectations = () if usual is None else usual.expectations
                alike[kind] = dict(self._with_proto_rules(name, catalog, routing, expectations, action))
        several = list(dict.fromkeys(one for by_origin in alike.values() for one in by_origin.values()))
        numbered = dict(zip(several, number_all(self._lake, ((one, AS_SENT) for one in several)), strict=True))
        shared = {
            kind: {origin: numbered[expectations] for origin, expectations in by_origin.items()}
            for kind, by_origin in alike.items()
        }
        return {name: shared[kind] for name, kind in kinds.items()}

    def _with_proto_rules(
        self, name: str, catalog: Catalog, routing: Routing, expectations: tuple[Expectation, ...], action: Action
    ) -> Iterator[tuple[Origin, tuple[Expectation, ...]]]:
        """The expectations of a table's rows whose schema has rules; `expectations` are those of the settings, and come
        first."""
        for origin, found in rules_by_origin(name, catalog, routing, MAX_EXPECTATIONS - len(expectations)):
            self._log_left_out(origin, found)
            if found.checks:
                yield origin, (*expectations, *as_expectations(found, action))

    def _log_left_out(self, origin: Origin, found: Found) -> None:
        if not found.left_out or found in self._logged:
            return
        self._logged.add(found)
        schema, message = origin
        for one in found.left_out[:MOST_NAMED]:
            rule, path, reason = one.rule[:100], one.path[:200], one.reason
            log.warning(
                "a rule in the .proto is not checked",
                schema=schema,
                message=message,
                field=path,
                rule=rule,
                reason=reason,
            )
        if len(found.left_out) > MOST_NAMED:
            more = len(found.left_out) - MOST_NAMED
            log.warning("more rules in the .proto are not checked", schema=schema, message=message, rules=more)


def with_column_names(
    expectations: Iterable[Expectation], name: str, catalog: Catalog, routing: Routing, wrapper: Wrapper | None
) -> tuple[Expectation, ...]:
    """Expectations of the settings with the columns of a table by their own names."""
    columns, aliases = _names_in(name, catalog, routing, wrapper)
    return tuple(replace(one, check=write_columns(one.check, columns, aliases)) for one in expectations)


def _names_in(name: str, catalog: Catalog, routing: Routing, wrapper: Wrapper | None) -> tuple[pa.Schema, Aliases]:
    """(the columns of a table by its messages, their other names)."""
    messages = routing.messages.get(name, ())
    columns = table_columns(messages, catalog.columns, wrapper, routing.fixed.get(name))
    return columns, table_aliases(messages, catalog)


def as_expectations(found: Found, action: Action) -> tuple[Expectation, ...]:
    return tuple(Expectation(name, check, action) for name, check in found.checks)


def rules_by_origin(name: str, catalog: Catalog, routing: Routing, most: int) -> Iterator[tuple[Origin, Found]]:
    """The rules in the .proto for rows of a table, for each schema and message type that the table may have rows of.

    Args:
        most: checks of one origin.
    """
    for message in routing.messages.get(name, ()):
        inner = message.rpartition("/")[2]
        full_name = inner.partition("#")[0]
        for key, decodable in catalog.decodable.items():
            of_schema = message_schemas(decodable.descriptor_set)
            if full_name in of_schema and catalog.type_of(key, full_name) == inner:
                yield (key, message), find_rules(decodable.descriptor_set, full_name, most)


def check_expectations_fit(
    expectations: Mapping[str, ExpectationSettings], catalog: Catalog, routing: Routing, wrapper: Wrapper | None
) -> None:
    """Check that each expectation is an expression on columns that some schema has, and is true or false for the types
    of all its tables. While no schema is known, only the expressions are checked.

    Raises:
        ConfigurationError: the text names the expectation.
    """
    tables = {
        name: table_columns(messages, catalog.columns, wrapper, routing.fixed.get(name))
        for name, messages in routing.messages.items()
    }
    aliases: dict[pa.Schema, Aliases] = {catalog.columns[kind]: names for kind, names in catalog.aliases.items()}
    for name, messages in routing.messages.items():
        aliases[tables[name]] = merge_aliases((aliases.get(tables[name], {}), table_aliases(messages, catalog)))
    known = _distinct([*tables.values(), *catalog.columns.values()])
    for name, expectation in expectations.items():
        required = _distinct([tables[table] for table in expectation.tables or tables if table in tables])
        check_columns(name, expectation.check, known, required, aliases)


def _distinct(schemas: list[pa.Schema]) -> list[pa.Schema]:
    return list(dict.fromkeys(schemas))
