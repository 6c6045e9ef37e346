"""Checks the history of a lake by the expectations of the settings, table by table in streamed batches."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.storage import Storage
from spark_app.model.definitions import MAX_EXPECTATIONS, Expectation
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.model.record_schemas import LINEAGE_SCHEMA
from spark_app.model.text import near
from spark_app.recovery.backtest.history import History
from spark_app.recovery.backtest.kept_out import BronzeDecoder, Records
from spark_app.recovery.backtest.outcomes import COORDINATES, Outcomes, TableOutcome
from spark_app.recovery.backtest.scan import scan
from spark_app.settings.models import ExpectationSettings, Settings
from spark_app.sources.bronze import Partition
from spark_app.tables.definitions import expectations_of_table
from spark_app.tables.expectations.checks import columns_of, needed_columns
from spark_app.tables.expectations.in_force import (
    as_expectations,
    check_expectations_fit,
    rules_by_origin,
    with_column_names,
)
from spark_app.tables.expectations.proto_rules import VIOLATED, are_judged
from spark_app.tables.sql.engine import failures
from spark_app.units.worker.row_router import RowRouter

OPEN_TIMEOUT_S = 30.0
LANDED_AT = "_landed_at"
ROUNDED = datetime.timedelta(milliseconds=1)  # writers may cut the bounds of times in the log to milliseconds
FOREVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)
LATEST = 253_402_300_799.0  # seconds since 1970: the last second of the year 9999
# Columns of a row's schema; one of them is NULL.
SCHEMA = (pa.field("_schema_id", pa.int64()), pa.field("_schema_guid", pa.string()))


def backtest(settings: Settings, names: Sequence[str] = (), since: float | None = None) -> Outcomes:
    """Count by table and expectation how many rows of history pass and fail. Every row is checked, whatever
    expectations it met when it came. The lake stays as it is.

    Args:
        names: the expectations; empty = all expectations of the settings, and those in the .proto if the settings want
            them.
        since: only rows that landed then or later, in seconds since 1970.

    Raises:
        UsageError: there is no expectation of such a name.
        ConfigurationError: there is no lake or no expectation, or an expectation does not fit the columns of its
            tables.
        UnreachableError: files were removed during the command, or replays moved records all the time.
        ContractError: a table or state file of the lake is damaged.
    """
    if not settings.expectations and settings.schemas.proto_rules == "off":
        raise ConfigurationError("expectations: the settings have none; write [expectations.NAME] with a check")
    if settings.schemas.proto_rules == "off":
        _refuse_unknown(names, settings.expectations)
    history = History.of(settings, OPEN_TIMEOUT_S)
    by_table = {name: TableExpectations.of(history, name, settings.expectations) for name in history.names}
    of_schemas = {name for expectations in by_table.values() for name in expectations.every}
    _refuse_unknown(names, {*settings.expectations, *of_schemas})
    wanted = {name: expectation for name, expectation in settings.expectations.items() if not names or name in names}
    check_expectations_fit(wanted, history.catalog, history.routing, settings.wrapper.names)
    expectations = {name: found.only(names) for name, found in by_table.items()}
    idle = sorted(wanted.keys() - {name for found in expectations.values() for name in found.every})
    return _Backtester(history, expectations, idle, None if since is None else _moment(since)).run()


def _moment(since: float) -> datetime.datetime:
    """The time in UTC; one before 1970 is 1970, when no record had landed."""
    return datetime.datetime.fromtimestamp(min(max(since, 0.0), LATEST), datetime.UTC)


def _refuse_unknown(names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"the settings have no expectation {name}; {near(name, known)}")


class _Backtester:
    def __init__(
        self,
        history: History,
        expectations: Mapping[str, TableExpectations],
        idle: Sequence[str],
        since: datetime.datetime | None,
    ):
        """`expectations`: routing name -> the expectations of the table. `idle`: the expectations that apply to no
        table."""
        self._history = history
        self._since = since
        self._expectations = {name: found for name, found in expectations.items() if found.every or found.unclear}
        self._outcomes = {name: TableOutcome.of(found.every) for name, found in self._expectations.items()}
        router = RowRouter(history.plan(history.lake.storage, 0), history.catalog)
        self._columns = {name: self._needed(name, router) for name in self._expectations}
        for name, outcome in self._outcomes.items():
            outcome.changed = self._changed(name)
            if self._is_decoded(name):
                self._columns[name] = self._needed(name, router, as_sent=True)
        self._idle = idle

    def run(self) -> Outcomes:
        layout, records = self._history.settings.layout, Records(self._history, self._since)
        undecodable: Counter[str] = Counter()
        for name, outcome in self._outcomes.items():
            if self._is_decoded(name):
                found = records.in_silver(layout.silver_of(name))
                outcome.silver += self._check_decoded(found, undecodable)[name]
            else:
                outcome.silver += self._check(name, self._history.lake.storage, self._silver_files(name))
        for name, count in self._check_decoded(records.kept_out(), undecodable).items():
            self._outcomes[name].bronze += count
        by_table = {layout.silver_of(name): outcome for name, outcome in self._outcomes.items()}
        return Outcomes(self._since, by_table, undecodable, self._idle)

    def _check_decoded(self, found: Mapping[Partition, np.ndarray], undecodable: Counter[str]) -> Counter[str]:
        """Decode records from bronze, and check their rows; routing name -> rows."""
        decoder, checked = BronzeDecoder(self._history, found, self._since), Counter[str]()
        for decoded in decoder.decode():
            if decoded.name in self._outcomes:
                checked[decoded.name] += self._check(decoded.name, decoded.storage, [decoded.key])
        undecodable.update(decoder.undecodable)
        return checked

    def _is_decoded(self, name: str) -> bool:
        """Whether the rows of silver are decoded from bronze: they are not as they were sent, or rules in the .proto
        need their messages."""
        return bool(self._outcomes[name].changed) or are_judged(one.check for one in self._expectations[name].checks)

    def _changed(self, name: str) -> list[str]:
        """The columns, casefolded, that expectations of the table name, and that rows in silver do not have as they
        were sent."""
        named = {
            column.casefold() for one in self._expectations[name].checks for column in columns_of(one.name, one.check)
        }
        touched = {number: one.names & named for number, one in self._history.projections.items()}
        tables, table = self._history.tables, self._history.settings.layout.silver_of(name)
        schema, found = tables.columns(table), set[str]()
        if not any(touched.values()) or schema is None or "_definition" not in schema.names:
            return []
        for batch in scan(tables.storage, tables.files(table), schema, ["_definition"]):
            for number in batch.column(0).unique().to_pylist():
                found |= touched.get(number, frozenset())
        return sorted(found)

    def _needed(self, name: str, router: RowRouter, as_sent: bool = False) -> pa.Schema:
        """The columns to read: those that the expectations of the table name, the coordinates, and the time of landing.
        `as_sent`: in the types of the messages, not of silver."""
        history = self._history
        written = None if as_sent else history.tables.columns(history.settings.layout.silver_of(name))
        own = written or pa.schema([])
        types = pa.schema([*router.types(history.columns(name)), VIOLATED])
        named = needed_columns(self._expectations[name].checks, own, types)
        about = [LINEAGE_SCHEMA.field(column) for column in (*COORDINATES, LANDED_AT)]
        about += SCHEMA if self._expectations[name].by_schema or self._expectations[name].unclear else []
        return pa.schema([*named, *(field for field in about if field.name not in named.names)])

    def _silver_files(self, name: str) -> list[str]:
        tables, table = self._history.tables, self._history.settings.layout.silver_of(name)
        if self._since is None:
            return sorted(tables.files(table))
        return sorted(tables.files_between(table, LANDED_AT, self._since - ROUNDED, FOREVER))

    def _check(self, name: str, storage: Storage, keys: Sequence[str]) -> int:
        """Check the rows of files of a table; returns their number."""
        table, columns, outcome, count = self._expectations[name], self._columns[name], self._outcomes[name], 0
        since = None if self._since is None else pc.field(LANDED_AT) >= pa.scalar(self._since)
        for batch in scan(storage, keys, columns, columns.names, since):
            for expectations, rows, unclear in table.split(batch):
                masks = failures(pa.Table.from_batches([rows]), [expectation.check for expectation in expectations])
                outcome.count(expectations, masks, rows)
                outcome.unclear += unclear
            count += batch.num_rows
        return count


@dataclass(frozen=True)
class TableExpectations:
    """
    Attributes:
        usual: of the settings.
        by_schema: key of a schema as text -> the expectations of its rows, where the schema has some.
        unclear: keys of schemas with several messages whose expectations differ; a row does not say which of them it
            is.
    """

    usual: tuple[Expectation, ...]
    by_schema: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict)
    unclear: frozenset[str] = frozenset()

    @staticmethod
    def of(history: History, name: str, expectations: Mapping[str, ExpectationSettings]) -> TableExpectations:
        """The expectations of a table, by its routing name."""
        wrapper, action = history.settings.wrapper.names, history.settings.schemas.proto_rules
        usual = expectations_of_table(expectations, name)
        usual = with_column_names(usual, name, history.catalog, history.routing, wrapper)
        if action == "off":
            return TableExpectations(usual)
        found: dict[str, set[tuple[Expectation, ...]]] = defaultdict(set)
        room = MAX_EXPECTATIONS - len(usual)
        for (key, _), rules in rules_by_origin(name, history.catalog, history.routing, room):
            found[str(key)].add((*usual, *as_expectations(rules, action)))
        clear = {key: next(iter(expectations)) for key, expectations in found.items() if len(expectations) == 1}
        return TableExpectations(usual, clear, frozenset(found.keys() - clear.keys()))

    def only(self, names: Collection[str]) -> TableExpectations:
        """The expectations with these names; all if there are no names."""
        if not names:
            return self
        by_schema = {
            key: tuple(r for r in expectations if r.name in names) for key, expectations in self.by_schema.items()
        }
        return TableExpectations(tuple(one for one in self.usual if one.name in names), by_schema, self.unclear)

    @property
    def every(self) -> dict[str, Expectation]:
        """Name -> an expectation of this name."""
        return {one.name: one for expectations in (self.usual, *self.by_schema.values()) for one in expectations}

    @property
    def checks(self) -> list[Expectation]:
        return list(
            dict.fromkeys(one for expectations in (self.usual, *self.by_schema.values()) for one in expectations)
        )

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[Expectation, ...], pa.RecordBatch, int]]:
        """(expectations, the rows that they apply to, how many of these also have expectations that are unclear)."""
        if not self.by_schema and not self.unclear:
            yield self.usual, rows, 0
            return
        keys = pc.coalesce(*(rows.column(one.name).cast(pa.string()) for one in SCHEMA))
        encoded = pc.dictionary_encode(keys)
        for code, key in enumerate(encoded.dictionary.to_pylist()):
            own = rows.take(pa.array(np.flatnonzero(encoded.indices.to_numpy() == code)))
            yield self.by_schema.get(key, self.usual), own, own.num_rows if key in self.unclear else 0
