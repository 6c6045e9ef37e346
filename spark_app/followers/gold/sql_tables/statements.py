"""Reads SQL files into statements with Spark's own parser. A wrong statement is a value with a reason, and stops no
other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.followers.gold.sql_tables.files import files_of, read
from spark_app.model.errors import last_message_line
from spark_app.model.table_names import is_made_by
from spark_app.model.views import Views
from spark_app.settings.gold import may_meet, seconds_of
from spark_app.settings.models import Settings
from spark_app.units.spark.jvm import each, kind_of, parse_plan, split_statements

NAME, IN_PARSER = "{name}", "protolake_routing_name"  # the parser takes no braces
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,100}")
REFRESH = re.compile(r"(\bCREATE\s+)(OR\s+REFRESH)(?=\s+MATERIALIZED\s+VIEW\b)", re.IGNORECASE)
BLANK = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
PLACE = re.compile(r"\(line (\d+), pos \d+\)")
# Texts that Spark reads as a time that depends on now.
NOW = re.compile(
    r"(?:\b(?:date|timestamp(?:_ltz|_ntz)?)|\bcast\s*\()\s*'\s*(now|today|tomorrow|yesterday)\s*'"
    r"|'\s*(now|today|tomorrow|yesterday)\s*'\s*::",
    re.IGNORECASE,
)
INTERVAL = "pipelines.trigger.interval"
FORMS = "CREATE MATERIALIZED VIEW name AS SELECT ... or CREATE TEMPORARY VIEW name AS SELECT ..."
FUNCTIONS = {"range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"}
# Parts of a query that read something besides tables, or run something.
REFUSED = {
    "NamedStreamingRelation": "STREAM is not possible here: new rows are added where the statement allows it",
    "RelationTimeTravel": "an older version of a table cannot be read here",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER() is not possible here: write the name of the table",
    "ScriptTransformation": "TRANSFORM runs programs, which is not possible here",
}


@dataclass(frozen=True)
class Statement:
    """A statement of a file, or what is wrong there.

    Attributes:
        name: of its table, or temporary view; with `{name}` there is one for each routing value.
        query: its SELECT.
        reads: the tables and views that the query names, perhaps among others.
        is_view: whether it is a temporary view.
        refused: why it makes no table; "" = it does.
    """

    name: str
    file: str
    line: int
    query: str = ""
    reads: frozenset[str] = frozenset()
    is_view: bool = False
    comment: str = ""
    interval_s: float = 0.0
    refused: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def follower(self) -> str:
        """The name of the follower that computes its tables."""
        return f"sql.{self.name.replace(NAME, 'NAME')}"

    @property
    def is_of_each(self) -> bool:
        """Whether there is one table for each routing value."""
        return NAME in self.name

    def of(self, name: str) -> Statement:
        """The same for a routing name."""
        reads = frozenset(one.replace(NAME, name) for one in self.reads)
        return replace(self, name=self.name.replace(NAME, name), query=self.query.replace(NAME, name), reads=reads)


@dataclass(frozen=True)
class SqlFiles:
    """The statements of all files.

    Attributes:
        tables: those that make tables; one follows those that it reads.
        views: the temporary views.
        refused: the others.
    """

    tables: tuple[Statement, ...] = ()
    views: tuple[Statement, ...] = ()
    refused: tuple[Statement, ...] = ()

    def makes(self, table: str, names: Iterable[str]) -> bool:
        """Whether a statement makes this table, perhaps for one of the routing names."""
        return any(
            table == one.name or (one.is_of_each and table in (one.name.replace(NAME, name) for name in names))
            for one in self.tables
        )

    def views_of(self, name: str) -> dict[str, Statement]:
        """The temporary views by name; those with `{name}` of a routing name, or not at all if it is ""."""
        own = (view.of(name) if view.is_of_each else view for view in self.views if name or not view.is_of_each)
        return {view.name: view for view in own}


def read_files(session: SparkSession, settings: Settings) -> SqlFiles:
    """The statements of the files that the settings name."""
    found = [one for file in files_of(settings.tables.sql) for one in _statements(session, file, settings)]
    found = [replace(one, refused=one.refused or _problem_of_name(one, found, settings)) for one in found]
    good = {one.name: one for one in found if not one.refused}
    wrong = _cycles(good)
    left = good.keys() - wrong.keys()
    order = list(TopologicalSorter({name: good[name].reads & left for name in sorted(left)}).static_order())
    for name in order:  # one that reads another which is refused is refused, too
        first = min(good[name].reads & wrong.keys(), default=None)
        if first is not None:
            wrong[name] = f"it reads {first}, whose statement is refused ({good[first].where})"
    ordered = [good[name] for name in order if name not in wrong]
    return SqlFiles(
        tuple(one for one in ordered if not one.is_view),
        tuple(one for one in ordered if one.is_view),
        tuple(replace(one, refused=why) for one in found if (why := one.refused or wrong.get(one.name))),
    )


def _statements(session: SparkSession, file: str, settings: Settings) -> Iterator[Statement]:
    try:
        text = read(file)
    except (OSError, UnicodeDecodeError) as error:
        yield Statement("", file, 0, refused=str(error))
        return
    end = 0
    for piece in split_statements(session, text):
        begin, end = text.index(piece, end), text.index(piece, end) + len(piece)
        blank = BLANK.match(piece)
        start = blank.end() if blank else 0
        if start < len(piece):
            line = 1 + text.count("\n", 0, begin + start)
            yield _statement(session, file, line, piece[start:], settings)


def _statement(session: SparkSession, file: str, line: int, text: str, settings: Settings) -> Statement:
    plain = REFRESH.sub(lambda found: found[1] + " " * len(found[2]), text, count=1)
    try:
        plan = parse_plan(session, plain.replace(NAME, IN_PARSER))
    except (PySparkException, Py4JError) as error:
        why = last_message_line(error)
        place = PLACE.search(why)
        return Statement("", file, line + int(place[1]) - 1 if place else line, refused=PLACE.sub("", why).strip())
    kind = kind_of(plan)
    try:
        if kind == "CreateMaterializedViewAsSelect":
            return _table(plan, Statement("", file, line, interval_s=settings.tables.sql_interval_s))
        if kind == "CreateViewCommand" and plan.viewType().toString() == "LocalTempView":
            return _view(plan, Statement("", file, line, is_view=True))
        raise ValueError(f"{kind} is not possible here, only {FORMS}")
    except ValueError as error:
        return Statement("", file, line, refused=str(error).replace(IN_PARSER, NAME))


def _table(plan: Any, one: Statement) -> Statement:
    """
    Raises:
        ValueError: why the statement is refused.
    """
    spec = plan.tableSpec()
    if plan.columns().size() or plan.partitioning().size():
        raise ValueError("a list of columns, PARTITIONED BY and CLUSTER BY are not possible here: leave them out")
    if spec.location().isDefined() or (spec.provider().isDefined() and spec.provider().get().lower() != "delta"):
        raise ValueError("tables are Delta tables of the lake: leave out USING and LOCATION")
    properties = {key: spec.properties().apply(key) for key in each(spec.properties().keys().toList())}
    interval = properties.pop(INTERVAL, None)
    if properties:
        raise ValueError(f"the property {min(properties)} is unknown; {INTERVAL} is the only one")
    comment = spec.comment().get() if spec.comment().isDefined() else ""
    seconds = one.interval_s if interval is None else float(seconds_of(interval))
    if not seconds:
        raise ValueError(f"{INTERVAL} has to be longer than nothing")
    name = ".".join(each(plan.name().nameParts()))
    return replace(_query(plan.query(), plan.originalText(), name, one), comment=comment, interval_s=seconds)


def _view(plan: Any, one: Statement) -> Statement:
    if plan.userSpecifiedColumns().size():
        raise ValueError("a list of columns is not possible here: name the columns in the SELECT")
    name = plan.name().unquotedString()
    return _query(plan.plan(), plan.originalText().get(), name, one)


def _query(plan: Any, text: str, name: str, one: Statement) -> Statement:
    name = name.replace(IN_PARSER, NAME)
    if not TABLE_NAME.fullmatch(name.replace(NAME, "x")) or name.count(NAME) > 1:
        raise ValueError(f"{name} is no name for a table here: use letters a to z, digits and _, and {NAME} once")
    reads = frozenset(table.replace(IN_PARSER, NAME) for table in _read_by(plan))
    every = text.replace(IN_PARSER, NAME)
    if word := NOW.search(every):
        raise ValueError(f"{word[0]} depends on when the query runs, so no run could be repeated: leave it out")
    if NAME in every and NAME not in name:
        raise ValueError(f"the query has {NAME}, so the name of the table needs it, too")
    if NAME in name and NAME not in every:
        raise ValueError(f"the name of the table has {NAME}, so the query needs it, too")
    return replace(one, name=name, query=every, reads=reads)


def _read_by(plan: Any) -> Iterator[str]:
    """The tables that a parsed query names.

    Raises:
        ValueError: it reads something that is no table of the lake.
    """
    found = list(nodes(plan))
    withs = (node for node in found if kind_of(node) == "UnresolvedWith")
    own = {one._1().lower() for node in withs for one in each(node.cteRelations())}
    for node in found:
        kind = kind_of(node)
        if kind in REFUSED or "Script" in kind:
            raise ValueError(REFUSED.get(kind, REFUSED["ScriptTransformation"]))
        if kind == "UnresolvedTableValuedFunction":
            function = ".".join(each(node.name()))
            if function.lower() not in FUNCTIONS:
                raise ValueError(f"the table function {function} is not possible here")
        if kind == "UnresolvedRelation":
            parts = list(each(node.multipartIdentifier()))
            if len(parts) > 1:
                raise ValueError(f"{'.'.join(parts)}: only tables of the lake can be read, by their names alone")
            if parts[0].lower() not in own:
                yield parts[0].lower()


def nodes(plan: Any, inside: Callable[[Any], bool] = lambda node: True) -> Iterator[Any]:
    """The nodes of a plan, those of subqueries too.

    Args:
        inside: whether the nodes below a node are wanted.
    """
    left = [plan]
    while left:
        node = left.pop()
        yield node
        if inside(node):
            left += [*each(node.children()), *each(node.innerChildren())]


def _problem_of_name(one: Statement, found: Sequence[Statement], settings: Settings) -> str:
    """Why a statement cannot have its name; "" if it can."""
    layout, example = settings.layout, one.name.replace(NAME, "x")
    first = next(other for other in found if other.name == one.name)
    if first is not one:
        return f"{one.name} is the name of another statement, too ({first.where})"
    if example in {*settings.tables.fixed, *settings.reference} or layout.is_silver(example) or layout.is_gold(example):
        return f"{one.name} is, or could be, the name of another table of the lake: take another"
    if Views.is_reserved(example):
        return f"{one.name} is the name of a view that is always there: take another"
    others = {other.name for other in found} - {one.name, ""}
    if one.is_of_each and any(
        may_meet(one.name, other) if NAME in other else is_made_by(one.name, other) for other in others
    ):
        return f"{one.name} could make the table of another statement: take another name"
    return ""


def _cycles(found: Mapping[str, Statement]) -> dict[str, str]:
    """Name -> why, of the statements that read each other in a circle."""
    wrong = dict[str, str]()
    while True:
        left = found.keys() - wrong.keys()
        try:
            TopologicalSorter({name: found[name].reads & left for name in sorted(left)}).prepare()
            return wrong
        except CycleError as error:
            circle = [str(name) for name in reversed(error.args[1])]
            wrong |= dict.fromkeys(circle, f"it reads itself: {' reads '.join(circle)}")
