"""Translates protovalidate's standard rules on one value to conditions in SQL.

Each function gets the expression of the value, which is never NULL, and the set rules of one kind, such as
`StringRules`. It yields what becomes of each. Conditions are true where protovalidate finds no violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import EnumDescriptor

from spark_app.protobuf.columns.types import enum_names
from spark_app.tables.expectations.formats import (
    BYTE_FORMATS,
    HOSTNAME,
    HTTP_FORMATS,
    IP,
    LAST_LABEL_OF_DIGITS,
    LONGEST_HOSTNAME,
    TEXT_FORMATS,
)
from spark_app.tables.expectations.literals import literal

LONGEST_PATTERN = 1000  # characters
NOT_EXACT = "no expression of SQL says exactly the same"
VOLATILE = "it depends on the time of the check"
TOO_FINE = "the table has whole microseconds, and the rule has finer times"
NUMBERS = frozenset(
    {"float", "double", "int32", "int64", "uint32", "uint64", "sint32", "sint64"}
    | {"fixed32", "fixed64", "sfixed32", "sfixed64"}
)


@dataclass(frozen=True)
class Condition:
    """What becomes of one rule.

    Attributes:
        rule: its name, such as `string.min_len`.
        check: the condition; "" = the rule is not evaluated.
        reason: why not.
    """

    rule: str
    check: str
    reason: str = ""


def conditions(kind: str, rules: Any, value: str, enum: EnumDescriptor | None) -> Iterator[Condition]:
    """The conditions of the set rules of a kind, such as `int32`, `string` or `timestamp`."""
    given = {field.name: one for field, one in rules.ListFields() if field.name != "example"}
    if kind in NUMBERS:
        found = _numbers(given, value, kind in ("float", "double"))
    elif kind in ("timestamp", "duration"):
        found = _times(given, f"epoch_us({value})" if kind == "timestamp" else value)
    elif kind == "enum":
        assert enum is not None
        found = _enum(given, value, enum)
    elif kind in _OTHERS:
        found = _OTHERS[kind](given, value)
    else:
        found = ((name, None) for name in given)
    for name, check in found:
        if isinstance(check, _Not):
            yield Condition(f"{kind}.{name}", "", check.reason)
        else:
            yield Condition(f"{kind}.{name}", check or "", "" if check else NOT_EXACT)


@dataclass(frozen=True)
class _Not:
    """The rule is not evaluated for this reason."""

    reason: str


Found = Iterator[tuple[str, str | _Not | None]]


def _numbers(given: Mapping[str, Any], value: str, real: bool) -> Found:
    # In DuckDB NaN equals NaN and is the largest number; in protovalidate it equals nothing and is in no range.
    number = f"NOT isnan({value}) AND " if real else ""
    yield from _equal(given, value)
    yield from _range(given, value, number)
    if "finite" in given:
        yield "finite", f"isfinite({value})" if given["finite"] else "true"


def _equal(given: Mapping[str, Any], value: str) -> Found:
    """const, in and not_in of values with literals."""
    if "const" in given:
        yield "const", _one_of(value, [given["const"]])
    if "in" in given:
        yield "in", _one_of(value, given["in"])
    if "not_in" in given:
        yield "not_in", f"NOT {_one_of(value, given['not_in'])}"


def _one_of(value: str, wanted: Sequence[Any]) -> str:
    known = [literal(one) for one in wanted if one == one]  # nothing equals NaN
    if not known:
        return "false"
    return f"({value} = {known[0]})" if len(known) == 1 else f"({value} IN ({', '.join(known)}))"


def _range(given: Mapping[str, Any], value: str, number: str) -> Found:
    """lt, lte, gt and gte. A lower bound above the upper one means: outside of both.

    Args:
        number: begins a condition on numbers that may be NaN.
    """
    below = next((name for name in ("lt", "lte") if name in given), None)
    above = next((name for name in ("gt", "gte") if name in given), None)
    signs = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
    sides = [f"{value} {signs[name]} {literal(given[name])}" for name in (above, below) if name]
    if below and above:
        upper, lower = given[below], given[above]
        if upper >= lower or upper < lower:
            joined = f" {'AND' if upper >= lower else 'OR'} ".join(sides)
            yield f"{above}_{below}", f"({number}({joined}))"
        else:  # a bound is NaN, and then protovalidate finds no violation
            yield f"{above}_{below}", "true"
    elif sides:
        [bound] = [given[name] for name in (above, below) if name]
        only = sides[0] if bound == bound else "true"  # nothing is beyond NaN but NaN
        yield str(above or below), f"({number}{only})"


def _times(given: Mapping[str, Any], value: str) -> Found:
    """Rules on times, by the microseconds of the column."""
    micros: dict[str, Any] = {}
    for name, one in given.items():
        if name in ("lt_now", "gt_now", "within"):
            yield name, _Not(VOLATILE)
            continue
        several = one if name in ("in", "not_in") else [one]
        if any(time.nanos % 1000 for time in several):
            yield name, _Not(TOO_FINE)
            continue
        converted = [time.seconds * 1_000_000 + time.nanos // 1000 for time in several]
        micros[name] = converted if name in ("in", "not_in") else converted[0]
    ends = {name for name in given if name in ("lt", "lte", "gt", "gte", "lt_now", "gt_now")}
    if ends - micros.keys():  # a range is one rule
        for name in ends & micros.keys():
            yield name, _Not("the other end of its range is not evaluated")
        micros = {name: one for name, one in micros.items() if name not in ends}
    yield from _equal(micros, value)
    yield from _range(micros, value, "")


def _enum(given: Mapping[str, Any], value: str, enum: EnumDescriptor) -> Found:
    names = enum_names(enum)
    texts = {
        name: [names.get(n, str(n)) for n in one] if isinstance(one, Sequence) else names.get(one, str(one))
        for name, one in given.items()
        if name != "defined_only"
    }
    yield from _equal(texts, value)
    if given.get("defined_only"):
        yield "defined_only", f"(NOT regexp_matches({value}, '^-?[0-9]'))"  # no name begins like a number


def _bool(given: Mapping[str, Any], value: str) -> Found:
    yield from _equal(given, value)


def _string(given: Mapping[str, Any], value: str) -> Found:
    yield from _equal(given, value)
    yield from _sizes(given, f"length({value})", ("len", "min_len", "max_len"))
    yield from _sizes(given, f"strlen({value})", ("len_bytes", "min_bytes", "max_bytes"))
    yield from _pattern(given, value)
    calls = {"prefix": "starts_with", "suffix": "suffix", "contains": "contains", "not_contains": "NOT contains"}
    for name, call in calls.items():
        if name in given:
            yield name, f"({call}({value}, {literal(given[name])}))"
    known = {"strict", "pattern", "const", "in", "not_in", "len", "min_len", "max_len", *calls}
    for name in given.keys() - known - {"len_bytes", "min_bytes", "max_bytes"}:
        yield name, _format(name, given, value)


def _format(name: str, given: Mapping[str, Any], value: str) -> str | None:
    """A well-known format; None = no expression says exactly the same."""
    if name == "well_known_regex":
        number = given[name]
        pattern = HTTP_FORMATS.get((number, given.get("strict", True)))
        return _matches(value, pattern) if pattern else "true"
    if not given[name]:
        return "true"
    hostname = (
        f"(strlen({value}) <= {LONGEST_HOSTNAME} AND {_matches(value, HOSTNAME)}"
        f" AND NOT {_matches(value, LAST_LABEL_OF_DIGITS)})"
    )
    if name == "hostname":
        return hostname
    if name == "address":
        return f"({hostname} OR {_matches(value, IP)})"
    return _matches(value, TEXT_FORMATS[name]) if name in TEXT_FORMATS else None


def _sizes(given: Mapping[str, Any], size: str, names: tuple[str, str, str]) -> Found:
    """Exact, smallest and largest size."""
    for name, sign in zip(names, ("=", ">=", "<="), strict=True):
        if name in given:
            yield name, f"({size} {sign} {literal(given[name])})"


def _pattern(given: Mapping[str, Any], text: str) -> Found:
    if "pattern" in given:
        pattern = given["pattern"]
        too_long = _Not(f"its pattern has {len(pattern)} characters, and may have {LONGEST_PATTERN}")
        yield "pattern", too_long if len(pattern) > LONGEST_PATTERN else _matches(text, pattern)


def _matches(text: str, pattern: str) -> str:
    return f"regexp_matches({text}, {literal(pattern)})"


def _bytes(given: Mapping[str, Any], value: str) -> Found:
    yield from _equal(given, value)
    yield from _sizes(given, f"octet_length({value})", ("len", "min_len", "max_len"))
    yield from _pattern(given, f"decode({value})")  # bytes that are no text are an error, as in protovalidate
    digits = {name: given[name].hex().upper() for name in ("prefix", "suffix", "contains") if name in given}
    for name, wanted in digits.items():
        call = {"prefix": "starts_with", "suffix": "suffix"}.get(name)
        if call:
            yield name, f"({call}(hex({value}), '{wanted}'))"
        else:
            yield name, f"regexp_matches(hex({value}), '^(?:..)*{wanted}')"
    for name in given.keys() & BYTE_FORMATS.keys():
        sizes = " OR ".join(f"octet_length({value}) = {size}" for size in BYTE_FORMATS[name])
        yield name, f"({sizes})" if given[name] else "true"


_OTHERS: Mapping[str, Callable[[Mapping[str, Any], str], Found]] = {"bool": _bool, "string": _string, "bytes": _bytes}
