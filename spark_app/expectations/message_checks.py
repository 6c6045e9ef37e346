"""Makes the checks of a message's rules: each was parsed as a check of the settings is, and they fit into a mask."""

from __future__ import annotations

import functools

import pyarrow as pa

from spark_app.decode.reference import load_files
from spark_app.expectations.checks import MAX_CHARACTERS, check_columns
from spark_app.expectations.proto_rules import PREFIX, LeftOut, Translation, translate
from spark_app.model.errors import ConfigurationError
from spark_app.schemas.rule_options import has_rules

Checks = list[tuple[str, str]]  # (name of the rule, check)
NOTHING = Translation()


@functools.lru_cache(maxsize=1024)
def checks_of(descriptor_set: bytes, full_name: str, columns: pa.Schema, most: int) -> Translation:
    """The checks of a message of a schema.

    Args:
        columns: of the table.
        most: more checks are joined, those of neighbouring fields: `proto.first..last`.
    """
    if not has_rules(descriptor_set):
        return NOTHING
    pool, _ = load_files(descriptor_set)
    try:
        found = translate(pool.FindMessageTypeByName(full_name), columns)
    except Exception as error:  # one schema must not stop the app at each of its starts
        return Translation((), (LeftOut("", "", f"its rules cannot be read: {type(error).__name__}: {error}"[:300]),))
    left_out = list(found.left_out)
    checks = _without_refused(found.checks, columns, left_out)
    if len(checks) > most:
        checks = _join(checks, most, left_out)
    return Translation(tuple(checks), tuple(left_out))


def _without_refused(checks: tuple[tuple[str, str], ...], columns: pa.Schema, left_out: list[LeftOut]) -> Checks:
    """The checks that are accepted. The others have, for example, a pattern that is none, or are too long."""
    accepted = []
    for name, check in checks:
        try:
            check_columns(name, check, (), [columns])
            accepted.append((name, check))
        except ConfigurationError as error:
            left_out.append(LeftOut(name.removeprefix(PREFIX), "", str(error).partition(".check: ")[2]))
    return accepted


def _join(checks: Checks, most: int, left_out: list[LeftOut]) -> Checks:
    joined = []
    share = -(-len(checks) // most) if most else len(checks)
    for begin in range(0, len(checks), share):
        some = checks[begin : begin + share]
        kept: list[str] = []
        for name, check in some:
            if most and len(" AND ".join([*kept, check])) <= MAX_CHARACTERS:
                kept.append(check)
            else:
                left_out.append(LeftOut(name.removeprefix(PREFIX), "", "the message has too many rules for one table"))
        if kept:
            first, last = some[0][0], some[-1][0].removeprefix(PREFIX)
            joined.append((f"{first}..{last}", " AND ".join(kept)))
    return joined
