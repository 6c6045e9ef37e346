"""Numbers the definitions of silver rows, and keeps each for ever: `audit` and `rebuild` check a row by its own.

_protolake/definitions.json    {"1": {"rules": [{"name": ..., "check": ..., "action": ...}]}, ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spark_app.model.definitions import Definition, Definitions, Rule
from spark_app.settings.models import Expectation
from spark_app.storage.lake import Lake
from spark_app.storage.state_files import read_durable, write_durably


def record(lake: Lake, expectations: Mapping[str, Expectation]) -> Definitions:
    """The definitions that the settings make. New ones get the next numbers, and are durable before a row has them.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    stored: dict[str, Any] = read_durable(lake.storage, lake.definitions) or {}
    known = len(stored)
    named = sorted({name for one in expectations.values() for name in one.tables})
    usual = _number(rules_of_table(expectations, None), stored)
    own = {name: _number(rules_of_table(expectations, name), stored) for name in named}
    if len(stored) > known:
        _write(lake, stored)
    return Definitions(usual, {name: one for name, one in own.items() if one is not None})


def number(lake: Lake, several: Iterable[tuple[Rule, ...]]) -> list[Definition]:
    """The definitions with these rules, which are durable.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    stored: dict[str, Any] = read_durable(lake.storage, lake.definitions) or {}
    known = len(stored)
    found = [definition for rules in several if (definition := _number(rules, stored)) is not None]
    if len(stored) > known:
        _write(lake, stored)
    return found


def _write(lake: Lake, stored: dict[str, Any]) -> None:
    write_durably(lake.storage, lake.definitions, json.dumps(stored, indent=1), "definitions")


def rules_of_table(expectations: Mapping[str, Expectation], table: str | None) -> tuple[Rule, ...]:
    """The rules of a table, in the order of their names; None = of the tables that no rule names."""
    return tuple(
        Rule(name, one.check, one.action)
        for name, one in sorted(expectations.items())
        if not one.tables or table in one.tables
    )


def _number(rules: tuple[Rule, ...], stored: dict[str, Any]) -> Definition | None:
    """The definition with these rules, which is added to `stored` if it is new; None without rules."""
    if not rules:
        return None
    content = {"rules": [vars(rule) for rule in rules]}
    number = next((number for number, old in stored.items() if old == content), str(len(stored) + 1))
    stored.setdefault(number, content)
    return Definition(int(number), rules)
