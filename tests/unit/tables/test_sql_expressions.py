"""Expressions give the values that Python computes, or NULL where Python says that there is none."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.tables.sql.expressions import NoType, calls_hmac, evaluate
from spark_app.tables.sql.names import columns_in
from tests.support.examples import examples

Row = dict[str, Any]
TYPES = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
            "m": st.none() | st.integers(-9, 9),
            "s": st.none() | st.text(max_size=5) | st.text("abAB12 -%_", max_size=5),
            "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=4),
        }
    ),
    max_size=20,
)


def of(*names: str) -> Callable[[Callable[..., Any]], Callable[[Row], Any]]:
    """A function of columns that is NULL where one of them is."""

    def wrap(function: Callable[..., Any]) -> Callable[[Row], Any]:
        return lambda row: None if any(row[name] is None for name in names) else function(*(row[n] for n in names))

    return wrap


def whole(value: int) -> int | None:
    """None where 64 bits do not hold the value: the expression is an error there."""
    return value if -(2**63) <= value < 2**63 else None


def quotient(n: int, m: int) -> int | None:
    """Towards zero; NULL for a division by zero."""
    return None if m == 0 else whole(abs(n) // abs(m) * (1 if (n < 0) == (m < 0) else -1))


def total(items: list[int | None]) -> int | None:
    known = [one for one in items if one is not None]
    return sum(known) if known else None


def integer(text: str) -> int | None:
    return int(text) if re.fullmatch("-?[0-9]+", text) else None


DUE: dict[str, Callable[[Row], Any]] = {
    "n + m": of("n", "m")(lambda n, m: whole(n + m)),
    "n - m": of("n", "m")(lambda n, m: whole(n - m)),
    "n * m": of("n", "m")(lambda n, m: whole(n * m)),
    "-n": of("n")(lambda n: whole(-n)),
    "n // m": of("n", "m")(quotient),
    "n % m": of("n", "m")(lambda n, m: None if m == 0 else abs(n) % abs(m) * (-1 if n < 0 else 1)),
    "abs(n)": of("n")(lambda n: whole(abs(n))),
    "coalesce(m, n, 0)": lambda r: next((r[name] for name in "mn" if r[name] is not None), 0),
    "nullif(n, m)": lambda r: None if r["n"] == r["m"] else r["n"],
    "n::VARCHAR": of("n")(str),
    "n IS DISTINCT FROM m": lambda r: r["n"] != r["m"],
    "CASE WHEN m > 0 THEN 'up' WHEN m < 0 THEN 'down' END": of("m")(lambda m: "up" if m > 0 else "down" if m else None),
    "length(s)": of("s")(len),
    "octet_length(encode(s))": of("s")(lambda s: len(s.encode())),
    "s || '-' || m": of("s", "m")(lambda s, m: f"{s}-{m}"),
    "concat(s, m)": lambda r: "".join(str(r[name]) for name in "sm" if r[name] is not None),
    "s[2:3]": of("s")(lambda s: s[1:3]),
    "replace(s, 'a', 'xy')": of("s")(lambda s: s.replace("a", "xy")),
    "contains(s, 'a')": of("s")(lambda s: "a" in s),
    "starts_with(s, 'a')": of("s")(lambda s: s.startswith("a")),
    "s LIKE 'a_%'": of("s")(lambda s: s[:1] == "a" and len(s) > 1),
    "md5(s)": of("s")(lambda s: hashlib.md5(s.encode()).hexdigest()),
    "sha256(s)": of("s")(lambda s: hashlib.sha256(s.encode()).hexdigest()),
    "len(l)": of("l")(len),
    "list_sum(l)::BIGINT": of("l")(total),
    "list_transform(l, lambda x: x + 1)": of("l")(lambda items: [None if x is None else x + 1 for x in items]),
    "list_filter(l, lambda x: x > 0)": of("l")(lambda items: [x for x in items if x is not None and x > 0]),
    "l[1]": of("l")(lambda items: items[0] if items else None),
    "{'n': n, 's': s}": lambda r: {"n": r["n"], "s": r["s"]},
}  # fmt: skip


@given(ROWS)
@examples(0.5)
def test_values_are_those_of_python(rows: list[Row]) -> None:
    found = evaluate(pa.Table.from_pylist(rows, TYPES), {text: text for text in DUE}, None)
    for text, due in DUE.items():
        assert found[text].to_pylist() == [due(row) for row in rows], text


@given(st.lists(st.none() | st.text("0123456789- x", max_size=4), max_size=20))
@examples(0.3)
def test_a_cast_gives_a_number_or_null(texts: list[str | None]) -> None:
    table = pa.table({"s": pa.array(texts, pa.string())})
    [found] = evaluate(table, {"made": "CASE WHEN regexp_full_match(s, '-?[0-9]+') THEN s::BIGINT END"}, None).values()
    assert found.to_pylist() == [None if text is None else integer(text) for text in texts]


def test_an_expression_without_a_type_is_named() -> None:
    with pytest.raises(NoType, match=r"made: .*nosuch"):
        evaluate(pa.table({"n": [1]}), {"made": "nosuch + 1"}, None)


def test_the_names_in_an_expression() -> None:
    assert columns_in("Bet > 1 AND list_filter(a.b, lambda X, i: x > y.z)[1] = i") == {"Bet", "a", "y", "i"}
    assert [calls_hmac(text) for text in ("HMAC(x)", "list_transform(l, lambda x: hmac(x))", "hmac", "'hmac(x)'")] == [
        True,
        True,
        False,
        False,
    ]
