"""A problem that a check of the lake found; the start and `doctor` use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spark_app.model.errors import ContractError
from spark_app.model.log import log


@dataclass(frozen=True)
class Problem:
    """A part of a lake that is damaged or does not fit the others.

    Attributes:
        what: what is wrong and where, one line.
        remedy: what a person can do about it, one line.
        fatal: True: the app exits with 65 at its start. False: it logs a warning and continues.
        repair: the action of `doctor --repair`; returns one line about what it did. None = only a person can repair it.
    """

    what: str
    remedy: str
    fatal: bool = True
    repair: Callable[[], str] | None = None


def refuse(problems: Iterable[Problem]) -> None:
    """Log the problems that are not fatal, and raise if one is.

    Raises:
        ContractError: names every fatal problem with its remedy.
    """
    fatal = []
    for problem in problems:
        if problem.fatal:
            fatal.append(f"{problem.what}. {problem.remedy}")
        else:
            log.warning(problem.what, remedy=problem.remedy)
    if fatal:
        raise ContractError("; ".join(fatal))
