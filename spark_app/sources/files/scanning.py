"""Scans a file before it is ingested: is it whole, which digest has its content, and which pieces do tasks read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import first_message_line
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import Changed, Listed, SourceFolder

CHUNK_BYTES = 1 << 20
PIECE_BYTES = 4 << 20  # of JSON lines
PARQUET, JSON = "parquet", "json"
ENDINGS = {".parquet": PARQUET, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}
CODECS = {".gz": "gzip", ".zst": "zstd"}
MOST_RATIO = 1000  # lines to their compressed size: gzip reaches no more, and zstd only with what is almost empty
LEAST_BYTES = 64 << 20  # of lines, which no ratio refuses
PROVED_ROWS = 1000  # that are decoded at once: the size of a row group says little of what a dictionary repeats
LONGEST_LINE = 256 << 20  # because a task keeps it in memory
# What a file server or a machine without resources answers for a time; it says nothing about the file.
MAY_PASS = {
    *(errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
}


class Unreadable(Exception):
    """A file is not whole, or not of its format; the text says why."""


@dataclass(frozen=True)
class Piece:
    """A part of a file that is read at once: a row group, or some lines.

    Attributes:
        row: the number of rows of the file before it.
        start, end: bytes of the lines, as they are uncompressed; of a row group its number, twice.
        bytes: about its size in memory.
    """

    row: int
    rows: int
    start: int
    end: int
    bytes: int


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


def scan(folder: SourceFolder, listed: Listed, kind: str, columns: SourceColumns) -> Scan:
    """
    Raises:
        Unreadable: the file is not whole.
        Changed: it is not the listed file any more.
        StoreError, PermissionError: the object store does not do what is asked.
        OSError: the file cannot be read, which says nothing about its content.
    """
    with _reading(folder, listed):
        groups = _row_groups(folder, listed, columns) if kind == PARQUET else []  # first what is quickly refused
        digest, pieces = _read_through(folder, listed, kind)
        pieces = groups or pieces
    return Scan(kind, digest, sum(piece.rows for piece in pieces), tuple(pieces))


def prove(folder: SourceFolder, listed: Listed, columns: SourceColumns) -> Listed:
    """Decode the columns of a Parquet file, because rows of it are ingested before its last row group is read. Returns
    the file.

    Raises:
        As `scan`.
    """
    from pyarrow.parquet import ParquetFile

    with _reading(folder, listed), folder.open_input(listed) as file, ParquetFile(file) as parquet:
        names = [name for name in columns.names if name in parquet.schema_arrow.names]
        for _ in parquet.iter_batches(PROVED_ROWS, columns=names, use_threads=False):
            pass
    return listed


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
        raise Unreadable(first_message_line(error)) from None
    folder.check(listed)


def is_of_content(error: Exception) -> bool:
    """Whether the content of a file is at fault: what the system refuses or cannot read has a number."""
    return not isinstance(error, OSError) or error.errno is None


def may_pass(error: OSError) -> bool:
    """Whether the same file may be read a moment later."""
    return error.errno in MAY_PASS


class _Digesting(io.RawIOBase):
    """A file that is read from start to end, with the digest of what was read."""

    def __init__(self, file: pa.NativeFile):
        super().__init__()
        self._file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._file.read(size)
        self.digest.update(chunk)
        return chunk


def _read_through(folder: SourceFolder, listed: Listed, kind: str) -> tuple[str, list[Piece]]:
    """(digest, pieces of lines). For Parquet there are no pieces."""
    with folder.open_input(listed) as opened:
        file = _Digesting(opened)
        pieces = _pieces(lines_in(pa.PythonFile(file, mode="r"), listed.key), listed) if kind == JSON else []
        while file.read(CHUNK_BYTES):
            pass
        return file.digest.hexdigest(), pieces


def _pieces(lines: pa.NativeFile, listed: Listed) -> list[Piece]:
    """Cut lines into pieces; of compressed ones, at most about a piece and a line are in memory at once.

    Raises:
        Unreadable: the last line is not whole, a line is too long, or what is compressed is far too large.
    """
    pieces, last = list[Piece](), b""
    start = at = ended = row = count = 0
    most = max(LEAST_BYTES, MOST_RATIO * listed.size) if codec_of(listed.key) else None
    while chunk := lines.read(CHUNK_BYTES):
        cut, begun = chunk.rfind(b"\n") + 1, at
        at, last = at + len(chunk), chunk[-1:]
        if cut:
            ended = begun + cut
        if most is not None and at > most:
            raise Unreadable(f"its lines have more than {MOST_RATIO:,} times its size")
        if at - ended > LONGEST_LINE:
            raise Unreadable(f"it has a line of more than {LONGEST_LINE >> 20} MiB")
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


def _row_groups(folder: SourceFolder, listed: Listed, columns: SourceColumns) -> list[Piece]:
    from pyarrow.parquet import ParquetFile  # workers block pandas before they load it

    with folder.open_input(listed) as file, ParquetFile(file) as parquet:
        if problem := columns.problem(parquet.schema_arrow):
            raise Unreadable(problem)
        pieces, row = [], 0
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            if group.num_rows:
                pieces.append(Piece(row, group.num_rows, number, number, group.total_byte_size))
                row += group.num_rows
        return pieces
