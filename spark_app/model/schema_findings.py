"""What the comparison of a schema version with the one before it has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_app.model.text import one_line

Severity = Literal["info", "warning"]


@dataclass(frozen=True)
class SchemaFinding:
    """One difference, and what happens to the tables because of it.

    Attributes:
        kind: one of `schemas/changes.Kind`.
        message: full name of the message whose rows have the column.
        path: names of the fields from the message to the changed one, with dots between them; "" = the message.
        old, new: the field, enum value or message as a .proto file declares it; "" = there is none.
        severity: warning = values change their column, their type or their meaning, or do not land.
        said: the difference and its outcome, one sentence.
    """

    kind: str
    message: str
    path: str
    old: str
    new: str
    severity: Severity
    said: str


@dataclass(frozen=True)
class Comparison:
    """A schema version compared with the one before it.

    Attributes:
        subject: the subject in which it was compared; "" = it is in none.
        version: its version there.
        before_version: the version before it; None = it is the first.
        before: digest of the descriptor set of the version before; "" = it is the first.
        findings: the differences, warnings first.
        left_out: differences that are not among the findings, because there are too many.
    """

    subject: str = ""
    version: int | None = None
    before_version: int | None = None
    before: str = ""
    findings: tuple[SchemaFinding, ...] = ()
    left_out: int = 0

    @property
    def where(self) -> str:
        """The version and its subject."""
        return one_line(f"v{self.version} of {self.subject}")

    @property
    def warnings(self) -> list[SchemaFinding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Comparison:
        findings = tuple(SchemaFinding(**finding) for finding in value["findings"])
        return Comparison(**{**value, "findings": findings})
