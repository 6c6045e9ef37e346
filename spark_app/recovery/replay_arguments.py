"""What a request of a replay says, the same for the command and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def replay_arguments(
    causes: Sequence[str] = (),
    schemas: Sequence[str] = (),
    rules: Sequence[str] = (),
    dropped: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """The fields of `replay.Filters` as JSON values.

    Args:
        where: `since`, `until`, `topic`, `partition` and `offsets`; those that are left out are None.
    """
    places = {name: where.get(name) for name in ("since", "until", "topic", "partition", "offsets")}
    arguments = {"causes": list(causes), "schemas": list(schemas), **places}
    if rules or dropped:  # an app of an earlier release executes a request without them
        arguments |= {"rules": list(rules), "dropped": dropped}
    return arguments


def selects_some(arguments: dict[str, Any]) -> bool:
    """Whether the filters leave records out; dropped records instead of quarantined ones are no filter."""
    return any(value not in (None, []) for name, value in arguments.items() if name != "dropped")
