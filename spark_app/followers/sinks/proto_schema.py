"""The Protobuf schema of a table: what a sink registers for its rows.

    _protolake/sinks/crm/field_numbers.json    path of a column -> its field number, for ever

A field has the number of the column's field id where the lake has one (docs/decoding.md), moved past what Protobuf
keeps for itself. NULL is an absent field; only a list or map that is NULL comes back empty. Of a table whose rows
change, `OPERATION` is no field: a row that is gone has no message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_app.followers.sinks.sink import OPERATION
from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.columns import Path, paths_of
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.schemas.descriptors import clean

RESERVED = range(19_000, 20_000)  # Protobuf's own numbers
LARGEST = 2**29 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TIME, TIMESTAMP = "google/protobuf/timestamp", ".google.protobuf.Timestamp"
KINDS: list[tuple[Any, str]] = [
    (pa.types.is_boolean, "bool"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_signed_integer, "int32"),
    (pa.types.is_uint64, "uint64"),
    (pa.types.is_unsigned_integer, "uint32"),
    (lambda kind: kind == pa.decimal128(20, 0), "uint64"),  # what the lake makes of one
    (pa.types.is_decimal, "string"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_timestamp, TIMESTAMP),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytes"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
    (lambda kind: pa.types.is_date(kind) or pa.types.is_time(kind), "string"),
]
KEYS = {"string", "int32", "int64", "uint32", "uint64", "bool"}  # of maps


def schema_of(table: str, columns: pa.Schema, numbers: Mapping[str, int], comments: Mapping[Path, str]) -> str:
    """The text of a .proto file with one message.

    Args:
        numbers: of all paths of the columns.
        comments: path, () = the table -> comment.

    Raises:
        ConfigurationError: Protobuf has no such name or type.
    """
    package = table if NAME.fullmatch(table) else f"t_{table}"
    fields = [field for field in columns if field.name != OPERATION]
    message = _Messages(numbers, comments).text(_camel(package), fields, "", (), [])
    lines = [*_comment(comments.get(()), ""), *message]
    imports = [f'import "{TIME}.proto";', ""] if any(TIMESTAMP in line for line in lines) else []
    return "\n".join(['syntax = "proto3";', "", f"package protolake.{package};", "", *imports, *lines, ""])


class _Messages:
    def __init__(self, numbers: Mapping[str, int], comments: Mapping[Path, str]):
        self._numbers = numbers
        self._comments = comments
        self._fields: dict[int, set[str]] = {}  # level -> the names of the fields of the message there

    def text(self, name: str, fields: Sequence[pa.Field], path: str, at: Path, above: list[str]) -> list[str]:
        """The lines of a message.

        Args:
            path, at: to the struct that it is, as the numbers and the comments have it.
            above: the names of the messages around it.
        """
        inside = [*above, name]
        self._fields[len(inside)] = {field.name for field in fields}
        indent = "  " * len(above)
        lines = [f"{indent}message {name} {{"]
        for field in fields:
            own, place = f"{path}{field.name}", (*at, field.name)
            if not NAME.fullmatch(field.name):
                text = (
                    f"a field of Protobuf cannot have the name {field.name!r}: rename it, or set `columns` of the sink"
                )
                raise ConfigurationError(f"{own}: {text}")
            nested, kind = self._kind(field.type, own, place, inside)
            lines += [*nested, *_comment(self._comments.get(place), f"{indent}  ")]
            lines.append(f"{indent}  {kind} {field.name} = {self._numbers[own]};")
        return [*lines, f"{indent}}}"]

    def _kind(self, kind: pa.DataType, path: str, at: Path, above: list[str]) -> tuple[list[str], str]:
        """(the lines of the message that a field declares, its label and type)"""
        if pa.types.is_list(kind):
            nested, item = self._one(kind.value_type, f"{path}.element", at, above)
            return nested, f"repeated {item}"
        if pa.types.is_map(kind):
            _, key = self._one(kind.key_type, path, at, above)
            nested, item = self._one(kind.item_type, f"{path}.value", at, above)
            if key not in KEYS:
                raise _refusal(path, kind)
            return nested, f"map<{key}, {item}>"
        nested, item = self._one(kind, path, at, above)
        return nested, item if nested or item == TIMESTAMP else f"optional {item}"

    def _one(self, kind: pa.DataType, path: str, at: Path, above: list[str]) -> tuple[list[str], str]:
        if pa.types.is_struct(kind):
            name = _camel(at[-1])
            while name in above or name in self._fields[len(above)]:  # Java allows no class within one of its name
                name += "Value"
            return self.text(name, list(kind), f"{path}.", at, above), name
        found = next((name for is_one, name in KINDS if is_one(kind)), None)
        if found is None:
            raise _refusal(path, kind)
        return [], found


def _refusal(path: str, kind: pa.DataType) -> ConfigurationError:
    text = f"Protobuf has no type for {kind}: leave the column out with `columns` of the sink"
    return ConfigurationError(f"{path}: {text}")


def _comment(text: str | None, indent: str) -> list[str]:
    return [f"{indent}// {clean(text)}"] if text else []


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_")) or "Row"


def comments_of(schema: str) -> dict[Path, str]:
    """The comments in a table's schema, which is Delta's JSON."""
    return dict(_comments(json.loads(schema), ()))


def _comments(kind: Any, at: Path) -> Iterator[tuple[Path, str]]:
    if not isinstance(kind, dict):
        return
    for part in ("elementType", "valueType"):
        yield from _comments(kind.get(part), at)
    for field in kind.get("fields", ()):
        path = (*at, field["name"])
        if text := field["metadata"].get("comment"):
            yield path, text
        yield from _comments(field["type"], path)


class FieldNumbers:
    """Of one sink."""

    def __init__(self, lake: Lake, folder: str):
        """`folder` is the key of the folder of the sink."""
        self._lake = lake
        self._key = f"{folder}/field_numbers.json"

    def assign(self, columns: pa.Schema) -> Mapping[str, int]:
        """Path -> number, for at least these columns. New ones are durable before a schema has them.

        Raises:
            ConfigurationError: there are more columns than numbers.
            ContractError: a file of numbers is damaged.
        """
        storage = self._lake.storage
        found: dict[str, int] = read_durable(storage, self._key) or {}
        lacking = [path for path in paths_of(columns) if path not in found]
        if lacking:
            ids = {path: _moved(number) for path, number in (read_durable(storage, self._lake.field_ids) or {}).items()}
            taken, last = set(found.values()), max([0, *ids.values(), *found.values()])
            for path in dict.fromkeys(lacking):
                number = ids.get(path, 0)
                if not number or number in taken:
                    number = last = last + 1 if last + 1 not in RESERVED else RESERVED.stop
                if number > LARGEST:
                    raise ConfigurationError(f"{path}: Protobuf has no more field numbers")
                found[path] = number
                taken.add(number)
            self._lake.lease.check()
            write_durably(storage, self._key, json.dumps(found, indent=0), "sink.state")
        return found


def _moved(number: int) -> int:
    """Past the numbers that Protobuf keeps for itself."""
    return number if number < RESERVED.start else number + len(RESERVED)
