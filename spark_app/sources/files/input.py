"""The input of one task from files: the worker opens them itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import first_message_line
from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.sources.bronze import first_records
from spark_app.sources.files.columns import SourceColumns, leave_out
from spark_app.sources.files.folder import Changed, Listed, SourceFolder
from spark_app.sources.files.memory import made_within_limit
from spark_app.sources.files.scanning import (
    CHUNK_BYTES,
    JSON,
    Piece,
    batches_of,
    codec_of,
    is_of_content,
    lines_in,
    open_parquet,
)


@dataclass
class FileFailed(ReadFailed):
    """A planned file could not be read, or is not the planned one any more.

    Attributes:
        unreadable: its content is at fault, so that another attempt fails, too.
    """

    key: str = ""
    unreadable: bool = False


@dataclass(frozen=True)
class Part:
    """A piece of a file that is due.

    Attributes:
        first: the running number of the piece's first row.
    """

    file: Listed
    format: str
    piece: Piece
    first: int


class _OpenLines:
    """The file of lines that a task read last: it reads on, because compressed lines have no middle to begin at."""

    def __init__(self, folder: SourceFolder):
        self._folder = folder
        self._file: Listed | None = None
        self._at = 0
        self._lines: pa.NativeFile

    def read(self, part: Part) -> bytes:
        if self._file != part.file or self._at > part.piece.start:
            self._lines, self._at = lines_in(self._folder.open_input(part.file), part.file.key), 0
            self._file = part.file
        if codec_of(part.file.key) is None:
            self._lines.seek(part.piece.start)
            self._at = part.piece.start
        while skipped := self._lines.read(min(CHUNK_BYTES, part.piece.start - self._at)):
            self._at += len(skipped)
        lines: bytes = self._lines.read(part.piece.end - part.piece.start)
        self._at += len(lines)
        if self._at != part.piece.end:
            raise OSError("it is shorter than it was")
        return lines


@dataclass(frozen=True)
class FileShare:
    """The part of a unit's input that one task reads; limits as in the share of Kafka."""

    folder: SourceFolder
    columns: SourceColumns
    topic: str
    parts: tuple[Part, ...]
    batch_records: int
    batch_bytes: int
    record_bytes: int
    limit: int | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(Span(self.topic, 0, part.first, part.first + part.piece.rows) for part in self.parts)

    def limited(self, most: int) -> FileShare:
        return replace(self, limit=most)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records as batches of `SOURCE_SCHEMA`.

        Raises:
            FileFailed
        """
        return first_records(self._joined(), self.limit)

    def _joined(self) -> Iterator[pa.RecordBatch]:
        """Few large batches: each costs the pass milliseconds, and a file may have one record."""
        some: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._batches():
            full = rows + len(batch) > self.batch_records or size + batch.nbytes > self.batch_bytes
            if some and (full or batch.schema != some[0].schema):
                yield pa.concat_batches(some)
                some, rows, size = [], 0, 0
            some.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
        if some:
            yield pa.concat_batches(some)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        opened = _OpenLines(self.folder)
        for part in self.parts:
            try:
                self._check(part)
                read = self._read_lines(opened, part) if part.format == JSON else self._read_rows(part)
                for batch in made_within_limit(read):
                    if len(batch):
                        yield leave_out(batch, self.record_bytes)
                self._check(part)
            except FileNotFoundError:
                raise _failed(part, "is gone") from None
            except Changed as changed:
                raise _failed(part, str(changed)) from None
            except (OSError, pa.ArrowException, ValueError, KeyError) as error:  # also text that is not UTF-8
                if is_store_error(error):
                    raise
                self._check(part)  # a change explains it
                what = f"cannot be read ({first_message_line(error)})"
                raise _failed(part, what, unreadable=is_of_content(error)) from None

    def _check(self, part: Part) -> None:
        try:
            self.folder.check(part.file)
        except Changed as changed:
            raise _failed(part, str(changed)) from None

    def _read_rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        at, piece = part.first, part.piece
        with self.folder.open_input(part.file) as file, open_parquet(file) as parquet:
            for batch in islice(batches_of(parquet, piece.group, self.columns), piece.start, piece.end):
                yield self.columns.from_parquet(batch, self.topic, at, part.file.time // 1000)
                at += len(batch)

    def _read_lines(self, opened: _OpenLines, part: Part) -> Iterator[pa.RecordBatch]:
        size = max(1, min(self.batch_records, part.piece.rows * self.batch_bytes // max(part.piece.bytes, 1)))
        lines = opened.read(part).split(b"\n")[:-1]
        numbered = [(part.first + row, line) for row, line in enumerate(lines) if line.strip()]
        for at in range(0, len(numbered), size):
            yield self.columns.from_lines(numbered[at : at + size], self.topic, part.file.time // 1000)


def _failed(part: Part, what: str, unreadable: bool = False) -> FileFailed:
    return FileFailed(ReadFailure.SILENT, f"{part.file.key} {what}", [], part.file.key, unreadable)
