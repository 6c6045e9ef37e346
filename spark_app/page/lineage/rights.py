"""What users see of tables: no column that is made of a field that is hidden from them, or of what is not known."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator

from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake import sql_tables
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import SqlTable
from spark_app.page.lineage.columns import schemas_of
from spark_app.page.lineage.graph import Edge
from spark_app.page.lineage.lake_graph import LakeGraph, RowOrigins
from spark_app.protobuf.columns.fields import Fields, column_fields, owner_of, struct_of
from spark_app.protobuf.columns.types import ONE_VALUE, is_map, map_fields
from spark_app.settings.models import Settings
from spark_app.tables.definitions import projections_of
from spark_app.tables.expectations.checks import columns_in_expression
from spark_app.tables.sql.names import columns_in

# What takes columns that it does not name: all of them, or by their places.
UNNAMED = re.compile(
    r"""\*|\||\bnatural\b|\btable\b|(?:^|[(;])\s*from\b
    |\b(?:from|join|,)\s*[\w.`]+\s+(?:as\s+)?(?!on\b|using\b|where\b)\w+\s*\(
    |\)\s*(?:as\s+)?(?!on\b|using\b|where\b|over\b|filter\b|within\b|in\b|and\b|or\b|values\b|decimal|numeric|dec\b|n?char|varchar)\w+\s*\(""",
    re.IGNORECASE | re.VERBOSE,
)
COUNTED = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
WORD = re.compile(r"\w+")


class Hidden:
    """What is hidden from those who may not see some fields, in a lake as it is now. Case does not count."""

    def __init__(self, settings: Settings, fields: Collection[str]):
        """
        Args:
            fields: those that are hidden.
        """
        self._settings = settings
        self._layout = settings.layout
        self._lake = Lake(settings.lake_address)
        self._fields = frozenset(name.casefold() for name in fields)
        self._other_names: set[str] = set()  # of fields that are in hidden columns, by which gold may know these
        self.of = functools.cache(self._of)

    @functools.cached_property
    def _graph(self) -> LakeGraph:
        return LakeGraph(self._settings)

    @functools.cached_property
    def _origins(self) -> RowOrigins:
        """Rows of all schemas and definitions: what no row has yet, one may have soon."""
        schemas = frozenset(self._graph.ledger.catalog().decodable)
        return RowOrigins(definitions=dict.fromkeys((*projections_of(self._lake), 0), schemas))

    def _of(self, table: str) -> frozenset[str] | None:
        """The columns of the table that are hidden; None = all of it is, as what holds bytes of records.

        Raises:
            ProtolakeError: the lake cannot be read.
        """
        if not self._fields:
            return frozenset()
        if self._layout.is_silver(table):
            return self._made_of_hidden(table, ())
        kind = self._layout.gold_kind(table)
        if kind is not None:
            return self._of_gold(table, kind)
        one = sql_tables.read(self._lake, table)
        return self._of_sql(one) if one else None

    def _of_gold(self, table: str, kind: str) -> frozenset[str] | None:
        spec = next(one for one in GoldSpec.all_of(self._settings) if one.kind == kind)
        silver = self._layout.silver_of(self._layout.gold_name_of(table))
        hidden = self.of(silver)
        if hidden is None or not self._lake.has_table(silver):
            return None
        tested = columns_in_expression("", spec.where) if spec.where else frozenset()
        if {name.casefold() for name in tested} & (self._fields | _folded(hidden)):
            return None  # by which rows there are it tells the values
        return self._made_of_hidden(table, hidden)

    def _made_of_hidden(self, table: str, hidden: Collection[str]) -> frozenset[str]:
        """
        Args:
            hidden: the columns of silver that are, for a table of gold.
        """
        graph, found = self._graph.of(table, self._origins), set[str]()
        edges = [edge for edge in graph.edges if edge.target.node == table]
        is_silver = self._layout.is_silver(table)
        telling = set(self._telling(graph.nodes[table].details["messages"])) if is_silver else set[str]()
        names = self._fields | _folded(hidden) | self._other_names | _folded(telling)
        for edge in edges:
            if _parts(edge.target.column) & (self._fields | _folded(telling)) or self._tells(edge, names):
                found.add(edge.target.column.partition(".")[0])
        if is_silver:
            made = [edge for edge in edges if edge.target.column.partition(".")[0] in found]
            self._other_names |= {part for edge in made for part in _parts(edge.origin.column)}
        return frozenset(found)

    def _telling(self, messages: Iterable[str]) -> Iterator[str]:
        """The columns of messages that have a hidden field inside, or a message as JSON text, in which anything may
        be."""
        ledger = self._graph.ledger
        for kind in {kind for message in messages for kind in message.split("/")}:
            for key in schemas_of(ledger, kind):
                message = ledger.message(key, kind.partition("#")[0])
                for path, fields in column_fields(message) if message is not None else ():
                    known = _folded((*path, *(field.name for field in fields)))
                    if known & self._fields or _is_text_of_message(fields):
                        yield path[0]

    def _tells(self, edge: Edge, names: Collection[str]) -> bool:
        read = columns_in(edge.by.sql) if edge.by.sql else ()
        used = {*_parts(edge.origin.column), edge.by.on.casefold(), edge.by.reads.casefold(), *_folded(read)}
        return edge.by.kind in ("unknown", "wrapper") or not used.isdisjoint(names)

    def _of_sql(self, one: SqlTable) -> frozenset[str] | None:
        """A statement that mentions a hidden column anywhere, or takes all columns, may show it under any name."""
        if one.is_changing:
            return None
        names = set(self._fields)
        for source, version in one.sources.items():
            hidden = frozenset() if isinstance(version, str) else self.of(source)
            if hidden is None:
                return None
            names |= _folded(hidden)
        for text in (COUNTED.sub("count()", text) for text in (one.query, *one.views.values())):
            if UNNAMED.search(text) or _folded(WORD.findall(text)) & (names | self._other_names):
                return None
        return frozenset()


class UserRights:
    """What the users of the settings see of the tables of a lake."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._hidden: dict[frozenset[str], Hidden] = {}

    def renew(self) -> None:
        """The lake may have changed."""
        self._hidden.clear()

    def of(self, table: str, columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """User -> the columns of the table that the user sees; none = not even that there is such a table.

        Raises:
            ProtolakeError: the lake cannot be read.
        """
        found = {}
        for name, user in self._settings.users.items():
            fields = frozenset(user.hide)
            hidden = self._hidden.setdefault(fields, Hidden(self._settings, fields))
            gone = hidden.of(table) if user.may_see(table) else None
            found[name] = () if gone is None else tuple(one for one in columns if one not in gone)
        return found


def _is_text_of_message(fields: Fields) -> bool:
    field = map_fields(fields[-1])[1] if is_map(fields[-1]) else fields[-1]
    inner = field.message_type
    is_message = inner is not None and inner.full_name not in ONE_VALUE
    return is_message and struct_of(fields[-1], tuple(map(owner_of, fields))) is None


def _parts(path: str) -> set[str]:
    return _folded(path.split("."))


def _folded(names: Iterable[str]) -> set[str]:
    return {name.casefold() for name in names}
