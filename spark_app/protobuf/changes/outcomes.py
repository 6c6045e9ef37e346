"""Says what a difference between two versions of a schema does to the rows of their tables.

The types of the tables' columns, and whether values fit them, come from the code with which workers write the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from spark_app.lake.delta.merged_columns import grows, type_at
from spark_app.model.schema_changes import (
    DECIDING,
    DEFAULTS,
    NEW_TYPE,
    STOPPING,
    Kind,
    Policy,
    SchemaChange,
    Severity,
    suited,
)
from spark_app.model.text import one_line
from spark_app.protobuf.changes.differences import Change, Column
from spark_app.protobuf.columns.conversions import CONVERSIONS, fits_always
from spark_app.protobuf.columns.decimals import DECODED
from spark_app.protobuf.columns.fit import table_columns
from spark_app.settings.models import Settings

LONGEST_NAME = 100  # characters of a path or type in a sentence
LONGEST_DECLARATION = 200
STOPPED: Mapping[Policy | None, str] = {
    "quarantine": "every record of the schema goes to quarantine as schema_change",
    "pause": "every record of the schema waits until a person decides with accept-schema",
}
UNSIGNED = {"uint32", "uint64", "fixed32", "fixed64"}
Fit = Literal["fits", "converted", "some", "none", "clash", "unrouted"]
# Kinds that change what a column means, even if all values fit it.
MEANING: frozenset[Kind] = frozenset(
    {
        "readded",
        "removed",
        "rename",
        "column",
        "swap",
        "renumber",
        "reuse",
        "narrow",
        "sign",
        "presence",
        "no_presence",
        "enum_removed",
        "enum_rename",
    }
)


@dataclass(frozen=True)
class Judgement:
    """The policies of the settings for differences.

    Attributes:
        policies: kind -> policy; without one it is a warning by what happens to the rows.
        routing: the field whose value names the table of a row; "" = none, or wrappers may have it.
        key: the field by which gold groups rows; "" = wrappers may have it.
        named: all columns that the settings name.
    """

    policies: Mapping[Kind, Policy] = field(default_factory=dict)
    routing: str = ""
    key: str = ""
    named: frozenset[str] = frozenset()

    @property
    def decides(self) -> bool:
        """Whether a policy needs a decision before records of a schema are decoded."""
        return not DECIDING.isdisjoint(self.policies.values())

    @property
    def stops(self) -> bool:
        """Whether a policy may keep a schema out until a person decides."""
        return not STOPPING.isdisjoint(self.policies.values())

    def accepting(self, policy: Policy | Literal[""], kinds: Iterable[Kind]) -> Judgement:
        """The judgement of a schema about which a person decided: with this policy for these kinds; "" = nobody has."""
        if not policy:
            return self
        return replace(self, policies={**self.policies, **{kind: suited(kind, policy) for kind in kinds}})

    def stopping(self, changes: Iterable[Change]) -> list[Change]:
        """The changes that keep a schema from being decoded, those that pause it first."""
        found = [change for change in changes if self.policies.get(change.kind) in STOPPING]
        return sorted(found, key=lambda change: self.policies[change.kind] != "pause")

    @staticmethod
    def of(settings: Settings) -> Judgement:
        by_field = settings.event.route_by != "message" and not settings.wrapper.payload
        event, wrapper = settings.event, settings.wrapper
        named = {event.routing, event.key, event.time, wrapper.payload, wrapper.schema_id}
        return Judgement(
            {**DEFAULTS, **settings.schemas.changes},
            routing=event.routing if by_field else "",
            key="" if wrapper.payload else event.key,
            named=frozenset(named),
        )


BY_OUTCOME = Judgement()


def schema_changes_of(
    changes: Iterable[Change], known: Mapping[str, pa.Schema], judgement: Judgement, of_keys: bool = False
) -> list[SchemaChange]:
    """The differences with their outcomes, warnings first.

    Args:
        known: message type -> columns of all its versions, with the new one among them.
        of_keys: the schema is that of record keys, which have no columns.
    """
    tables: dict[tuple[str, str], pa.Schema] = {}
    found = []
    for change in changes:
        names = change.was, change.message
        if names not in tables:
            tables[names] = _table_columns(names, known)
        found.append(_schema_change_of_key(change) if of_keys else _schema_change(change, tables[names], judgement))
    return sorted(found, key=lambda change: change.severity != "warning")


def _table_columns(names: tuple[str, str], known: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of a table that has rows of both versions, and of no other message."""
    types = [kind for name in dict.fromkeys(names) for kind in known if kind.partition("#")[0] == name]
    return table_columns(types, known)


