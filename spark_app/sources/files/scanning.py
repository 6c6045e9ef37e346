"""Scans a file before it is ingested: is it whole, which digest has its content, and which pieces do tasks read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_app.lake.files.beneath import NotRegular
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import first_message_line
from spark_app.sources.files.columns import SourceColumns, is_list
from spark_app.sources.files.folder import Changed, Listed, SourceFolder
from spark_app.sources.files.memory import made_within_limit

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

CHUNK_BYTES = 1 << 20
PIECE_BYTES = 4 << 20
PIECE_ROWS = 1000  # of Parquet; with it all pieces of one content are always the same, so a start can go on after any
PARQUET, JSON = "parquet", "json"
ENDINGS = {".parquet": PARQUET, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}
CODECS = {".gz": "gzip", ".zst": "zstd"}
MOST_RATIO = 1000  # records to the size of their file: gzip reaches no more, and others only with what is almost empty
LEAST_BYTES = 64 << 20  # of records, which no ratio refuses
LONGEST = 256 << 20  # of a line, or of the rows of a piece: a task keeps it in memory
# What a file server or a machine without resources answers for a time; it says nothing about the file.
MAY_PASS = {
    *(errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
}


class Unreadable(Exception):
    """A file is not whole, or not of its format; the text says why."""


@dataclass(frozen=True)
class Piece:
    """A part of a file that is read at once: some lines, or some rows of a row group.

    Attributes:
        row: the number of rows of the file before it.
        start, end: bytes of the lines, as they are uncompressed; of rows numbers of `batches_of`.
        bytes: its size as it is uncompressed and decoded.
        group: the number of the row group; -1 = lines.
    """

    row: int
    rows: int
    start: int
    end: int
    bytes: int
    group: int = -1


@dataclass(frozen=True)
class Scan:
    """
    Attributes:
        digest: SHA-256 of the content, in hexadecimal digits.
        rows: lines, also blank ones; or rows of Parquet.
    """

    format: str
    digest: str
    rows: int
    pieces: tuple[Piece, ...]


def format_of(key: str) -> str | None:
    """The format of a file by its name; None = it is no file of records. Only lines may be compressed."""
    name = key.lower()
    packed = next((ending for ending in CODECS if name.endswith(ending)), "")
    kind = next((kind for ending, kind in ENDINGS.items() if name.removesuffix(packed).endswith(ending)), None)
    return kind if kind == JSON or not packed else None


def lines_in(file: pa.NativeFile, key: str) -> pa.NativeFile:
    """The lines of a file of JSON, to read from the first to the last one."""
    codec = codec_of(key)
    return pa.CompressedInputStream(file, codec) if codec else file


def codec_of(key: str) -> str | None:
    """How a file is compressed by its name."""
    return next((codec for ending, codec in CODECS.items() if key.lower().endswith(ending)), None)


def scan(
    folder: SourceFolder, listed: Listed, kind: str, columns: SourceColumns, proceed: Callable[[], None] = lambda: None
) -> Scan:
    """Read a file to its end; the columns of Parquet are decoded, because rows of it may be ingested before its last
    row group is read.

    Args:
        proceed: called between two chunks of the file; it may raise an error to end the scan.

    Raises:
        Unreadable: the file is not whole.
        Changed: it is not the listed file any more.
        StoreError, PermissionError: the object store does not do what is asked.
        OSError: the file cannot be read, which says nothing about its content.
    """
    with _reading(folder, listed), folder.open_input(listed) as file:
        pieces = list[Piece]()
        for piece in made_within_limit(_pieces_of_rows(file, listed, columns)) if kind == PARQUET else ():
            proceed()
            pieces.append(piece)
        file.seek(0)
        digesting = _Digesting(file, proceed)
        lines = lines_in(pa.PythonFile(digesting, mode="r"), listed.key)
        pieces = _pieces_of_lines(lines, listed) if kind == JSON else pieces
        while digesting.read(CHUNK_BYTES):
            pass
    return Scan(kind, digesting.digest.hexdigest(), sum(piece.rows for piece in pieces), tuple(pieces))


@contextlib.contextmanager
def _reading(folder: SourceFolder, listed: Listed) -> Iterator[None]:
    """What an error says of the file that is read within."""
    try:
        yield
    except FileNotFoundError:
        raise Changed("is gone") from None
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        if is_store_error(error) or not is_of_content(error):
            raise
        said = first_message_line(error)
        raise Unreadable(said if isinstance(error, NotRegular) else f"it cannot be read ({said})") from None
    folder.check(listed)


def is_of_content(error: Exception) -> bool:
    """Whether the content of a file is at fault: what the system refuses or cannot read has a number."""
    return not isinstance(error, OSError) or error.errno is None


def may_pass(error: OSError) -> bool:
    """Whether the same file may be read a moment later."""
    return error.errno in MAY_PASS


class _Digesting(io.RawIOBase):
    """A file that is read from start to end, with the digest of what was read."""

    def __init__(self, file: pa.NativeFile, proceed: Callable[[], None]):
        super().__init__()
        self._file = file
        self._proceed = proceed
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self._proceed()
        chunk: bytes = self._file.read(size)
        self.digest.update(chunk)
        return chunk


def _pieces_of_lines(lines: pa.NativeFile, listed: Listed) -> list[Piece]:
    """Cut lines into pieces; of compressed ones, at most about a piece and a line are in memory at once.

    Raises:
        Unreadable: the last line is not whole, a line is too long, or what is compressed is far too large.
    """
    pieces, last = list[Piece](), b""
    start = at = ended = row = count = 0
    while chunk := lines.read(CHUNK_BYTES):
        cut, begun = chunk.rfind(b"\n") + 1, at
        at, last = at + len(chunk), chunk[-1:]
        if cut:
            ended = begun + cut
        _check_ratio(at, listed)
        if at - ended > LONGEST:
            raise Unreadable(f"it has a line of more than {LONGEST >> 20} MiB")
        if cut and ended - start >= PIECE_BYTES:
            count += chunk.count(b"\n", 0, cut)
            pieces.append(Piece(row, count, start, ended, ended - start))
            row, start, count = row + count, ended, 0
        else:
            count += chunk.count(b"\n")
    if last != b"\n":
        raise Unreadable("its last line has no end" if at else "it is empty")
    if count:
        pieces.append(Piece(row, count, start, at, at - start))
    return pieces


def _check_ratio(size: int, listed: Listed) -> None:
    if size > max(LEAST_BYTES, MOST_RATIO * listed.size):
        raise Unreadable(f"its records have more than {MOST_RATIO:,} times its size: write them into smaller files")


def _pieces_of_rows(file: pa.NativeFile, listed: Listed, columns: SourceColumns) -> Iterator[Piece]:
    """The sizes are those of what was decoded: the footer says little of what a dictionary repeats."""
    row = total = 0
    with open_parquet(file) as parquet:
        if problem := columns.problem(parquet.schema_arrow):
            raise Unreadable(problem)
        for group in range(parquet.metadata.num_row_groups):
            for number, batch in enumerate(batches_of(parquet, group, columns)):
                size = sum(map(_decoded_size, batch.columns))
                if size > LONGEST:
                    raise Unreadable(f"{len(batch):,} rows of it have more than {LONGEST >> 20} MiB")
                yield Piece(row, len(batch), number, number + 1, size, group)
                row, total = row + len(batch), total + size
                _check_ratio(total, listed)


def open_parquet(file: pa.NativeFile) -> ParquetFile:
    from pyarrow.parquet import ParquetFile  # imports pandas, which a worker has blocked by now

    return ParquetFile(file, buffer_size=PIECE_BYTES)  # else a column of a row group is in memory as a whole


def batches_of(parquet: ParquetFile, group: int, columns: SourceColumns) -> Iterator[pa.RecordBatch]:
    """The pieces of a row group."""
    found = parquet.metadata.row_group(group)
    rows = max(1, min(PIECE_ROWS, PIECE_BYTES * found.num_rows // max(found.total_byte_size, 1)))
    names = [name for name in columns.names if name in parquet.schema_arrow.names]
    yield from parquet.iter_batches(rows, [group], names, use_threads=False)


def _decoded_size(column: pa.Array) -> int:
    """Bytes, also of what a dictionary has once for many rows."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return int(column.dictionary_decode().nbytes)
    if pa.types.is_struct(kind):
        return sum(map(_decoded_size, column.flatten()))
    if is_list(kind):
        return _decoded_size(column.flatten())
    return int(column.nbytes)
