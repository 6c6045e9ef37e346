"""Generates the tables of the page `docs/decoding.md` from the code that they describe.

`python -m scripts.pages` writes them into the page; a test fails if they are out of date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import Schema

from scripts.change_cases import CASES, Case
from spark_app.model.catalog import Decodable
from spark_app.model.causes import CAUSE_HELP
from spark_app.model.record_schemas import RESERVED
from spark_app.model.schema_changes import DEFAULTS, SchemaChange
from spark_app.protobuf.changes.comparison import mark_readded
from spark_app.protobuf.changes.decisions import decided
from spark_app.protobuf.changes.differences import Version, differences
from spark_app.protobuf.changes.outcomes import Judgement, schema_changes_of
from spark_app.protobuf.columns.conversions import BIG, BYTES, CONVERSIONS, FLAG, INTEGER, REAL, TEXT
from spark_app.protobuf.columns.types import arrow_schema, ordered_fields
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.descriptors import compile_sources, digest
from spark_app.protobuf.schemas.ledger import message_types
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.protobuf.schemas.resolver import limits_of
from spark_app.settings.models import Schemas

PAGE = Path(__file__).parents[1] / "docs" / "decoding.md"
BLOCK = re.compile(r"(<!-- (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
CAPS = (
    "max_text_bytes",
    "max_files",
    "max_messages",
    "max_columns",
    "max_total_columns",
    "max_compile_cpu_s",
    "max_compile_bytes",
    "max_unknown_ids_per_batch",
    "unknown_id_grace_s",
)
# Declaration of a field -> a note besides its type.
FIELDS = {
    "double": "",
    "float": "",
    "int32": "and `sint32`, `sfixed32`",
    "uint32": "and `fixed32`; never negative",
    "int64": "and `sint64`, `sfixed64`",
    "uint64": "and `fixed64`; never wraps",
    "bool": "",
    "string": "",
    "bytes": "",
    "Suit": "an enum: the value's name (the first of several aliases), or its number as text if it has no name",
    "google.protobuf.Timestamp": "nanoseconds are cut off; a time outside the years 1 to 9999 goes to quarantine",
    "google.protobuf.Duration": "microseconds; a duration of more than ten thousand years goes to quarantine",
    "google.protobuf.StringValue": "all nine wrappers become the wrapped type; an absent one is NULL",
    "google.protobuf.UInt64Value": "",
    "google.protobuf.Any": "JSON text; if the schema's files do not declare the type: its URL and the bytes in base64",
    "google.protobuf.Struct": "JSON text; `Value` and `ListValue` too",
    "google.protobuf.FieldMask": "",
    "google.protobuf.Empty": "true if it is present; the same for any message without fields",
    "google.type.Money": "decoded like any message; the same for all of `google/type`",
    "confluent.type.Decimal": "decoded like any message, because each value has its own scale",
    "confluent.type.Decimal (10, 2)": "in new tables, if the field declares precision and scale, see below",
    "Point": "a message; also a group, or one that is `DELIMITED`",
    "Event": "a recursive message, or one that is 15 levels deep: JSON text, nothing is dropped",
    "repeated int32": "an absent list is empty, not NULL",
    "map<string, Point>": "the order of the entries has no meaning; if a key is there twice, the last value counts",
}
# (the message's type, the column's) -> the values that are converted.
CONVERTED = {
    (INTEGER, BIG): "all",
    (BIG, INTEGER): "up to 2^63 - 1",
    (FLAG, INTEGER): "all, to 0 and 1",
    (INTEGER, FLAG): "0 and 1",
    (INTEGER, TEXT): "all, to decimal digits",
    (TEXT, BYTES): "all, to UTF-8",
    (BYTES, TEXT): "UTF-8",
    (INTEGER, REAL): "from -2^53 to 2^53",
    (REAL, INTEGER): "whole numbers from -2^53 to 2^53",
}
META = ' [(confluent.field_meta) = {params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}]'
DECLARED = {"confluent.type.Decimal (10, 2)": ("confluent.type.Decimal", META)}  # -> type, options
SAMPLE = """syntax = "proto3";
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/type/money.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
enum Suit { CLUBS = 0; }
message Point { int32 x = 1; }
message Event { %s }"""


def render(page: str) -> str:
    """The page with the tables of the current code."""
    tables = {
        "conversions": conversions,
        "types": types,
        "causes": causes,
        "caps": caps,
        "columns": columns,
        "changes": changes,
    }
    return BLOCK.sub(lambda block: f"{block[1]}{tables[block[2]]()}{block[3]}", page)


def types() -> str:
    """The column type of each kind of field."""
    declared_as = [DECLARED.get(declared, (declared, "")) for declared in FIELDS]
    fields = " ".join(f"{kind} f{number} = {number}{rest};" for number, (kind, rest) in enumerate(declared_as, 1))
    descriptor_set = compile_text(SAMPLE % fields)
    message = next(m for m in load_files(descriptor_set)[1] if m.full_name == "Event")
    assert [f.number for f in ordered_fields(message)] == list(range(1, len(FIELDS) + 1))
    kinds = [field.type for field in arrow_schema(message)]
    rows = [
        (f"`{declared}`", f"`{kind}`", f"`{_delta(kind)}`", note)
        for (declared, note), kind in zip(FIELDS.items(), kinds, strict=True)
    ]
    return _table(("Protobuf", "Arrow", "Delta", "note"), rows)


def conversions() -> str:
    """The conversions of values to the type of their column."""
    rows = [(f"`{_delta(kind)}`", f"`{_delta(column)}`", CONVERTED[kind, column]) for kind, column in CONVERSIONS]
    assert len(rows) == len(CONVERTED)
    rows.append(("`confluent.type.Decimal`", "any DECIMAL", "numbers of at most 38 digits that it has exactly"))
    return _table(("value", "column", "which values"), rows)


def causes() -> str:
    return _table(("cause", "meaning"), [(f"`{cause.value}`", text) for cause, text in CAUSE_HELP.items()])


def caps() -> str:
    fields = Schemas.model_fields
    rows = [(f"`{name}`", f"{fields[name].default:,}", fields[name].description or "") for name in CAPS]
    return _table(("`schemas.`", "default", "limit"), rows)


def columns() -> str:
    return ", ".join(f"`{name}`" for name in sorted(RESERVED))


def changes() -> str:
    """What each kind of difference between two versions does."""
    rows = []
    for case in CASES:
        change = next(change for change in findings(case) if change.kind == case.kind)
        old, new = (f"`{text}`" if text else "-" for text in case.shown)
        policy, said = _policy(case), change.said.partition(": ")[2]
        rows.append((f"`{case.kind}`", policy, old, new, change.severity, said))
    return _table(("kind", "policy", "before", "now", "severity", "what happens to the tables"), rows)


def _policy(case: Case) -> str:
    if case.policy:
        return f"`{case.policy}`"
    if case.others:
        return f"none, and `{case.others}` for all others"
    return f"`{DEFAULTS[case.kind]}`, the default" if case.kind in DEFAULTS else "none, the default"


def findings(case: Case) -> list[SchemaChange]:
    """What the app finds in a case."""
    *earlier, old, new = versions(case)
    decoded = [one.decoded for one in (*earlier, old, new)]
    known, _ = message_types(Decodable(key, one, digest(one)) for key, one in enumerate(decoded, 1))
    return schema_changes_of(mark_readded(differences(old, new), decoded[:-2]), known, judgement(case))


def judgement(case: Case) -> Judgement:
    return Judgement(case.policies, routing="game_name", named=frozenset({"game_name"}))


def versions(case: Case) -> list[Version]:
    """The versions of a case, each decided after those before it."""
    found: list[Version] = []
    for own in map(compile_text, case.versions):
        earlier = [one.decoded for one in found]
        found.append(Version(own, decided(own, found[-1], earlier, judgement(case)) if found else own))
    return found


def compile_text(text: str) -> bytes:
    return compile_sources(Sources(texts={ROOT: text}), limits_of(Schemas()))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _delta(kind: pa.DataType) -> str:
    return _spell(Schema.from_arrow(pa.schema([("x", kind)])).fields[0].type)


def _spell(kind: object) -> str:
    """A Delta type in SQL's notation."""
    text = str(getattr(kind, "type", kind))
    inner = {"array": ("element_type",), "map": ("key_type", "value_type")}.get(text, ())
    if text == "struct":
        return f"struct<{', '.join(f'{f.name}: {_spell(f.type)}' for f in kind.fields)}>"  # type: ignore[attr-defined]
    return f"{text}<{', '.join(_spell(getattr(kind, name)) for name in inner)}>" if inner else text


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