def _schema_change(change: Change, table: pa.Schema, judgement: Judgement) -> SchemaChange:
    fit = _fit(change, table, judgement.routing)
    policy = judgement.policies.get(change.kind)
    wrong = policy not in ("accept", "alias") if policy else change.kind in MEANING or fit != "fits"
    outcome = STOPPED.get(policy) or _outcome(change, fit, table) + _in_gold(change, fit, judgement.key)
    return _change_with_text(change, "warning" if wrong else "info", outcome)


def _schema_change_of_key(change: Change) -> SchemaChange:
    return _change_with_text(change, "info", "the column _key has the JSON text of each key by its own schema")


def _change_with_text(change: Change, severity: Severity, outcome: str) -> SchemaChange:
    sentence = f"{difference(change)}: {outcome}"
    old, new = (_short(text, LONGEST_DECLARATION) for text in (change.old, change.new))
    path, message = _short(change.path), _short(change.message)
    return SchemaChange(change.kind, message, path, old, new, severity, sentence)


def difference(change: Change) -> str:
    """The change in a few words."""
    return DIFFERENCES.get(change.kind, _retyped)(change)


def _fit(change: Change, table: pa.Schema, routing: str) -> Fit:
    """Whether the values of the new version fit the column of the table."""
    column = change.after
    if _names_tables(change.before, routing) and not _names_tables(column, routing):
        return "unrouted"
    if column is None:
        return "fits"
    kind = type_at(table, column.path)
    if kind is None:
        return "clash" if len(column.path) == 1 else "none"
    return _conversion(column.decoded, kind)


def _conversion(decoded: pa.DataType, kind: pa.DataType) -> Fit:
    """Whether decoded values fit a column, or the values of one list those of another."""
    while pa.types.is_list(decoded) and pa.types.is_list(kind):
        decoded, kind = decoded.value_type, kind.value_type
    if grows(decoded, kind) or (pa.types.is_struct(decoded) and pa.types.is_struct(kind)):
        return "fits"  # what does not fit inside a struct is a difference of its own
    if decoded == DECODED and pa.types.is_decimal(kind):
        return "some"
    if (decoded, kind) not in CONVERSIONS:
        return "none"
    return "converted" if fits_always(decoded, kind) else "some"


def _names_tables(column: Column | None, routing: str) -> bool:
    """Whether the tables of rows are named by a column, which must be text."""
    return column is not None and column.path == (routing,) and bool(pa.types.is_string(column.type))


def _outcome(change: Change, fit: Fit, table: pa.Schema) -> str:
    if fit == "clash":
        return "every new row goes to quarantine as decode_type, because two columns would differ only by case"
    if fit == "unrouted":
        return "every new row goes to quarantine as route_missing, because this field names the table of a row"
    if fit == "none":
        return f"every new row with a value in {_column(change.after)} goes to quarantine as decode_type"
    text = _landing(change)
    if fit == "fits" or change.after is None:
        return text
    text = f"{text}; the column stays {_short(str(type_at(table, change.after.path)))}"
    if fit == "converted":
        return f"{text}, and each new value is converted to it"
    return f"{text}, and a new row whose value it cannot hold without loss goes to quarantine as decode_type"


def _in_gold(change: Change, fit: Fit, key: str) -> str:
    """The effect on gold, if gold needs the field."""
    before, after = (column is not None and column.path == (key,) for column in (change.before, change.after))
    return (
        f"; gold counts them in the row whose {_short(key)} is NULL" if before and not after and fit == "fits" else ""
    )


def _landing(change: Change) -> str:
    """The outcome for the values that fit their column."""
    stays = change.before is not None and change.after is not None and change.before.path == change.after.path
    if change.kind == "rename" and stays:
        return f"{_goes_on(change)}, which keeps its name"
    if change.kind in NEW_TYPE | {"renumber"} and change.after is not None and not stays:
        return _another(change)
    return OUTCOMES.get(change.kind, _goes_on)(change)


def _goes_on(change: Change) -> str:
    return f"new rows go on in {_column(change.after)}"


def _another(change: Change) -> str:
    rest = f", and {_short('.'.join(change.before.path))} stays NULL for them" if change.before else ""
    return f"new rows fill {_column(change.after)}{rest}"


def _removed(change: Change) -> str:
    return f"{_column(change.before)} stays, and is NULL for new rows"


def _swap(change: Change) -> str:
    old, new = (_name_and_number(text) for text in (change.old, change.new))
    return f"{_column(change.after)} has the values of number {new[1]} in new rows, which were in {_short(old[0])}"


