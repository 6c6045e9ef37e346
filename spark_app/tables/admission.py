"""Admits new routing values: each becomes a table, if there are not too many and its name is allowed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.columns import column_of
from spark_app.model.errors import UsageError
from spark_app.model.log import log
from spark_app.model.table_names import TableNames
from spark_app.protobuf.columns import decimals
from spark_app.protobuf.columns.fit import NOTHING, table_columns
from spark_app.protobuf.schemas.ledger import message_schemas
from spark_app.settings.models import Event, Tables
from spark_app.tables.aliases import sent_names, table_aliases
from spark_app.tables.route import By, Routing, name_of, normalize

NO_SCHEMAS = Catalog({}, {}, frozenset(), {})


class TableAdmission:
    """Admits new tables up to the limit, and stores which routing value owns each name and which message types each
    table has."""

    def __init__(
        self,
        lake: Lake,
        event: Event,
        tables: Tables,
        columns: Callable[[str], pa.Schema | None] = lambda table: None,
        touched: Callable[[str], frozenset[str]] = lambda name: frozenset(),
        projected: Collection[str] = (),
        catalog: Callable[[], Catalog] = lambda: NO_SCHEMAS,
    ):
        """
        Args:
            columns: returns the columns of a table; None if the table does not exist.
            touched: returns the columns, casefolded, that rows of a silver table may have otherwise than they were
                sent, by the names of the settings.
            projected: the columns, casefolded, that some definition of the lake has made.
            catalog: returns the current catalog.
        """
        self._lake = lake
        self._event = event
        self._by: By = event.route_by
        self._allowed = frozenset(map(normalize, tables.allowlist))
        self._cap = tables.max_tables
        self._layout = TableNames(silver=tables.silver)
        self._columns = columns
        self._touched = touched
        self._projected = frozenset(projected)
        self._catalog = catalog
        self._decimals: tuple[Catalog, frozenset[str]] = NO_SCHEMAS, frozenset()
        self._renewing: frozenset[str] = frozenset()
        stored = read_durable(lake.storage, lake.admitted) or {"names": {}, "messages": {}}
        self.admitted: dict[str, str] = stored["names"]  # routing value -> routing name
        self.messages: dict[str, tuple[str, ...]] = {name: tuple(m) for name, m in stored["messages"].items()}

    def routing(self) -> Routing:
        """The tables and names that a job knows; any other routing value is reported as new."""
        room = len(self.admitted) < self._cap
        fixed = {name: self.fixed(name) for name in self.messages}
        return Routing(
            self._event.routing,
            self.admitted,
            self._allowed,
            room,
            self._by,
            self.messages,
            {name: columns for name, columns in fixed.items() if columns is not None},
        )

    def check_names(self, names: Iterable[str]) -> None:
        """
        Raises:
            UsageError: no table has one of these routing names.
        """
        admitted = set(self.admitted.values())
        unknown = set(names) - admitted
        if unknown:
            raise UsageError(
                f"no table is named {', '.join(sorted(unknown))}; there are {', '.join(sorted(admitted)) or 'none'}"
            )

    def written(self, table: str) -> pa.Schema | None:
        """The current columns of a table; None if it does not exist, or is made anew."""
        is_renewed = self._layout.is_silver(table) and self._layout.name_of(table) in self._renewing
        return None if is_renewed else self._columns(table)

    @contextlib.contextmanager
    def renewing(self, names: Iterable[str]) -> Iterator[None]:
        """Inside of it, the silver tables with these routing names are made anew."""
        self._renewing = frozenset(names)
        try:
            yield
        finally:
            self._renewing = frozenset()

    def touched(self, name: str) -> frozenset[str]:
        """The columns, casefolded, that rows of a silver table may have otherwise than they were sent; also those that
        the settings call by another name."""
        named, catalog, messages = self._touched(name), self._catalog(), self.messages.get(name, ())
        aliases = table_aliases(messages, catalog) if named else {}
        if not aliases:
            return named
        return named | {column_of(one, sent_names(messages, catalog), aliases).casefold() for one in named}

    def fixed(self, name: str) -> pa.Schema | None:
        """The columns of `written`, if the message type alone does not give their types: the table has several
        types, or a column that only projections of before have made, or maybe a struct of an earlier release where a
        new table has a DECIMAL. Those of its projection are left out."""
        messages = self.messages.get(name, ())
        mixed = len(messages) > 1 or self._may_have_decimals(messages)
        columns = self.written(self._layout.silver_of(name)) if mixed or self._projected else None
        if columns is None:
            return None
        touched = self.touched(name)
        kept = [field for field in columns if field.name.casefold() not in touched]
        former = any(field.name.casefold() in self._projected for field in kept)
        return pa.schema(kept) if mixed or former else None

    def _may_have_decimals(self, messages: Iterable[str]) -> bool:
        """Whether a schema of one of the message types uses `confluent.type.Decimal`."""
        catalog = self._catalog()
        if catalog is not self._decimals[0]:
            schemas = [one for one in catalog.decodable.values() if decimals.MESSAGE.encode() in one.descriptor_set]
            types = (catalog.type_of(one.key, name) for one in schemas for name in message_schemas(one.descriptor_set))
            self._decimals = catalog, frozenset(types)
        return any(not self._decimals[1].isdisjoint(message.split("/")) for message in messages)

    def columns(self, name: str, known: Mapping[str, pa.Schema]) -> pa.Schema:
        """The columns that gold can name in a silver table; `known` is the catalog's. Where projections make columns,
        those of the table count."""
        messages = self.messages.get(name, ())
        written = self._columns(self._layout.silver_of(name)) if self._projected or self.touched(name) else None
        if written is not None:
            return written
        if len(messages) == 1 and not self._may_have_decimals(messages):
            return known.get(messages[0].rpartition("/")[2], NOTHING)
        return table_columns(messages, known, fixed=self.fixed(name))

    def admit(self, values: Mapping[str, Iterable[str]]) -> list[str]:
        """Admit tables for the routing values, in order, up to the limit, and add the message types of existing tables;
        returns the admitted names."""
        admitted = []
        owned = set(self.admitted.values())
        names, messages = dict(self.admitted), dict(self.messages)
        for value in sorted(values, key=lambda v: (v != name_of(v, self._by), v)):  # the plain spelling owns the name
            name = name_of(value, self._by)
            if value not in names:
                if name in owned or len(owned) >= self._cap:
                    continue
                names[value] = name
                owned.add(name)
                admitted.append(name)
            messages[name] = tuple(dict.fromkeys((*messages.get(name, ()), *sorted(values[value]))))
        if (names, messages) != (self.admitted, self.messages):
            text = json.dumps({"names": names, "messages": messages}, indent=1)
            write_durably(self._lake.storage, self._lake.admitted, text, "tables")
            self.admitted, self.messages = names, messages
        if admitted:
            log.info("tables admitted", tables=admitted, total=len(owned))
        return admitted
