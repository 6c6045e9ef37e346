"""The spec of a kind of gold tables: what groups the rows of silver, and one column per aggregate of a group's rows.

If all functions can merge, new rows are merged incrementally; with any other function the changed groups are recomputed
from all their rows. A silver table without a field of the key, or without the time of the windows, has no gold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from spark_app.followers.gold.aggregates import with_source
from spark_app.followers.gold.input_rows import (
    CONDITION,
    RECORD_TIMES,
    SECOND,
    WATERMARK,
    WINDOW_END,
    WINDOW_START,
    InputRows,
)
from spark_app.model.columns import Aliases, Comments, Path
from spark_app.model.gold_functions import GOLD_FUNCTIONS, STATE, Merge
from spark_app.model.record_schemas import TIMESTAMP
from spark_app.model.table_names import GOLD, gold_follower
from spark_app.model.text import near
from spark_app.settings.gold import Aggregate, Window
from spark_app.settings.models import Settings
from spark_app.tables.expectations.checks import LINEAGE, binding_problem, columns_in_expression
from spark_app.tables.sql.names import columns_in, write_columns

WHERE = b"protolake.where"  # metadata of the fields: the condition with the names of the table's columns
OF_WINDOWS = Aggregate(function="max", field=WATERMARK)


@dataclass(frozen=True)
class GoldSpec:
    """The spec of a kind of gold tables, one for each silver table, from the settings.

    Attributes:
        key: the fields that group the rows; without any all rows are one group.
        time: the field of an aggregate that names none, and of the windows.
        aggregates: gold column -> its function and field.
        kind: its name in the settings.
        interval_s: seconds between runs.
        where: SQL that is true for the rows that count; "" = all.
        window: a part of the key; None = none.
        comment: of the tables; "" = a usual one.
    """

    key: tuple[str, ...]
    time: str
    aggregates: dict[str, Aggregate]
    kind: str = GOLD
    interval_s: float = 5.0
    where: str = ""
    window: Window | None = None
    comment: str = ""

    @staticmethod
    def all_of(settings: Settings) -> tuple[GoldSpec, ...]:
        """Those of the settings, that of [gold] first.

        Raises:
            ConfigurationError: a condition is no pure expression over the columns of a row.
        """
        event, gold = settings.event, settings.gold
        found = [GoldSpec((event.key,), event.time, gold.columns, interval_s=gold.interval_s)]
        for name, own in gold.tables.items():
            interval_s = own.interval_s or gold.interval_s
            more = (name, interval_s, own.where, own.window, own.comment)
            found.append(GoldSpec(own.keys(event.key), event.time, own.aggregates, *more))
        for spec in found:
            if spec.where:
                columns_in_expression(f"gold.tables.{spec.kind}.where", spec.where)
        return tuple(found)

    @property
    def follower(self) -> str:
        """The name of the follower that computes the tables."""
        return gold_follower(self.kind)

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that no two rows of a gold table have alike."""
        return (*self.key, WINDOW_START, WINDOW_END) if self.window else self.key

    @property
    def gap_s(self) -> int:
        """Of sessions; 0 if the windows are none."""
        return self.window.durations[2] if self.window else 0

    @property
    def columns(self) -> dict[str, Aggregate]:
        """Computed column -> its function and field: those of the settings, of the approximate ones their sketches, and
        the watermark."""
        own = {STATE + name if one.approximate else name: one for name, one in self.aggregates.items()}
        return own | ({WATERMARK: OF_WINDOWS} if self.window else {})

    @property
    def touched(self) -> tuple[str, ...]:
        """The columns of the group that say which rows of gold new rows change."""
        return self.key if self.gap_s else self.group

    @property
    def all_columns(self) -> list[str]:
        """The columns of a gold table, in their order."""
        return [*self.group, *self.aggregates, *(name for name in self.columns if name not in self.aggregates)]

    @property
    def sketched(self) -> dict[str, Aggregate]:
        """The approximate columns."""
        return {name: one for name, one in self.aggregates.items() if one.approximate}

    @property
    def is_incremental(self) -> bool:
        """Whether a group's new row can be computed from its old row and an aggregate of its new silver rows."""
        return not self.gap_s and all(aggregate.folds for aggregate in self.aggregates.values())

    def merge_of(self, column: str) -> Merge | None:
        """How the column's old and new value are merged; None = the new value replaces the old one. That of a sketch is
        merged already, by the job that makes it."""
        aggregate = self.columns.get(column)
        is_exact = aggregate is not None and not aggregate.approximate
        return GOLD_FUNCTIONS[aggregate.function].merge if aggregate and is_exact and self.is_incremental else None

    def field_of(self, aggregate: Aggregate) -> str:
        """The field of the aggregate; "" = it counts all rows."""
        return aggregate.field or ("" if GOLD_FUNCTIONS[aggregate.function].counts_rows else self.time)

    @property
    def names(self) -> list[str]:
        """The fields that the settings name."""
        return sorted({*self.needed, *map(self.field_of, self.aggregates.values())} - {""})

    @property
    def needed(self) -> frozenset[str]:
        """The fields without which a silver table has no gold."""
        return frozenset({*self.key, *((self.time,) if self.window else ())})

    def column_of(self, field: str) -> str | None:
        """The column whose value names the rows that are made of a value of the field, for who erases these; None = any
        row may be made of it, and the table is computed anew."""
        return next((name for name in self.key if name.casefold() == field.casefold()), None)

    def setting_of(self, field: str) -> str:
        """The settings that name a field, and the name."""
        section = "gold" if self.kind == GOLD else f"gold.tables.{self.kind}"
        columns = [f"{section}.aggregates.{name}" for name, one in self.aggregates.items() if one.field == field]
        of_key = "event.key" if self.kind == GOLD else f"{section}.key"
        names = [of_key] * (field in self.key) + ["event.time"] * (field == self.time) + columns
        return f"{', '.join(names)} = {field}"

    def fields(
        self, find: Callable[[str], tuple[Path, pa.Field | None]], columns: pa.Schema, aliases: Aliases
    ) -> tuple[pa.Schema | None, dict[str, str]]:
        """(what gold reads of a silver table, by the names of the settings; setting -> why it does not fit the table).
        None if the table has no gold. An aggregated field that is missing has the type text.

        Args:
            find: gives what a name of the settings means in the table.
            columns: those of the table, with their other names.
        """
        found = {name: find(name) for name in self.names}
        lacking = {
            self.setting_of(name): "there is no such field, so there is "
            f"{'no gold' if name in self.needed else 'NULL in gold'}; {near(name, columns.names)}"
            for name, (_, field) in found.items()
            if field is None
        }
        if any(found[name][1] is None for name in self.needed):
            return None, lacking
        time = found[self.time][1] if self.window else None
        if time is not None and time.type != TIMESTAMP:
            text = f"is {time.type}, and windows need a timestamp, so there is no gold"
            return None, lacking | {self.setting_of(self.time): text}
        fields = [
            (name, pa.string()) if field is None else with_source(field, path, name)
            for name, (path, field) in found.items()
        ]
        if time is not None:
            fields += [with_source(pa.field(name, TIMESTAMP), (own,), name) for name, own in RECORD_TIMES.items()]
        if not self.where:
            return pa.schema(fields), lacking
        text = write_columns(self.where, columns, aliases)
        if problem := binding_problem(text, columns):
            return None, lacking | {f"gold.tables.{self.kind}.where": f"{problem}, so there is no gold"}
        known = {field.name.casefold(): field for field in (*LINEAGE, *columns)}
        # A table has at least one column.
        named = sorted({name.casefold() for name in columns_in(text)} or {"_offset"})
        own = [known[name] for name in named]
        fields += [with_source(field, (field.name,), CONDITION + field.name) for field in own]
        return pa.schema(fields, {WHERE: text}), lacking

    def input_rows(self, fields: pa.Schema) -> InputRows:
        """What becomes of the rows of a table with these `fields`."""
        where = (fields.metadata or {}).get(WHERE, b"").decode()
        if self.window is None:
            return InputRows(where)
        return InputRows(where, self.time, *(seconds * SECOND for seconds in self.window.durations))

    def comments(self) -> Comments:
        """The comments of a new gold table."""
        per = f"One row per {', '.join(self.key)}" if self.key else "One row"
        usual = f"{per}{' and window' * bool(self.window)}, aggregated from silver"
        own: dict[Path, str] = {(): self.comment or usual, **{(name,): "Groups the rows" for name in self.key}}
        if self.window:
            own[WINDOW_START,], own[WINDOW_END,] = f"Begin of the window of {self.time}", "End of the window, exclusive"
        for name, aggregate in self.aggregates.items():
            field = self.field_of(aggregate)
            text = GOLD_FUNCTIONS[aggregate.function].comment.format(field, q=aggregate.q)
            own[name,] = (f"About: {text}" if aggregate.approximate else text) if field else "Number of rows"
            if aggregate.approximate:
                own[STATE + name,] = f"Sketch of {field}, from which {name} is read; sketches can be merged"
        if self.window:
            late = f"at most {self.window.late} ahead of the record's time"
            own[WATERMARK,] = f"Largest {self.time} that is {late}: how far the rows of this one have come"
        return Comments(own=own)

    def digest(self, fields: pa.Schema) -> str:
        """SHA-256 of the settings, the field types and the columns whose names differ from the fields': a field that is
        missing now may get another type later."""
        declared = {name: aggregate.model_dump(exclude_defaults=True) for name, aggregate in self.aggregates.items()}
        for one in declared.values():
            one.setdefault("field", "")  # as it always was
        key = self.key[0] if self.kind == GOLD else [*self.key, self.where, self.window and self.window.model_dump()]
        return hashlib.sha256(
            json.dumps([key, self.time, declared, str(fields.remove_metadata())]).encode()
        ).hexdigest()
