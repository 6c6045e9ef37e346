"""Numbers the definitions of silver rows, and keeps each for ever: `audit` and `rebuild` check a row by its own.

_protolake/definitions.json    {"1": {"rules": [{"name": ..., "check": ..., "action": ...}]}, ...}

An entry with a projection also has "columns" {name: expression}, "drop" [name, ...] and "hmac_key", the fingerprint of
the key, each if there are any. One with reference tables has only "references" {name: {"on", "columns", "content"}} and
"as", the number of the entry with all else: a reference table may have many versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.definitions import AS_SENT, Definition, Definitions, Expectation, Projection
from spark_app.settings.models import ExpectationSettings


def record(lake: Lake, expectations: Mapping[str, ExpectationSettings]) -> Definitions:
    """The definitions that the settings make. New ones get the next numbers, and are durable before a row has them.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    stored: dict[str, Any] = read_durable(lake.storage, lake.definitions) or {}
    known = len(stored)
    named = sorted({name for one in expectations.values() for name in one.tables})
    usual = _number(expectations_of_table(expectations, None), stored)
    own = {name: _number(expectations_of_table(expectations, name), stored) for name in named}
    if len(stored) > known:
        _write(lake, stored)
    return Definitions(usual, {name: one for name, one in own.items() if one is not None})


def number(lake: Lake, expectations: tuple[Expectation, ...], projection: Projection = AS_SENT) -> Definition:
    """The definition with these expectations and this projection, which is durable; it has at least one of both.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    [found] = number_all(lake, [(expectations, projection)])
    return found


def number_all(lake: Lake, several: Iterable[tuple[tuple[Expectation, ...], Projection]]) -> list[Definition]:
    """As `number`, in one write.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    stored: dict[str, Any] = read_durable(lake.storage, lake.definitions) or {}
    known = len(stored)
    found = []
    for expectations, projection in several:
        definition = _number(expectations, stored, projection)
        assert definition is not None
        found.append(definition)
    if len(stored) > known:
        _write(lake, stored)
    return found


def _write(lake: Lake, stored: dict[str, Any]) -> None:
    write_durably(lake.storage, lake.definitions, json.dumps(stored, indent=1), "definitions")


def expectations_of_table(
    expectations: Mapping[str, ExpectationSettings], table: str | None
) -> tuple[Expectation, ...]:
    """The expectations of a table, in the order of their names; None = of the tables that no expectation names."""
    return tuple(
        Expectation(name, one.check, one.action)
        for name, one in sorted(expectations.items())
        if not one.tables or table in one.tables
    )


def projections_of(lake: Lake) -> dict[int, Projection]:
    """Number -> projection, of all definitions that ever had one.

    Raises:
        ContractError: the file of definitions is damaged.
    """
    stored: dict[str, Any] = read_durable(lake.storage, lake.definitions) or {}
    found = {int(number): Projection.from_json(_whole(content, stored)) for number, content in stored.items()}
    return {number: projection for number, projection in found.items() if projection}


def _whole(content: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """The content of an entry with that of the entry which it names."""
    return {**stored.get(str(content.get("as")), {}), **content}


def _number(
    expectations: tuple[Expectation, ...], stored: dict[str, Any], projection: Projection = AS_SENT
) -> Definition | None:
    """The definition with these expectations and this projection, which is added to `stored` if it is new; None
    without."""
    if not expectations and not projection:
        return None
    content = {"rules": [vars(expectation) for expectation in expectations], **projection.to_json()}
    if projection.joins:
        own = _number(expectations, stored, replace(projection, joins=()))
        base: dict[str, Any] = {"as": own.number} if own else {"rules": []}
        content = {**base, "references": content["references"]}
    number = next((number for number, old in stored.items() if old == content), str(len(stored) + 1))
    stored.setdefault(number, content)
    return Definition(int(number), expectations, projection)
