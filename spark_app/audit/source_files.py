"""A source of files as the audit reads it: by the ledger and the manifests, with code of its own."""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import hashlib
import io
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.audit.frames import Header
from spark_app.audit.source_records import FIRST, LAST, NO_TYPE, Records
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.files.store_errors import is_store_error
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, UnreachableError, first_message_line
from spark_app.model.offsets import Span
from spark_app.settings.models import Settings

IDENTITY = "files"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
CHUNK = 1 << 20
MOST_LOOKS = 3
RESTORE = "restore it from a backup"
READABLE = "the audit compares the records of ingested files with the tables; make the file readable"
GONE = "files were ingested and are gone or replaced since: their records were compared with bronze instead"


@dataclass
class _File:
    key: str
    digest: str
    first: int
    done: int
    time: int  # microseconds since 1970
    intact: bool | None = field(default=None, compare=False)  # None = not looked at yet


@dataclass(frozen=True)
class _Row:
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    time: int | None
    blank: bool = False  # a line without a record


class Files:
    """The files of the settings' source."""

    def __init__(self, settings: Settings):
        """
        Raises:
            ContractError: the ledger is damaged, or a part of it is missing.
        """
        self._source = settings.source
        self._folder = open_storage(settings.source_address)
        self._most = settings.batch.max_record_bytes
        lake = Lake(settings.lake_address)
        found: dict[str, dict[str, Any]] = {}
        for entry in _ledger(lake):
            if entry["done"] >= found.get(entry["key"], entry)["done"]:
                found[entry["key"]] = entry
        ordered = sorted(found.values(), key=lambda entry: int(entry["first"]))
        _check_numbers(ordered)
        self._files = [_File(e["key"], e["digest"], e["first"], e["done"], e["time"] // 1000) for e in ordered]
        self._firsts = [file.first for file in self._files]
        self._open: tuple[_File, int, Iterator[_Row]] | None = None  # with the row that comes next

    def topic_id(self, topic: str) -> str | None:
        return IDENTITY if topic == self._source.name else None

    def is_compacted(self, topic: str) -> bool:
        """Whether records may be gone: then bronze is compared with itself where their files are."""
        return any(not self._is_intact(file) for file in self._files)

    def kept(self, topic: str, partition: int) -> int:
        return 0

    def ends(self, topic: str) -> dict[int, int]:
        return {0: max((file.first + file.done for file in self._files), default=0)}

    def unproven(self) -> dict[str, int]:
        """Reason why the audit proves nothing -> number of files."""
        gone = sum(not self._is_intact(file) for file in self._files)
        return {GONE: gone} if gone else {}

    def read(self, spans: Sequence[Span], most_bytes: int) -> tuple[Records, list[Span]]:
        records, read = Records(), []
        for span in spans:
            at = span.start
            while at < span.end and most_bytes > 0:
                file = self._file_of(at)
                end = min(span.end, file.first + file.done) if file else span.end
                if file is not None and self._is_intact(file):
                    end, most_bytes = self._add(records, file, (at, end), most_bytes)
                at = end
            read.append(Span(span.topic, span.partition, span.start, at))
        return records, read

    def _file_of(self, number: int) -> _File | None:
        position = bisect_right(self._firsts, number) - 1
        return self._files[position] if position >= 0 else None

    def _is_intact(self, file: _File) -> bool:
        if file.intact is None:
            digest = hashlib.sha256()
            try:
                with self._folder.open_input(file.key) as opened:
                    while chunk := opened.read(CHUNK):
                        digest.update(chunk)
                file.intact = digest.hexdigest() == file.digest
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
                file.intact = False
            except OSError as error:  # nobody knows what became of the file
                if is_store_error(error):
                    raise
                where, why = self._folder.uri(file.key), first_message_line(error)
                raise UnreachableError(f"{where} cannot be read ({why}): {READABLE}") from error
        return file.intact

    def _add(self, records: Records, file: _File, numbers: tuple[int, int], most_bytes: int) -> tuple[int, int]:
        """Add rows of a file; returns (the number after the last one, bytes that are left)."""
        start, end = numbers[0] - file.first, numbers[1] - file.first
        at, rows = self._rows_from(file, start)
        while at < end and most_bytes > 0:
            row = next(rows, None)
            if row is None:
                break
            if not row.blank:
                self._add_row(records, file, at, row)
                most_bytes -= len(row.value or b"") + len(row.key or b"")
            at += 1
        self._open = (file, at, rows)
        return file.first + at, most_bytes

    def _rows_from(self, file: _File, row: int) -> tuple[int, Iterator[_Row]]:
        """(row, the rows from it on); goes on in the file that was read last."""
        at, rows = 0, None
        if self._open is not None and self._open[0] is file and self._open[1] <= row:
            _, at, rows = self._open
        rows = rows if rows is not None else self._rows(file)
        while at < row and next(rows, None) is not None:
            at += 1
        return row, rows

    def _add_row(self, records: Records, file: _File, at: int, row: _Row) -> None:
        records.partition.append(0)
        records.offset.append(file.first + at)
        records.key.append(row.key)
        records.value.append(row.value)
        records.headers.append(row.headers)
        records.time.append(file.time if row.time is None else row.time)
        records.time_type.append(NO_TYPE if row.time is None else 0)
        if row.value is not None and len(row.value) > self._most:
            records.leave_out(len(records) - 1)

    def _rows(self, file: _File) -> Iterator[_Row]:
        if file.key.lower().endswith(".parquet"):
            with self._folder.open_input(file.key) as opened, pq.ParquetFile(opened) as parquet:
                source, schema = self._source, parquet.schema_arrow
                own = [
                    name
                    for name in (source.key, source.value, source.headers, source.timestamp)
                    if name in schema.names
                ]
                for batch in parquet.iter_batches(1000, columns=own, use_threads=False):
                    for values in _dicts(_with_times(batch, source.timestamp)):
                        yield self._of_parquet(values)
        else:
            with self._folder.open_input(file.key) as opened:
                for line in _uncompressed(opened, file.key):
                    yield self._of_line(line.removesuffix(b"\n"))

    def _of_parquet(self, values: dict[str, Any]) -> _Row:
        source = self._source
        key, value = _unpacked(values.get(source.key)), _unpacked(values.get(source.value))
        return _Row(key, value, _headers(values.get(source.headers), source.headers), values.get(source.timestamp))

    def _of_line(self, line: bytes) -> _Row:
        if not line.strip():
            return _Row(None, None, (), None, blank=True)
        source = self._source
        try:
            found = json.loads(line)
            value, key = found[source.value], found.get(source.key)
            given, moment = found.get(source.headers), found.get(source.timestamp)
            headers = _headers_in_base64(json.loads(given) if isinstance(given, str) else given)
            return _Row(_decoded(key), _decoded(value), headers, _time_of(moment))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return _Row(None, line, (), None)


def _check_numbers(ordered: Sequence[dict[str, Any]]) -> None:
    """The rows of ingested files are numbered without a gap."""
    at = 0
    for entry in ordered:
        if entry["first"] != at:
            raise ContractError(
                f"the ledger of ingested files lacks the rows {at:,} to {entry['first'] - 1:,}", RESTORE
            )
        at += entry["done"]


def _ledger(lake: Lake) -> list[dict[str, Any]]:
    """The entries of ingested files; of a split file there may be several. The app may merge segments meanwhile."""
    for _ in range(MOST_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            return list(_entries(lake))
    try:
        return list(_entries(lake))
    except FileNotFoundError as error:
        raise ContractError(f"a segment of {lake.storage.uri(lake.ingested)} is missing ({error})", RESTORE) from None


def _entries(lake: Lake) -> Iterator[dict[str, Any]]:
    names = [key for key in lake.storage.list(lake.ingested) if key.endswith(".parquet")]
    spans = [tuple(map(int, key.rsplit("/", 1)[-1].removesuffix(".parquet").split("-"))) for key in names]
    for key in names:
        try:
            with lake.storage.open_input(key) as file:
                yield from pq.read_table(file).to_pylist()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            if is_store_error(error):
                raise
            raise ContractError(f"{lake.storage.uri(key)} is damaged ({error})", RESTORE) from None
    newest = max((last for _, last in spans), default=0)
    for number in lake.units():
        if number > newest:
            stored = read_durable(lake.storage, f"{lake.manifests}/{number:012d}.json") or {}
            yield from json.loads(stored.get("manifest", "{}")).get("source", {}).get("files", ())


def _uncompressed(file: pa.NativeFile, key: str) -> io.BufferedIOBase:
    if key.lower().endswith(".gz"):
        return gzip.GzipFile(fileobj=file)
    return io.BufferedReader(pa.CompressedInputStream(file, "zstd") if key.lower().endswith(".zst") else file)


def _dicts(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for row in zip(*(map(_python, column) for column in batch.columns), strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _python(value: pa.Scalar) -> Any:
    """The value; where it has text that is not UTF-8, which a writer need not notice, bytes."""
    with contextlib.suppress(UnicodeDecodeError):
        return value.as_py()
    match value:
        case pa.DictionaryScalar():
            return _python(value.value)
        case pa.StructScalar():
            return {name: _python(one) for name, one in value.items()}
        case pa.ListScalar():
            return [_python(one) for one in value.values]
    return value.as_buffer().to_pybytes()


def _headers(given: Any, name: str) -> list[Header]:
    """The headers of a row; those that are none are the value of one header."""
    try:
        if isinstance(given, str):
            return _headers_in_base64(json.loads(given))
        return [(str(one["key"]), _bytes(one.get("value"))) for one in given or ()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if isinstance(given, bytes):
            return [(name, given)]
        return [(name, str(given).encode())]


def _headers_in_base64(given: Any) -> list[Header]:
    headers = [(str(one["key"]), _decoded(one.get("value"))) for one in given or ()]
    "".join(key for key, _ in headers).encode()  # a lone surrogate is no text
    return headers


def _unpacked(value: bytes | str | None) -> bytes | None:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return value.encode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _bytes(value: Any) -> bytes | None:
    if not isinstance(value, bytes | str | None):
        raise TypeError
    return value.encode() if isinstance(value, str) else value


def _time_of(value: Any) -> int | None:
    if isinstance(value, str):
        if value.isascii() and value.removeprefix("-").isdigit():
            return _limited(int(value))
        return _micros(datetime.datetime.fromisoformat(value))
    if value is None:
        return None
    if type(value) is not int:
        raise TypeError
    return _limited(value)


def _with_times(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The batch with microseconds for the timestamps, which may be later than Python's last year."""
    position = batch.schema.get_field_index(name)
    if position < 0 or pa.types.is_null(batch.schema.types[position]):
        return batch
    kind, column = batch.schema.types[position], batch.column(position)
    unit, counts = (kind.unit, column.cast(pa.int64())) if pa.types.is_timestamp(kind) else ("ms", column)
    times = [None if count is None else _micros_of(count, unit) for count in counts.to_pylist()]
    return batch.set_column(position, name, pa.array(times, pa.int64()))


def _micros_of(count: int, unit: str) -> int:
    """Parquet has no other units than these three."""
    if unit == "ns":
        return count // 1000 if count >= 0 else -(-count // 1000)
    return _limited(count) if unit == "ms" else max(min(count, LAST), FIRST)


def _limited(millis: int) -> int:
    return max(min(millis, LAST // 1000), FIRST // 1000) * 1000


def _micros(moment: datetime.datetime) -> int:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // MICROSECOND
