"""Scans a file before it is taken: whether it is whole, the digest of its content, and the pieces that tasks read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa

from spark_app.intake.columns_of_source import SourceColumns
from spark_app.intake.source_folder import Listed, SourceFolder
from spark_app.model.errors import first_message_line

CHUNK_BYTES = 1 << 20
PIECE_BYTES = 4 << 20  # of JSON lines
PARQUET, JSON = "parquet", "json"
ENDINGS = {".parquet": PARQUET, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}


class Unreadable(Exception):
    """A file is not whole, or not of its format; the text says why."""


class Changed(Exception):
    """A file was changed or removed while it was read."""


@dataclass(frozen=True)
class Piece:
    """A part of a file that is read at once: a row group, or some lines.

    Attributes:
        row: the number of rows of the file before it.
        start, end: bytes of the lines; of a row group its number, twice.
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
    """The format of a file by its name; None = it is no file of records."""
    return next((kind for ending, kind in ENDINGS.items() if key.lower().endswith(ending)), None)


def scan(folder: SourceFolder, listed: Listed, kind: str, columns: SourceColumns) -> Scan:
    """
    Raises:
        Unreadable: the file is not whole.
        Changed: it is not the listed file any more.
    """
    try:
        digest, lines = _read_through(folder, listed.key, kind)
        pieces = lines if kind == JSON else _row_groups(folder, listed.key, columns)
    except FileNotFoundError:
        raise Changed(listed.key) from None
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise Unreadable(first_message_line(error)) from None
    now = folder.look(listed.key)
    if now is None or not now.is_same(listed.size, listed.changed):
        raise Changed(listed.key)
    return Scan(kind, digest, sum(piece.rows for piece in pieces), tuple(pieces))


def _read_through(folder: SourceFolder, key: str, kind: str) -> tuple[str, list[Piece]]:
    """(digest, pieces of lines). For Parquet there are no pieces."""
    digest, pieces, last = hashlib.sha256(), [], b""
    start = at = row = lines = 0
    with folder.open_input(key) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            at, last = at + len(chunk), chunk[-1:]
            if kind != JSON:
                continue
            cut = chunk.rfind(b"\n") + 1
            if cut and at - len(chunk) + cut - start >= PIECE_BYTES:
                end = at - len(chunk) + cut
                lines += chunk.count(b"\n", 0, cut)
                pieces.append(Piece(row, lines, start, end, end - start))
                row, start, lines = row + lines, end, chunk.count(b"\n", cut)
            else:
                lines += chunk.count(b"\n")
    if kind == JSON and last != b"\n":
        raise Unreadable("its last line has no end" if at else "it is empty")
    if lines:
        pieces.append(Piece(row, lines, start, at, at - start))
    return digest.hexdigest(), pieces


def _row_groups(folder: SourceFolder, key: str, columns: SourceColumns) -> list[Piece]:
    from pyarrow.parquet import ParquetFile  # workers block pandas before they load it

    with folder.open_input(key) as file, ParquetFile(file) as parquet:
        if problem := columns.problem(parquet.schema_arrow):
            raise Unreadable(problem)
        pieces, row = [], 0
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            if group.num_rows:
                pieces.append(Piece(row, group.num_rows, number, number, group.total_byte_size))
                row += group.num_rows
        return pieces
