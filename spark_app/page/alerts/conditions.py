"""The conditions of `when`: SQL expressions over one row of measures, all judged by one child process.

Before they were SQL, conditions had a language of their own, and each of its texts still means what it meant. Two of
its forms are written otherwise in SQL: `rows('uno')` becomes the name of a column, and a sign before a minus, as in
`--1`, gets a space behind it. The rest of the difference is in `sql_child`: numbers are doubles, and a division by
zero is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.model.log import log
from spark_app.model.text import near, quoted
from spark_app.page.queries.child_process import LastingChild

LONGEST = 2000
WITHIN_S = 10.0  # for all conditions of a round
READ_WITHIN_S = 60.0
Value = float | str | bool | None
Kind = Literal["number", "text"]
TYPES: Mapping[Kind, str] = {"number": "DOUBLE", "text": "VARCHAR"}
Use = tuple[str, str]  # (measure, argument or "")


@dataclass(frozen=True)
class Measures:
    """The names that a condition may use.

    Attributes:
        kinds: measure without an argument -> its kind.
        of: measure with an argument, a number -> what the argument names, such as "table".
        known: what an argument names -> the names there are; None if nobody knows them yet.
    """

    kinds: Mapping[str, Kind]
    of: Mapping[str, str]
    known: Mapping[str, Collection[str] | None]


class Conditions:
    """The conditions of the alert rules that have one.

    Attributes:
        uses: alert rule -> the measures that its condition names, in the order of their columns.
    """

    def __init__(self, conditions: Mapping[str, str], measures: Measures):
        """
        Args:
            conditions: alert rule -> `when`.

        Raises:
            ConfigurationError: one is no pure expression over the measures that gives true or false.
            UnreachableError: the child process does not respond.
        """
        columns: dict[str, Use] = {name: (name, "") for name in measures.kinds}
        sql = {rule: _in_sql(f"alerts.rules.{rule}.when", text, measures, columns) for rule, text in conditions.items()}
        types = {column: TYPES[measures.kinds.get(name, "number")] for column, (name, _) in columns.items()}
        self._child = LastingChild("spark_app.page.alerts.sql_child")
        self._failed = False
        response: dict[str, Any] = {"conditions": sql, "columns": {}}
        if sql:
            response = self._child.request(
                {"conditions": sql, "types": types, "measures": [*types, *measures.of]}, READ_WITHIN_S
            )
        if "refused" in response:
            raise ConfigurationError(response["refused"])
        if "failed" in response:
            raise UnreachableError(f"the conditions of alerts could not be read: {response['failed']}")
        self._sql = response["conditions"]
        named = {column for found in response["columns"].values() for column in found}
        self._columns = {column: use for column, use in columns.items() if column in named}
        self._types = {column: types[column] for column in self._columns}
        self.uses = {
            rule: [use for column, use in columns.items() if column in found]
            for rule, found in response["columns"].items()
        }

    def judge(self, lookup: Callable[[str, str], Value]) -> dict[str, bool | None]:
        """Alert rule -> whether its condition holds; None if nobody knows, as after a failure."""
        if not self._sql:
            return {}
        values = {column: lookup(*use) for column, use in self._columns.items()}
        response = self._child.request({"conditions": self._sql, "types": self._types, "values": values}, WITHIN_S)
        if "failed" in response and not self._failed:
            log.warning("the conditions of alerts could not be judged", reason=str(response["failed"]))
        self._failed = "failed" in response
        return {rule: response["holds"][rule] if "holds" in response else None for rule in self._sql}


def _in_sql(setting: str, text: str, measures: Measures, columns: dict[str, Use]) -> str:
    """The condition with the name of a column for each measure with an argument. New columns are added to `columns`.

    Raises:
        ConfigurationError: there is no such measure.
    """
    text_literal = r"'(?:[^']|'')*'"
    token = re.compile(
        rf'{text_literal}|"[^"]*"|(?<=[-+*/=<>!])-|\b({"|".join(measures.of)})\b(?:\s*\(\s*({text_literal})\s*\))?',
        re.IGNORECASE | re.ASCII,
    )

    def written(found: re.Match[str]) -> str:
        if found.group() == "-":
            return " -"
        if not found[1]:
            return found.group()
        measure, names = found[1].lower(), measures.of[found[1].lower()]
        if not found[2]:
            raise ConfigurationError(f"{setting}: {measure} needs the name of its {names}: {measure}('...')")
        argument, known = found[2][1:-1].replace("''", "'"), measures.known[names]
        if known is not None and argument not in known:
            raise ConfigurationError(f"{setting}: there is no {names} {argument}; {near(argument, known)}")
        # Not by the argument: case counts in it, and does not in the name of a column.
        column = next((one for one, use in columns.items() if use == (measure, argument)), f"{measure} {len(columns)}")
        columns[column] = measure, argument
        return quoted(column)

    if len(text) > LONGEST:
        raise ConfigurationError(f"{setting}: is longer than {LONGEST} characters")
    return token.sub(written, text)
