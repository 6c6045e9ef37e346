"""Chooses which Parquet columns of a file get a dictionary, by testing a sample.

A dictionary of values that do not repeat is as large as the column, and is stored in addition to it. So a sample of the
rows is encoded both ways, and each column gets the smaller encoding. The choice is kept for the next files with the
same columns and a similar number of rows, and tested again after `ASK_AGAIN` files, because the values may change.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

SAMPLE_ROWS, SAMPLE_BYTES = 5_000, 8 << 20
ASK_AGAIN = 500  # files for which a choice is valid
FEWER = 0.9  # of the compressed bytes: a dictionary takes time, so it must be smaller by a tenth
SHORT = 0.1  # of the bytes before compression: a dictionary so small saves the time of compressing

Size = tuple[int, int]  # of a column: compressed bytes, uncompressed bytes


class Dictionaries:
    """The choices for files with the same columns."""

    def __init__(self, candidates: Collection[str]):
        """`candidates`: the Parquet paths that may have a dictionary."""
        self._candidates = candidates
        self._tops = {path.partition(".")[0] for path in candidates}
        # (compression, number of rows as a power of 4) -> the choice, and the number of files for which it stays valid.
        self._answers: dict[tuple[str, int], tuple[list[str], int]] = {}

    def choose(self, rows: pa.Table, compression: str) -> list[str]:
        """The Parquet paths that get a dictionary in a file whose first rows are `rows`."""
        key = compression, len(rows).bit_length() // 2
        choice, left = self._answers.get(key, ([], 0))
        if not left:
            choice, left = self._ask(rows, compression), ASK_AGAIN
        self._answers[key] = choice, left - 1
        return choice

    def _ask(self, rows: pa.Table, compression: str) -> list[str]:
        sample = rows.select([name for name in rows.column_names if name in self._tops]).slice(0, SAMPLE_ROWS)
        while sample.nbytes > SAMPLE_BYTES and len(sample) > 1:
            sample = sample.slice(0, len(sample) // 2)
        if not len(sample):
            return []
        plain, encoded = (_sizes(sample, compression, dictionary) for dictionary in (False, True))
        return [path for path in self._candidates if _pays(plain[path], encoded[path])]


def codec(compression: str) -> dict[str, str | int]:
    """Arguments of Arrow's Parquet writer for a compression of the settings: a codec, or a codec and its level."""
    name, _, level = compression.partition(":")
    return {"compression": name, "compression_level": int(level)} if level else {"compression": name}


def _pays(plain: Size, encoded: Size) -> bool:
    return encoded[0] < FEWER * plain[0] or encoded[1] < SHORT * plain[1]


def _sizes(sample: pa.Table, compression: str, dictionary: bool) -> dict[str, Size]:
    """Parquet path -> size of the column in the sample, with or without a dictionary."""
    footer: list[pq.FileMetaData] = []
    options = {**codec(compression), "write_statistics": False, "store_schema": False}
    pq.write_table(sample, pa.MockOutputStream(), use_dictionary=dictionary, metadata_collector=footer, **options)
    group = footer[0].row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema: (one.total_compressed_size, one.total_uncompressed_size) for one in columns}
