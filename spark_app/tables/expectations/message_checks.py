"""Makes the checks of a message's rules: each was parsed as a check of the settings is, and they fit into a mask."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_app.model.definitions import MAX_CHARACTERS
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.decode.reference import load_files
from spark_app.protobuf.schemas.rule_options import has_rules
from spark_app.tables.expectations.checks import check_columns, columns_of
from spark_app.tables.expectations.proto_rules import PREFIX, LeftOut, Translation, translate

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
    accepted: Checks = []
    for some in _neighbours(checks):
        if len(some) > 1 and not _refusal(some, columns):  # one look at all of them
            accepted += some
            continue
        for one in some:
            reason = _refusal([one], columns)
            if reason:
                left_out.append(LeftOut(one[0].removeprefix(PREFIX), "", reason))
            else:
                accepted.append(one)
    return accepted


def _neighbours(checks: Iterable[tuple[str, str]]) -> Iterator[Checks]:
    """The checks in groups that together are no longer than one check may be, if there is no longer one in them."""
    some: Checks = []
    for one in checks:
        if some and len(_conjunction([*some, one])) > MAX_CHARACTERS:
            yield some
            some = []
        some.append(one)
    yield some


def _conjunction(checks: Checks) -> str:
    return " AND ".join(check for _, check in checks)


def _refusal(checks: Checks, columns: pa.Schema) -> str:
    """Why one of the checks is refused; "" = none is."""
    name, check = checks[0][0], _conjunction(checks)
    try:
        named = {column.lower() for column in columns_of(name, check)}
        check_columns(name, check, (), [pa.schema([one for one in columns if one.name.lower() in named])])
    except ConfigurationError as error:
        return str(error).partition(".check: ")[2]
    return ""


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
