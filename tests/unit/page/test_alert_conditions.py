"""The language of `when`: what it means, what is refused, and that whatever is written ends in one of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.page.alerts.conditions import LONGEST, Measures, Value, WrongCondition, parse
from tests.support.examples import examples

MEASURES = Measures(
    {"state": "text", "age_s": "number", "lag": "number", "nothing": "number"},
    {"rows": "table", "failure_rate": "rule", "later": "nobody"},
    {"table": ["uno", "rummy", "o'neil"], "rule": ["sane_time"], "nobody": None},
)
VALUES: dict[tuple[str, str], Value] = {
    ("state", ""): "held",
    ("age_s", ""): 60.5,
    ("lag", ""): 0.0,
    ("rows", "uno"): 7.0,
    ("rows", "o'neil"): 1.0,
    ("failure_rate", "sane_time"): 0.25,
}


def judge(text: str) -> bool | None:
    return parse(text, MEASURES).judge(lambda measure, argument: VALUES.get((measure, argument)))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("age_s > 60", True),
        ("age_s>60.5", False),
        ("age_s >= 60.5 AND lag = 0", True),
        ("state = 'held'", True),
        ("state <> 'held'", False),
        ("state != 'dead'", True),
        ("state in ('dead', 'held')", True),
        ("not state in ('dead', 'held')", False),
        ("not not state = 'held'", True),
        ("rows('uno') = 7 and rows('o''neil') = 1", True),
        ("failure_rate('sane_time') > 0.05", True),
        ("1 + 2 * 3 = 7", True),
        ("(1 + 2) * 3 = 9", True),
        ("10 - 2 - 3 = 5", True),
        ("8 / 2 / 2 = 2", True),
        ("--1 = 1 and -1 < 0", True),
        ("age_s > 1000 or lag = 0 and state = 'held'", True),
        ("(age_s > 1000 or lag = 0) and state = 'dead'", False),
        ("nothing > 5", None),
        ("not nothing > 5", None),
        ("nothing > 5 or age_s > 1", True),
        ("nothing > 5 and age_s > 1", None),
        ("nothing > 5 and age_s < 1", False),
        ("1 / lag > 5", None),
        ("rows('rummy') > 0", None),
        ("later('whoever') > 0", None),
    ],
)
def test_a_condition_holds_or_not_or_nobody_knows(text: str, holds: bool | None) -> None:
    assert judge(text) is holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("age > 60", "there is no age; there is age_s"),
        ("rows('unoo') > 1", "there is no table unoo; there is uno"),
        ("failure_rate('sane_tme') > 1", "there is no rule sane_tme; there is sane_time"),
        ("rows > 1", "rows needs the name of a table: rows('...')"),
        ("rows(uno) > 1", "uno stands where a text in single quotes should"),
        ("age_s", "a number is no condition: compare it with something"),
        ("age_s > 'x'", "> compares a number with a text"),
        ("state > 'x'", "> compares numbers, not texts"),
        ("state + 1 = 2", "+ needs numbers"),
        ("-state = 2", "- needs numbers"),
        ("lag in ('a')", "in compares texts"),
        ("(lag = 1) = (lag = 2)", "= compares a truth with a truth"),
        ("age_s > 60 and", "its end stands where a number, a text or a name should"),
        ("age_s > 60)", ") was not expected"),
        ("(age_s > 60", "its end stands where ) should"),
        ("age_s > 60; drop table x", "'; drop table x' is not understood"),
        ("age_s > 60 -- x", "there is no x; there is age_s"),
        ("read_text('/etc/passwd') = 'x'", "there is no read_text; there is "),
        ("age_s.__class__ = 1", "'.__class__ = 1' is not understood"),
        ("", "its end stands where a number, a text or a name should"),
        ("(" * 50 + "lag = 1" + ")" * 50, "is nested too deeply"),
        ("lag = 1 and " * 500 + "lag = 1", f"is longer than {LONGEST} characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(WrongCondition) as caught:
        parse(text, MEASURES)
    assert says in str(caught.value)


PIECES = "age_s lag state nothing rows('uno') 'held' 1 0 2.5 + - * / = <> < >= and or not in ( ) , ' \\ \0 é"


@given(st.lists(st.sampled_from(PIECES.split(" ")), max_size=25).map(" ".join) | st.text(max_size=40))
@examples(5)
def test_whatever_is_written_is_judged_or_refused(text: str) -> None:
    try:
        condition = parse(text, MEASURES)
    except WrongCondition:
        return
    holds = condition.judge(lambda measure, argument: VALUES.get((measure, argument)))
    assert holds in (True, False, None)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({' '.join(parts)})")


NUMBERS = st.recursive(st.integers(0, 9).map(str), _combined, max_leaves=8)


@given(st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">="]), NUMBERS).map(" ".join))
@examples(2)
def test_arithmetic_is_that_of_python(text: str) -> None:
    assert judge(text) == eval(text)  # of digits and signs
