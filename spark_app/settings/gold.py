"""The settings of the gold tables: the one of [gold] itself, and those that have a name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, StringConstraints, model_validator

from spark_app.model.gold_functions import GOLD_FUNCTIONS, STATE, WINDOW_COLUMNS
from spark_app.model.table_names import GOLD
from spark_app.settings.connections import Section
from spark_app.settings.silver import folded

if TYPE_CHECKING:
    FunctionName = str
else:
    FunctionName = Literal[tuple(GOLD_FUNCTIONS)]

# The pattern begins with a letter, so that no routing value can turn it into the name of another table.
PATTERN = r"^[a-z][a-z0-9_]*\{name\}[a-z0-9_]*$"
GoldName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
DURATION = re.compile(r"(\d{1,9}) ?(?:(s|seconds?)|(min|minutes?)|(h|hours?)|(d|days?))")
UNITS = (1, 60, 3600, 86_400)  # seconds
MOST_SLIDES = 1000  # windows that one row is in


def seconds_of(duration: str) -> int:
    """The seconds of a text such as "15 minutes" or "1 h".

    Raises:
        ValueError: it is none.
    """
    found = DURATION.fullmatch(duration.strip().lower())
    if found is None:
        raise ValueError(f"{duration!r} is no duration: write a number and a unit, such as 15 minutes or 1 hour")
    number, *units = found.groups()
    return int(number) * next(seconds for unit, seconds in zip(units, UNITS, strict=True) if unit)


def _is_duration(text: str) -> str:
    seconds_of(text)
    return text


Duration = Annotated[str, AfterValidator(_is_duration)]


class Aggregate(Section):
    """One column of a gold table: a function, and the field that it aggregates."""

    function: FunctionName
    field: str = Field("", description="field of the message; empty = event.time, and all rows for count")
    q: float | None = Field(None, ge=0, le=1, description="of quantile: the part of the values below, such as 0.95")
    approximate: bool = Field(
        False, description="about the value of distinct, median or quantile, by a sketch to which new rows are added"
    )

    @model_validator(mode="after")
    def _suits_its_function(self) -> Aggregate:
        function = GOLD_FUNCTIONS[self.function]
        if function.accepts == "numbers" and not self.field:
            raise ValueError(f"{self.function} needs the field whose values it aggregates")
        if function.has_q != (self.q is not None):
            raise ValueError(f"{self.function} needs q" if function.has_q else f"{self.function} has no q")
        if self.approximate and function.sketch is None:
            able = sorted(name for name, one in GOLD_FUNCTIONS.items() if one.sketch)
            raise ValueError(f"{self.function} is always exact; approximate is for {', '.join(able)}")
        return self

    @property
    def folds(self) -> bool:
        """Whether an old and a new value give that of all rows, or an old and a new sketch."""
        return self.approximate or GOLD_FUNCTIONS[self.function].merge is not None


DEMO_AGGREGATES = {
    "session_count": Aggregate(function="count"),
    "min_timestamp": Aggregate(function="min"),
    "max_timestamp": Aggregate(function="max"),
}


class Window(Section):
    """Windows of event.time that the rows of a gold table belong to: of a length, or as long as rows follow rows."""

    size: Duration | None = Field(None, description="length of a window, such as 1 hour")
    slide: Duration | None = Field(None, description="time between the beginnings of two windows; without it size")
    gap: Duration | None = Field(None, description="of sessions, instead of size: the time without rows that ends one")
    late: Duration = Field("10 minutes", description="how much later than others a row comes at most, see docs/gold.md")

    @property
    def durations(self) -> tuple[int, int, int, int]:
        """Size, slide, gap and late in seconds; 0 = none."""
        given = (self.size, self.slide or self.size, self.gap, self.late)
        size, slide, gap, late = (seconds_of(text) if text else 0 for text in given)
        return size, slide, gap, late

    @model_validator(mode="after")
    def _is_possible(self) -> Window:
        size, slide, gap, _ = self.durations
        if (self.size is None) == (self.gap is None) or (self.gap and self.slide):
            raise ValueError("a window has a size and perhaps a slide; one of a session has a gap instead")
        if self.gap:
            if not gap:
                raise ValueError("gap has to be longer than nothing")
            return self
        if not 0 < slide <= size:
            raise ValueError("size and slide have to be longer than nothing, and slide no longer than size")
        if size > slide * MOST_SLIDES:
            raise ValueError(f"a row is in {size // slide:,} windows, at most {MOST_SLIDES:,} are possible")
        return self


class GoldTable(Section):
    """A gold table for each silver table, besides that of [gold]."""

    aggregates: dict[str, Aggregate] = Field(min_length=1, description="gold column -> {function, field}")
    key: str | tuple[str, ...] | None = Field(
        None, description="field, or fields, that group the rows; [] = one row for all; without it event.key"
    )
    where: str = Field("", description="SQL expression that is true for the rows that count, such as bet > 0")
    window: Window | None = Field(None, description="{size, slide, late}: windows of event.time as a part of the key")
    table: str = Field("", description="pattern of the names of the tables; empty = gold_{name}_ and the own name")
    interval_s: PositiveFloat | None = Field(None, description="seconds between runs; without it gold.interval_s")
    comment: str = Field("", description="comment of the tables")

    @model_validator(mode="after")
    def _names_each_column_once(self) -> GoldTable:
        states = [STATE + name for name, one in self.aggregates.items() if one.approximate]
        names = [*self.keys(""), *self.aggregates, *states, *(WINDOW_COLUMNS if self.window else ())]
        twice = sorted(name for name in folded(names) if sum(name == one.casefold() for one in names) > 1)
        if twice:
            raise ValueError(f"{twice[0]} is there twice; case does not count in the names of columns")
        return self

    def keys(self, usual: str) -> tuple[str, ...]:
        """The fields that group the rows; `usual` is that of the settings."""
        if isinstance(self.key, str | None):
            return (self.key or usual,)
        return self.key


class Gold(Section):
    """This section sets the columns of the gold tables, and how often they are computed."""

    interval_s: PositiveFloat = Field(5.0, description="seconds between runs")
    aggregates: dict[str, Aggregate] = Field(
        {},
        description="gold column -> {function, field}; empty = session_count, min_timestamp, max_timestamp of the demo",
    )
    tables: dict[GoldName, GoldTable] = Field(
        {}, description="name -> {key, where, window, aggregates, ...} of further gold tables, see docs/gold.md"
    )

    @property
    def columns(self) -> dict[str, Aggregate]:
        """The configured aggregates, or those of the demo if there are none."""
        return self.aggregates or DEMO_AGGREGATES

    @model_validator(mode="after")
    def _name_each_table_once(self) -> Gold:
        if GOLD in self.tables:
            raise ValueError(f"tables.{GOLD}: that name has the table of [gold] itself; take another")
        for name, own in self.tables.items():
            if own.table and not re.fullmatch(PATTERN, own.table):
                raise ValueError(f"tables.{name}.table: {own.table} is no pattern such as gold_{{name}}_{name}")
        return self

    def patterns(self, usual: str) -> dict[str, str]:
        """Name -> pattern of the names of its tables, that of [gold] first; `usual` is its pattern."""
        return {GOLD: usual} | {name: own.table or f"gold_{{name}}_{name}" for name, own in self.tables.items()}


def meeting(patterns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names of two patterns that may both be those of one table."""
    return (names for names in itertools.combinations(patterns, 2) if may_meet(*(patterns[name] for name in names)))


def may_meet(one: str, other: str) -> bool:
    """Whether a table may have a name of both patterns."""
    (before, after), (first, last) = one.split("{name}"), other.split("{name}")
    return (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))
