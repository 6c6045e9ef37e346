"""Which columns of a file get a dictionary in Parquet: those that repeat, by evidence.

A dictionary of values that do not repeat is as large as the column and comes on top. So a sample of the rows is written
both ways, and each column has what was smaller. The answer is kept for files with the same columns and about as many
rows, for a while: what a field holds may change.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

SAMPLE_ROWS, SAMPLE_BYTES = 5_000, 8 << 20
ASK_AGAIN = 500  # files after which an answer is old
FEWER = 0.9  # of the compressed bytes: a dictionary takes time, so it has to save something
SHORT = 0.1  # of the bytes before compression: then it saves the time that compressing them takes

Size = tuple[int, int]  # of a column: bytes, and before they were compressed


class Dictionaries:
    """The answers for files with the same columns."""

    def __init__(self, candidates: Collection[str]):
        """`candidates`: the Parquet paths that may have a dictionary."""
        self._candidates = candidates
        self._tops = {path.partition(".")[0] for path in candidates}
        self._answers: dict[tuple[str, int], tuple[list[str], int]] = {}  # with the number of files it is still for

    def choose(self, rows: pa.Table, compression: str) -> list[str]:
        """The Parquet paths with a dictionary in a file that begins with these rows."""
        question = compression, len(rows).bit_length() // 2
        answer, left = self._answers.get(question, ([], 0))
        if not left:
            answer, left = self._ask(rows, compression), ASK_AGAIN
        self._answers[question] = answer, left - 1
        return answer

    def _ask(self, rows: pa.Table, compression: str) -> list[str]:
        sample = rows.select([name for name in rows.column_names if name in self._tops]).slice(0, SAMPLE_ROWS)
        while sample.nbytes > SAMPLE_BYTES and len(sample) > 1:
            sample = sample.slice(0, len(sample) // 2)
        if not len(sample):
            return []
        plain, encoded = (_sizes(sample, compression, dictionary) for dictionary in (False, True))
        return [path for path in self._candidates if _pays(plain[path], encoded[path])]


def _pays(plain: Size, encoded: Size) -> bool:
    return encoded[0] < FEWER * plain[0] or encoded[1] < SHORT * plain[1]


def _sizes(sample: pa.Table, compression: str, dictionary: bool) -> dict[str, Size]:
    """By Parquet path."""
    footer: list[pq.FileMetaData] = []
    options = {"compression": compression, "write_statistics": False, "store_schema": False}
    pq.write_table(sample, pa.MockOutputStream(), use_dictionary=dictionary, metadata_collector=footer, **options)
    group = footer[0].row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema: (one.total_compressed_size, one.total_uncompressed_size) for one in columns}
