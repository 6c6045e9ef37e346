"""What a look at a lake found wrong: the shape that the start, `doctor` and whoever examines share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spark_app.model.errors import ContractError
from spark_app.ops.log import log


@dataclass(frozen=True)
class Finding:
    """Something that does not fit together.

    Attributes:
        what: what is wrong and where, one line.
        remedy: what a person does about it, one line.
        fatal: a start refuses with 65; otherwise it warns and goes on.
        repair: what `doctor --repair` does; returns one line that says what it did. None = left to a person.
    """

    what: str
    remedy: str
    fatal: bool = True
    repair: Callable[[], str] | None = None


def refuse(findings: Iterable[Finding]) -> None:
    """Say what is wrong, and go on unless something is fatal.

    Raises:
        ContractError: names every fatal finding with its remedy.
    """
    fatal = []
    for finding in findings:
        if finding.fatal:
            fatal.append(f"{finding.what}. {finding.remedy}")
        else:
            log.warning(finding.what, remedy=finding.remedy)
    if fatal:
        raise ContractError("; ".join(fatal))
