"""What the comparison of a schema version with the one before it has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_app.model.text import one_line

Kind = Literal[
    "added",  # a field is new
    "readded",  # a field is back that an earlier version had, and the version before has not
    "removed",  # a field is gone; its number may be reserved
    "rename",  # the number is there under another name
    "column",  # the field is the same, but its column has another name: a field whose name differs by case came or went
    "swap",  # numbers have exchanged their names
    "renumber",  # the name is there under another number
    "reuse",  # the number belongs to another field: another name and type, or the old name is reserved or elsewhere
    "repeated",  # one value became a list
    "singular",  # a list became one value
    "narrow",  # fewer bits
    "widen",  # more bits
    "sign",  # signed became unsigned, or the other way
    "bool",  # an integer or enum became bool, or the other way
    "enum",  # an integer became an enum, or the other way; or another enum
    "bytes",  # text became bytes, or the other way
    "message",  # another message type
    "shape",  # the same message became a struct, a flag or JSON text: it got its first field, or contains itself
    "decimal",  # a `confluent.type.Decimal` declares another precision or scale, or declares them no more
    "incompatible",  # the bytes of one type cannot be read as the other
    "presence",  # an unset field can be told from its default now
    "no_presence",  # it could before
    "oneof",  # the field has moved into, out of, or between oneofs
    "default",  # another default value
    "required",  # required became optional, or the other way
    "enum_added",  # an enum has one more value
    "enum_removed",  # an enum has lost a value
    "enum_rename",  # an enum value has another name
    "message_added",
    "message_removed",
    "moved",  # the message has another full name
]
Severity = Literal["info", "warning"]
Policy = Literal[
    "accept",  # the rows go on as they are, and nobody is warned
    "warn",  # the rows go on as they are
    "alias",  # the column keeps its first name
    "new_column",  # the field fills another column
    "quarantine",  # the records of the schema go to quarantine
    "pause",  # the records of the schema wait until a person decides
]
# What is done with differences that the settings do not name. It loses nothing, and no values of another kind get into
# a column.
DEFAULTS: Mapping[Kind, Policy] = {
    "rename": "new_column",
    "reuse": "new_column",
    "repeated": "new_column",
    "singular": "new_column",
    "bytes": "new_column",
    "incompatible": "new_column",
    "sign": "warn",
    "narrow": "warn",
    "enum_rename": "warn",
}
NEW_NAME: frozenset[Kind] = frozenset({"rename", "swap", "renumber", "reuse"})
NEW_TYPE: frozenset[Kind] = frozenset(
    {
        "repeated",
        "singular",
        "narrow",
        "widen",
        "sign",
        "bool",
        "enum",
        "bytes",
        "message",
        "shape",
        "decimal",
        "incompatible",
    }
)
STOPPING: frozenset[Policy] = frozenset({"quarantine", "pause"})
# They are decided before a record is decoded.
DECIDING: frozenset[Policy] = STOPPING | {"alias", "new_column"}


def suited(kind: Kind, policy: Policy) -> Policy:
    """The policy, or for a kind that it does not suit the next weaker one."""
    if policy == "alias" and kind != "rename":
        policy = "new_column"
    return "warn" if policy == "new_column" and kind not in NEW_NAME | NEW_TYPE else policy


@dataclass(frozen=True)
class SchemaChange:
    """One difference, and what happens to the tables because of it.

    Attributes:
        message: full name of the message whose rows have the column.
        path: names of the fields from the message to the changed one, with dots between them; "" = the message.
        old, new: the field, enum value or message as a .proto file declares it; "" = there is none.
        severity: by the policy of its kind: info = accepted or an alias. Without one, warning = values change their
            column, their type or their meaning, or do not land.
        said: the difference and its outcome, one sentence.
    """

    kind: Kind
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
    findings: tuple[SchemaChange, ...] = ()
    left_out: int = 0

    @property
    def where(self) -> str:
        """The version and its subject."""
        return one_line(f"v{self.version} of {self.subject}")

    @property
    def warnings(self) -> list[SchemaChange]:
        return [change for change in self.findings if change.severity == "warning"]

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Comparison:
        findings = tuple(SchemaChange(**change) for change in value["findings"])
        return Comparison(**{**value, "findings": findings})