def _sign(change: Change) -> str:
    way = "without" if _type_of(change.new).rpartition(" ")[2] in UNSIGNED else "with"
    return f"{_goes_on(change)}, as numbers {way} a sign"


def _column(column: Column | None) -> str:
    return f"the column {_short('.'.join(column.path) if column else '')}"


def _field(change: Change) -> str:
    return f"field {_short(change.path)}"


def _retyped(change: Change) -> str:
    old, new = (_short(_type_of(text)) for text in (change.old, change.new))
    return f"{_field(change)} was {old} and is {new} now"


def _renamed(change: Change) -> str:
    old, _ = _name_and_number(change.old)
    within, dot, _ = change.path.rpartition(".")
    return f"field {_short(within + dot + old)} was renamed to {_short(change.path)}"


def _renumbered(change: Change) -> str:
    return (
        f"{_field(change)} had number {_name_and_number(change.old)[1]} and has {_name_and_number(change.new)[1]} now"
    )


def _reused(change: Change) -> str:
    old, number = _name_and_number(change.old)
    return f"number {number} was field {_short(old)} and is {_field(change)} now"


def _value(change: Change, text: str) -> str:
    return f"value {_short(_name_and_number(text)[0])} of {_field(change)}"


def _name_and_number(text: str) -> tuple[str, str]:
    """Of a field or an enum value, from its declaration."""
    rest, _, number = text.rpartition(" = ")
    return rest.rpartition(" ")[2], number


def _type_of(text: str) -> str:
    """The type of a field with its label, from its declaration."""
    return text.rpartition(" = ")[0].rpartition(" ")[0]


def _short(text: str, most: int = LONGEST_NAME) -> str:
    """Names may come from anybody."""
    text = one_line(text[:most])
    return text if len(text) < most else f"{text[: most - 1]}…"


DIFFERENCES: Mapping[Kind, Callable[[Change], str]] = {
    "added": lambda c: f"{_field(c)} is new",
    "readded": lambda c: f"{_field(c)} is back, which the version before did not have",
    "removed": lambda c: f"{_field(c)} is gone",
    "rename": _renamed,
    "column": lambda c: f"{_field(c)} has another column, because a field whose name differs only by case came or went",
    "swap": _reused,
    "renumber": _renumbered,
    "reuse": _reused,
    "presence": lambda c: f"{_field(c)} can be told from its default now if it is not set",
    "no_presence": lambda c: f"{_field(c)} cannot be told from its default any more if it is not set",
    "oneof": lambda c: f"{_field(c)} has moved into, out of or between oneofs",
    "default": lambda c: f"{_field(c)} has another default",
    "required": lambda c: f"{_field(c)} is required now, or is no longer",
    "shape": lambda c: f"{_field(c)} has a message that got its first field, lost its last, or contains itself",
    "decimal": lambda c: f"{_field(c)} declares another precision or scale, or declares them no more",
    "enum_added": lambda c: f"{_value(c, c.new)} is new",
    "enum_removed": lambda c: f"{_value(c, c.old)} is gone",
    "enum_rename": lambda c: f"{_value(c, c.old)} was renamed to {_short(_name_and_number(c.new)[0])}",
    "message_added": lambda c: f"message {_short(c.new)} is new",
    "message_removed": lambda c: f"message {_short(c.old)} is gone",
    "moved": lambda c: f"message {_short(c.old)} is {_short(c.new)} now",
}
OUTCOMES: Mapping[Kind, Callable[[Change], str]] = {
    "added": lambda c: f"new rows fill {_column(c.after)}, and older rows are NULL there",
    "readded": lambda c: f"new rows fill {_column(c.after)}, which has values of earlier versions",
    "removed": _removed,
    "rename": _another,
    "column": _another,
    "swap": _swap,
    "renumber": lambda c: f"{_goes_on(c)}, which older rows filled from number {_name_and_number(c.old)[1]}",
    "reuse": _another,
    "narrow": lambda c: f"{_goes_on(c)}, without the values that need more bits",
    "sign": _sign,
    "presence": lambda c: f"{_column(c.after)} is NULL in new rows that do not set it",
    "no_presence": lambda c: f"{_column(c.after)} has the default in new rows that do not set it",
    "enum_added": lambda c: f"new rows may have it in {_column(c.after)}",
    "enum_removed": lambda c: f"new rows have it no more in {_column(c.after)}",
    "enum_rename": lambda c: f"{_column(c.after)} has the new name in new rows and the old one in older rows",
    "message_added": lambda c: "its columns come with its first record",
    "message_removed": lambda c: "its records come with earlier versions only",
    "moved": lambda c: "its rows count as another message type of their tables",
}
