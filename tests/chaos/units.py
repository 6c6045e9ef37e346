"""Committed units without a Spark job: real files in a real lake, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.manifest import Change, Manifest
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames

LAYOUT = TableNames()


def open_lake(root: Path) -> Lake:
    lake = Lake(root)
    lake.prepare()
    return lake


def ingest_unit(lake: Lake, sequence: int, tables: dict[str, pa.Table], records: int = 1) -> Manifest:
    """An ingest unit of `records` offsets of one partition: its files are written, nothing is committed. Its counts add
    up: bronze has rows for those of the other tables, and further bronze rows count as tombstones."""
    silver = {_name_of(t): rows.num_rows for t, rows in tables.items() if LAYOUT.is_silver(t)}
    others = {t: tables[t].num_rows if t in tables else 0 for t in (LAYOUT.quarantine, LAYOUT.deferred)}
    others_rows = sum(silver.values()) + sum(others.values())
    if others_rows and LAYOUT.bronze not in tables:
        tables = {LAYOUT.bronze: pa.table({"x": [sequence] * others_rows}), **tables}
    bronze_rows = tables[LAYOUT.bronze].num_rows if tables else 0
    assert bronze_rows >= others_rows, "bronze has a row for each row of the other tables"
    name = f"part-{sequence:012d}-0-00000.parquet"
    changes = {t: Change([files.write_file(lake.storage, t, name, rows, "zstd")]) for t, rows in tables.items()}
    start, end = ({"t": {"0": number}} for number in ((sequence - 1) * records, sequence * records))
    quarantine = {"frame_short": others[LAYOUT.quarantine]}
    counts = {"bronze": bronze_rows, "silver": silver, "quarantine": quarantine, "deferred": others[LAYOUT.deferred]}
    source = {"batch": sequence - 1, "start": start, "end": end, "topic_ids": {}}
    return Manifest(sequence, "ingest", source, changes, counts | {"tombstones": bronze_rows - others_rows})


def _name_of(table: str) -> str:
    return table.removeprefix("silver_").removesuffix("_events")
