"""Conditions of `when`: what they mean in SQL, what is refused, and that whatever is written ends in one of both."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.page.alerts import conditions, measuring, sql_child
from spark_app.page.alerts.conditions import LONGEST, Conditions, Measures, Value
from tests.support.examples import examples

RECORDED = json.loads((Path(__file__).parents[2] / "cases" / "alert_conditions.json").read_text())
VERDICTS = {"t": True, "f": False, "u": None}
MEASURES = Measures(
    {"state": "text", "age_s": "number", "lag": "number", "nothing": "number"},
    {"rows": "table", "failure_rate": "expectation", "later": "nobody"},
    {"table": ["uno", "Uno", "rummy", "o'neil"], "expectation": ["sane_time"], "nobody": None},
)
VALUES: dict[tuple[str, str], Value] = {
    ("state", ""): "held",
    ("age_s", ""): 60.5,
    ("lag", ""): 0.0,
    ("rows", "uno"): 7.0,
    ("rows", "Uno"): 8.0,
    ("rows", "o'neil"): 1.0,
    ("failure_rate", "sane_time"): 0.25,
}


class SameProcess:
    """Runs requests in this process."""

    def __init__(self, _: str):
        pass

    def request(self, content: Mapping[str, Any], _: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(json.dumps(sql_child.respond(json.loads(json.dumps(content)))))
        return answer


@pytest.fixture(autouse=True, scope="module")
def in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "LastingChild", SameProcess)
        yield


def lookup(measure: str, argument: str) -> Value:
    return VALUES.get((measure, argument))


def judge(text: str) -> bool | None:
    return Conditions({"x": text}, MEASURES).judge(lookup)["x"]


def looked_up_in(row: Mapping[str, Value]) -> Callable[[str, str], Value]:
    return lambda measure, argument: row.get(f"{measure}('{argument}')" if argument else measure)


def test_conditions_of_the_language_before_sql_are_judged_as_it_judged_them() -> None:
    """The verdicts were recorded by the code of that language."""
    rows, expected = RECORDED["rows"], RECORDED["verdicts"]
    kinds: dict[str, conditions.Kind] = {name: "text" if name == "state" else "number" for name in rows[-1]}
    of = {"rows": "table", "failure_rate": "expectation", "silent_s": "table", "quarantine_of": "cause"}
    known = {"table": ["uno", "rummy", "o'neil", "-- x"], "expectation": ["sane_time"], "cause": None}
    texts = {f"r{number}": text for number, text in enumerate(expected)}
    judged = Conditions(texts, Measures(kinds, of, known))
    for number, row in enumerate(rows):
        holds = judged.judge(looked_up_in(row))
        assert {texts[rule]: one for rule, one in holds.items()} == {
            text: VERDICTS[verdicts[number]] for text, verdicts in expected.items()
        }


def test_the_conditions_of_the_page_about_alerts_are_conditions() -> None:
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
    measures = Measures(
        {name: "text" if name == "state" else "number" for name in (*measuring.PLAIN, *measuring.OVER_A_MINUTE)},
        measuring.OF,
        {"table": None, "expectation": None, "cause": None},
    )
    table = page.partition("| condition | holds if |")[2].partition("\n\n")[0]
    texts = [*re.findall(r'^when = "(.*)"$', page, re.MULTILINE), *re.findall(r"^\| `(.*)` \|", table, re.MULTILINE)]
    assert len(texts) == 10
    Conditions({f"r{number}": text for number, text in enumerate(texts)}, measures)


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
        ("rows('Uno') = 8 and Rows('uno') = 7", True),
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
        ("AGE_S between 60 and 61", True),
        ("nothing is null and lag is not null", True),
        ("coalesce(nothing, lag) = 0", True),
        ("case state when 'held' then age_s > 60 else lag > 5 * 1024 * 1024 * 1024 end", True),
        ("state like 'he%' and round(age_s / 7, 1) = 8.6", True),
        ("greatest(age_s, lag) > 60 /* s */", True),
        ("(lag = 1) = (age_s = 2)", True),
        ("sqrt(lag - 1) > 0", None),
        ("true", True),
    ],
)
def test_a_condition_holds_or_not_or_nobody_knows(text: str, holds: bool | None) -> None:
    assert judge(text) is holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("age > 60", "there is no age; did you mean age_s"),
        ("rows('unoo') > 1", "there is no table unoo; did you mean uno"),
        ("failure_rate('sane_tme') > 1", "there is no expectation sane_tme; did you mean sane_time"),
        ("rows > 1", "rows needs the name of its table: rows('...')"),
        ("rows(uno) > 1", "rows needs the name of its table: rows('...')"),
        ("age_s", "is of the type DOUBLE, and has to be BOOLEAN: compare it with something"),
        ("age_s > 'x'", "Could not convert string 'x' to DOUBLE"),
        ("state + 1 = 2", "No function matches the given name and argument types '+(VARCHAR"),
        ("-state = 2", "No function matches the given name and argument types '-(VARCHAR"),
        ("lag in ('a')", "Could not convert string 'a' to DOUBLE"),
        ("age_s > 60 and", "is not one SQL expression"),
        ("age_s > 60)", "is not one SQL expression"),
        ("(age_s > 60", "is not one SQL expression"),
        ("age_s > 60; drop table x", "is more than one statement"),
        ("age_s > 60 -- x", "there is no x; there are age_s"),
        ("read_text('/etc/passwd') = 'x'", "read_text() gives a table"),
        ("getenv('HOME') = 'x'", "there is no function getenv()"),
        ("now() > '2026-01-01'", "a condition may depend on the row alone"),
        ("current_date > '2026-01-01'", "there is no current_date; "),
        ("random() > lag", "a condition may depend on the row alone"),
        ("max(lag) > 1", "max() is computed over many rows; a condition sees one row"),
        ("lag > (select 1)", "a subquery is not allowed"),
        ("exists (from '/etc/passwd')", "a subquery is not allowed"),
        ("lag > 1 from range(3)", "is a query"),
        ("lag > 1) from range(3) --", "is not one SQL expression"),
        ("lag > 1, true", "is more than one expression"),
        ("age_s.__class__ = 1", "Binder Error"),
        ("", "is empty"),
        ("(" * 300 + "lag = 1" + ")" * 300, "is nested more than 200 deep"),
        ("lag = 1 and " * 500 + "lag = 1", f"is longer than {LONGEST} characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        judge(text)
    assert str(caught.value).startswith("alerts.rules.x.when: ")
    assert says in str(caught.value)


PIECES = "age_s lag state nothing rows('uno') 'held' 1 0 2.5 + - * / = <> < >= and or not in ( ) , ' \" \\ \0 é ::"


@given(st.lists(st.sampled_from(PIECES.split(" ")), max_size=25).map(" ".join) | st.text(max_size=40))
@examples(2)
def test_whatever_is_written_is_judged_or_refused(text: str) -> None:
    try:
        holds = judge(text)
    except ConfigurationError:
        return
    assert holds in (True, False, None)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({' '.join(parts)})")


NUMBERS = st.recursive(st.integers(0, 9).map(str), _combined, max_leaves=8)


@given(st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">="]), NUMBERS).map(" ".join))
@examples(1)
def test_arithmetic_is_that_of_python(text: str) -> None:
    assert judge(text) == eval(text)  # of digits and signs


class TestAProcess:
    """All conditions of a page are judged by one process, which it can lose."""

    @pytest.fixture(autouse=True)
    def in_a_process(self, in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
        from spark_app.page.queries.child_process import LastingChild

        monkeypatch.setattr(conditions, "LastingChild", LastingChild)

    def test_it_judges_round_after_round_and_is_started_again_after_its_end(self) -> None:
        judged = Conditions({"late": "age_s > 60", "lags": "lag > 1 or rows('uno') > 8"}, MEASURES)
        assert judged.uses == {"late": [("age_s", "")], "lags": [("lag", ""), ("rows", "uno")]}
        process = judged._child._process
        assert process is not None
        for _ in range(3):
            assert judged.judge(lookup) == {"late": True, "lags": False}
        assert judged._child._process is process
        process.kill()
        process.wait()
        assert judged.judge(lookup) == {"late": True, "lags": False}
        assert judged._child._process is not process

    def test_a_round_that_takes_too_long_is_unknown(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        judged = Conditions({"slow": "lag = 1 and list_sum(range((age_s * 1000000)::bigint)) > 0"}, MEASURES)
        monkeypatch.setattr(conditions, "WITHIN_S", 0.2)
        slow = {("age_s", ""): 60.0, ("lag", ""): 1.0}
        for _ in range(2):
            assert judged.judge(lambda *use: slow.get(use)) == {"slow": None}
        assert capsys.readouterr().err.count("could not be judged") == 1

    def test_a_process_that_does_not_answer_ends_the_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(conditions, "READ_WITHIN_S", 0.001)
        with pytest.raises(UnreachableError, match="the conditions of alerts could not be read"):
            Conditions({"late": "age_s > 60"}, MEASURES)

    def test_without_conditions_there_is_none(self) -> None:
        judged = Conditions({}, MEASURES)
        assert (judged.judge(lookup), judged._child._process) == ({}, None)
