"""The columns of a file of records, and their conversion to `SOURCE_SCHEMA`."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.record_schemas import (
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    OMITTED_SCHEMA,
    SOURCE_SCHEMA,
    bounded_times,
)
from spark_app.settings.models import Source

TIME = SOURCE_SCHEMA.field("timestamp").type
CREATED, NO_TYPE = 0, -1  # Kafka's types of a timestamp: the record's own time, and none
DIGITS = re.compile("-?[0-9]+")
FACTORS = {"s": 1_000_000, "ms": 1000, "us": 1}  # microseconds of a unit


@dataclass(frozen=True)
class SourceColumns:
    """The names of the columns; all but the value may be missing in a file."""

    value: str
    key: str
    headers: str
    timestamp: str

    @staticmethod
    def of(source: Source) -> SourceColumns:
        return SourceColumns(source.value, source.key, source.headers, source.timestamp)

    @property
    def names(self) -> list[str]:
        return [self.value, self.key, self.headers, self.timestamp]

    def problem(self, schema: pa.Schema) -> str | None:
        """Why a Parquet file with these columns has no records; None if it has."""
        if self.value not in schema.names:
            return f"it has no column {self.value} (source.value)"
        for name in (self.value, self.key):
            if (
                name in schema.names
                and not _is_bytes(schema.field(name).type)
                and not _is_text(schema.field(name).type)
            ):
                return f"its column {name} is neither binary nor text but {schema.field(name).type}"
        if self.timestamp in schema.names:
            kind = schema.field(self.timestamp).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                return f"its column {self.timestamp} is neither a timestamp nor an integer but {kind}"
        if self.headers in schema.names:
            kind = schema.field(self.headers).type
            if not (_is_text(kind) or is_list(kind) or pa.types.is_null(kind)):
                return f"its column {self.headers} is neither text nor a list but {kind}"
        return None

    def from_parquet(self, batch: pa.RecordBatch, topic: str, first: int, file_us: int) -> pa.RecordBatch:
        """
        Args:
            first: number of the first row.
            file_us: time of the file in microseconds since 1970, for rows without a timestamp.
        """
        times = _times(self._column(batch, self.timestamp))
        return _assemble(
            _bytes(self._column(batch, self.key)),
            _bytes(self._column(batch, self.value)),
            _headers(self._column(batch, self.headers), self.headers),
            times,
            (topic, np.arange(first, first + len(batch)), file_us),
        )

    @staticmethod
    def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
        found = batch.column(name) if name in batch.schema.names else pa.nulls(len(batch))
        return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found

    def from_lines(self, lines: list[tuple[int, bytes]], topic: str, file_us: int) -> pa.RecordBatch:
        """`lines` are (number, line). A line that is no record becomes a record with the line as its value, so that it
        is quarantined with its bytes."""
        rows = [self._read_line(line) for _, line in lines]
        keys, values, headers, times = zip(*rows, strict=True)
        numbers = np.array([number for number, _ in lines], np.int64)
        return _assemble(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers, pa.string()),
            pa.array(times, pa.int64()).cast(TIME),
            (topic, numbers, file_us),
        )

    def _read_line(self, line: bytes) -> tuple[bytes | None, bytes | None, str | None, int | None]:
        """(key, value, headers, microseconds) of a line."""
        try:
            found = json.loads(line)
            value, key = decode_text(found[self.value]), decode_text(found.get(self.key))
            return key, value, header_text(found.get(self.headers)), _microseconds(found.get(self.timestamp))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError):
            return None, line, None, None


def _assemble(
    keys: pa.Array, values: pa.Array, headers: pa.Array, times: pa.Array, origin: tuple[str, np.ndarray, int]
) -> pa.RecordBatch:
    topic, numbers, file_us = origin
    count = len(values)
    own = np.asarray(times.is_valid())
    columns = [
        keys,
        values,
        headers,
        pa.repeat(pa.scalar(topic), count),
        pa.array(np.zeros(count, np.int32)),
        pa.array(numbers),
        times.fill_null(pa.scalar(file_us, TIME)),
        pa.array(np.where(own, CREATED, NO_TYPE).astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SOURCE_SCHEMA)


def leave_out(batch: pa.RecordBatch, most: int) -> pa.RecordBatch:
    """Replace values over `most` bytes by NULL, their size and their hash, in the columns of `OMITTED_SCHEMA`."""
    large = pc.greater(pc.binary_length(batch.column("value")), most).fill_null(False)
    if not pc.any(large).as_py():
        return batch
    values = batch.column("value")
    flags = large.to_pylist()
    sizes = [len(values[row].as_py()) if flag else None for row, flag in enumerate(flags)]
    hashes = [hashlib.sha256(values[row].as_py()).hexdigest() if flag else None for row, flag in enumerate(flags)]
    kept = pc.if_else(large, pa.scalar(None, pa.binary()), values)
    columns = [kept if name == "value" else batch.column(name) for name in batch.schema.names]
    columns += [pa.array(sizes, pa.int64()), pa.array(hashes, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *OMITTED_SCHEMA.names])


def decode_text(text: str | bytes | None) -> bytes | None:
    """
    Raises:
        ValueError, TypeError: it is not base64.
    """
    return None if text is None else base64.b64decode(text, validate=True)


def header_text(value: Any) -> str | None:
    """Bronze's JSON of headers: a list of {key, value} with values in base64, as text or not.

    Raises:
        ValueError, TypeError, KeyError: it is none, or its text is not Unicode.
    """
    given = json.loads(value) if isinstance(value, str) else value
    if not given:
        return None
    found = [{"key": str(one["key"]), "value": _checked(one.get("value"))} for one in given]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode().decode()


def _checked(value: str | None) -> str | None:
    decode_text(value)
    return value


def _microseconds(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and DIGITS.fullmatch(value):  # proto3's JSON has integers of 64 bits as text
        value = int(value)
    if isinstance(value, str):
        moment = datetime.datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return max(min(value, LAST_MICROSECOND // 1000), FIRST_MICROSECOND // 1000) * 1000


def _is_bytes(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _bytes(column: pa.Array) -> pa.Array:
    if not _is_text(column.type):
        return column.cast(pa.binary())
    return pa.array([_or_itself(text) for text in _texts(column)], pa.binary())


def _texts(column: pa.Array) -> list[bytes | None]:
    """Texts as bytes, because writers do not check that they are UTF-8."""
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _or_itself(text: bytes | None) -> bytes | None:
    """The bytes of base64; a text that is none stays as it is, so that it is quarantined with its bytes."""
    try:
        return decode_text(text)
    except (ValueError, binascii.Error):
        return text


def _headers(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    read: Callable[[Any], str | None] = _of_text(name) if _is_text(column.type) else _of_list(name)
    given = _texts(column) if _is_text(column.type) else map(_plain, column)
    return pa.array([None if value is None else read(value) for value in given], pa.string())


def _plain(value: pa.Scalar) -> Any:
    """As Python has it; a text that is not UTF-8 as its bytes."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        if isinstance(value, pa.StringScalar):
            return value.as_buffer().to_pybytes()
        if isinstance(value, pa.DictionaryScalar):
            return _plain(value.value)
        if isinstance(value, pa.StructScalar):
            return {name: _plain(value[name]) for name in value}
        return [_plain(one) for one in value.values]


