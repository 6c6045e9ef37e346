"""Looks for a text in everything that a lake has, inside of Parquet pages too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

RAW = {"key", "value", "headers"}  # columns with the record as Kafka had it


def places_of(root: Path, text: str) -> set[str]:
    """Where the text is, in any case: files, and columns of Parquet files as `file:column`. The records themselves are
    left out: bronze, and the raw columns of quarantine."""
    found: set[str] = set()
    for path in (path for path in root.rglob("*") if path.is_file()):
        name = str(path.relative_to(root))
        if name.startswith("bronze_") and path.suffix == ".parquet" and "_delta_log" not in name:
            continue
        if path.suffix == ".parquet":
            found |= {f"{name}:{column}" for column in _columns_with(path, text)}
        is_raw = name.startswith("quarantine_") and path.suffix == ".parquet"  # its pages and bounds are of raw columns
        if not is_raw and text.lower().encode() in path.read_bytes().lower():
            found.add(name)
    return found


def _columns_with(path: Path, text: str) -> Iterator[str]:
    table = pq.ParquetFile(path).read()
    for name in table.column_names:
        if name not in RAW and any(text.lower() in _as_text(value) for value in table[name]):
            yield name


def _as_text(value: pa.Scalar) -> str:
    return str(value.as_py()).lower()
