"""The language of `when`: comparisons of named measures with numbers and texts, joined with and, or, not.

    condition = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation = "not" negation | comparison
    comparison = sum [ ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") sum | "in" "(" text { "," text } ")" ]
    sum = product { ("+" | "-") product }
    product = sign { ("*" | "/") sign }
    sign = "-" sign | number | text | measure | measure "(" text ")" | "(" condition ")"

A measure whose value is not known makes its comparison unknown, as NULL does in SQL. A condition is read once, with the
types of all its parts, so that none fails later. There is nothing in the language that could reach a file or loop.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

LONGEST = 2000
DEEPEST = 30
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|<>|!=|[=<>()+*/,-]))",
    re.ASCII,
)
WORDS = ("and", "or", "not", "in")
Value = float | str | bool | None
Kind = Literal["number", "text", "truth"]
Lookup = Callable[[str, str], Value]  # (measure, argument or "") -> its value
Compute = Callable[[Lookup], Value]
COMPARISONS: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]  # the two are numbers
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


class WrongCondition(Exception):
    """The text is no condition. The message says why."""


@dataclass(frozen=True)
class Measures:
    """What a condition may name.

    Attributes:
        kinds: measure without an argument -> its kind.
        of: measure with an argument -> what the argument names, such as "table".
        known: what an argument names -> the names there are; None if nobody knows them yet.
    """

    kinds: Mapping[str, Kind]
    of: Mapping[str, str]
    known: Mapping[str, Collection[str] | None]


@dataclass(frozen=True)
class Condition:
    """
    Attributes:
        uses: the measures in it, with their arguments or "".
    """

    text: str
    uses: tuple[tuple[str, str], ...]
    _compute: Compute

    def judge(self, lookup: Lookup) -> bool | None:
        """Whether it holds; None if nobody knows."""
        found = self._compute(lookup)
        return None if found is None else bool(found)


def parse(text: str, measures: Measures) -> Condition:
    """
    Raises:
        WrongCondition
    """
    return _Parser(text, measures).condition()


@dataclass(frozen=True)
class _Part:
    kind: Kind
    compute: Compute


class _Parser:
    def __init__(self, text: str, measures: Measures):
        if len(text) > LONGEST:
            raise WrongCondition(f"is longer than {LONGEST} characters")
        self._text = text
        self._measures = measures
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._uses: dict[tuple[str, str], None] = {}

    def condition(self) -> Condition:
        part = self._truth(self._either())
        if self._at < len(self._tokens):
            raise WrongCondition(f"{self._tokens[self._at]} was not expected")
        return Condition(self._text, tuple(self._uses), part.compute)

    def _either(self) -> _Part:
        self._depth += 1
        if self._depth > DEEPEST:
            raise WrongCondition("is nested too deeply")
        part = self._both()
        while self._takes("or"):
            part = _joined(self._truth(part), self._truth(self._both()), decisive=True)
        self._depth -= 1
        return part

    def _both(self) -> _Part:
        part = self._negation()
        while self._takes("and"):
            part = _joined(self._truth(part), self._truth(self._negation()), decisive=False)
        return part

    def _negation(self) -> _Part:
        times = 0
        while self._takes("not"):
            times += 1
        part = self._comparison()
        if not times:
            return part
        inner, odd = self._truth(part).compute, times % 2 == 1
        return _Part("truth", lambda lookup: None if (v := inner(lookup)) is None else (not v if odd else v))

    def _comparison(self) -> _Part:
        left = self._sum()
        for sign, compare in COMPARISONS.items():
            if self._takes(sign):
                right = self._sum()
                if left.kind != right.kind or left.kind == "truth":
                    raise WrongCondition(f"{sign} compares a {left.kind} with a {right.kind}")
                if left.kind == "text" and sign not in ("=", "!=", "<>"):
                    raise WrongCondition(f"{sign} compares numbers, not texts")
                return _Part("truth", _computed(compare, left, right))
        if self._takes("in"):
            if left.kind != "text":
                raise WrongCondition("in compares texts")
            self._expect("(")
            texts = [self._string()]
            while self._takes(","):
                texts.append(self._string())
            self._expect(")")
            return _Part("truth", lambda lookup: None if (v := left.compute(lookup)) is None else v in texts)
        return left

    def _sum(self) -> _Part:
        part = self._product()
        while (sign := self._next()) in ("+", "-"):
            self._at += 1
            part = _calculated(sign, operator.add if sign == "+" else operator.sub, part, self._product())
        return part

    def _product(self) -> _Part:
        part = self._sign()
        while (sign := self._next()) in ("*", "/"):
            self._at += 1
            part = _calculated(sign, operator.mul if sign == "*" else _divide, part, self._sign())
        return part

    def _sign(self) -> _Part:
        times = 0
        while self._takes("-"):
            times += 1
        part = self._value()
        if not times:
            return part
        return _calculated("-", operator.mul, part, _Part("number", lambda lookup: (-1.0) ** times))

    def _value(self) -> _Part:
        token = self._next()
        if token == "(":
            self._at += 1
            part = self._either()
            self._expect(")")
            return part
        if token[:1] == "'":
            text = self._string()
            return _Part("text", lambda lookup: text)
        if token[:1].isdigit():
            self._at += 1
            number = float(token)
            return _Part("number", lambda lookup: number)
        if token[:1].isalpha() and token.lower() not in WORDS:
            self._at += 1
            return self._measure(token)
        raise WrongCondition(f"{token or 'its end'} stands where a number, a text or a name should")

    def _measure(self, name: str) -> _Part:
        measures, argument = self._measures, ""
        if name not in measures.kinds and name not in measures.of:
            raise WrongCondition(f"there is no {name}; {_near(name, [*measures.kinds, *measures.of])}")
        if name in measures.of:
            kind_of_name = measures.of[name]
            if self._next() != "(":
                raise WrongCondition(f"{name} needs the name of a {kind_of_name}: {name}('...')")
            self._at += 1
            argument = self._string()
            self._expect(")")
            known = measures.known[kind_of_name]
            if known is not None and argument not in known:
                raise WrongCondition(f"there is no {kind_of_name} {argument}; {_near(argument, known)}")
        self._uses[name, argument] = None
        return _Part(measures.kinds.get(name, "number"), lambda lookup: lookup(name, argument))

    def _truth(self, part: _Part) -> _Part:
        if part.kind != "truth":
            raise WrongCondition(f"a {part.kind} is no condition: compare it with something")
        return part

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _takes(self, token: str) -> bool:
        if self._next().lower() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise WrongCondition(f"{self._next() or 'its end'} stands where {token} should")

    def _string(self) -> str:
        token = self._next()
        if token[:1] != "'":
            raise WrongCondition(f"{token or 'its end'} stands where a text in single quotes should")
        self._at += 1
        return token[1:-1].replace("''", "'")


def _tokens(text: str) -> list[str]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise WrongCondition(f"{text[at:].strip()[:20]!r} is not understood")
        tokens.append(found.group().strip())
        at = found.end()
    return tokens


def _near(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)[:5]
    return f"there is {', '.join(close)}" if close else "there is none"


def _joined(left: _Part, right: _Part, decisive: bool) -> _Part:
    """and, or: `decisive` is the value that decides alone."""

    def compute(lookup: Lookup) -> Value:
        values = left.compute(lookup), right.compute(lookup)
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    return _Part("truth", compute)


def _computed(compare: Callable[[Value, Value], bool], left: _Part, right: _Part) -> Compute:
    def compute(lookup: Lookup) -> Value:
        one, other = left.compute(lookup), right.compute(lookup)
        return None if one is None or other is None else compare(one, other)

    return compute


def _calculated(sign: str, calculate: Callable[[float, float], float | None], left: _Part, right: _Part) -> _Part:
    if (left.kind, right.kind) != ("number", "number"):
        raise WrongCondition(f"{sign} needs numbers")

    def compute(lookup: Lookup) -> Value:
        one, other = left.compute(lookup), right.compute(lookup)
        return None if one is None or other is None else calculate(float(one), float(other))

    return _Part("number", compute)


def _divide(one: float, other: float) -> float | None:
    return one / other if other else None