def _of_text(name: str) -> Callable[[Any], str | None]:
    def read(text: bytes) -> str | None:
        try:
            return header_text(text.decode())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError):  # one header has it then
            return header_text([{"key": name, "value": base64.b64encode(text).decode()}])

    return read


def _of_list(name: str) -> Callable[[Any], str | None]:
    """Spark's form of headers: a list of structs with a key and a binary value."""

    def read(found: list[dict[str, Any]]) -> str | None:
        def encoded(value: Any) -> str | None:
            raw = value.encode() if isinstance(value, str) else value
            return None if raw is None else base64.b64encode(raw).decode()

        try:
            return header_text([{"key": one["key"], "value": encoded(one.get("value"))} for one in found])
        except (ValueError, TypeError, KeyError, AttributeError):
            return header_text([{"key": name, "value": base64.b64encode(repr(found).encode()).decode()}])

    return read


def _times(column: pa.Array) -> pa.Array:
    """Timestamps of any unit, or integers in milliseconds, as those of Kafka; a time without a zone is UTC."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), TIME)
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
    unit = "ms" if pa.types.is_integer(column.type) else column.type.unit
    if unit == "ns":
        column, unit = column.cast(pa.timestamp("us", column.type.tz), safe=False), "us"
    return bounded_times(column.cast(pa.int64()), FACTORS[unit])[0]
