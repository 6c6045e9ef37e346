"""Finds and corrects wrong column statistics of earlier releases.

Until 2026-11-24 delta-rs wrote the compacted files and their bounds. It clips bounds of decimals to 2^63 - 1 and leaves
NaN out of those of floating-point columns, as Parquet's own bounds in every file do. With such bounds readers skip rows
that exist.

    _protolake/statistics.json    present once no file of the lake has such statistics
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_app.lake.delta import parquet as files
from spark_app.lake.delta import rewrite
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.findings import Finding
from spark_app.lake.delta.table_handles import INDEXED, Tables
from spark_app.lake.delta.table_schema import columns_of
from spark_app.lake.files import failpoints
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.reports import FileEntry
from spark_app.model.table_names import TableNames

OWN_WRITER = "parquet-cpp"  # `created_by` of the app's own files
MOST_NAMED = 10
MOST_SAID = 300  # characters of a library's error text
LOST = "a filter, such as `= 18446744073709551615` or `isnan(x)`, may not find rows that are there"


def earlier(lake: Lake) -> list[Finding]:
    """The warning at the start for a lake of an earlier release."""
    if lake.storage.exists(lake.statistics) or not lake.tables():
        return []
    what = f"an earlier release wrote wrong statistics for this lake: {LOST}"
    return [Finding(what, "Stop the app and run `doctor --repair` once: it corrects them", fatal=False)]


def examine(lake: Lake, tables: Tables, layout: TableNames, synced: DurabilityMark) -> list[Finding]:
    """Find tables with wrong statistics. With the marker file only the logs are checked, not the data files."""
    marked = lake.storage.exists(lake.statistics)
    found = [name for name in lake.tables() if _is_wrong(tables, name, inside=not marked)]
    if not found and (marked or not lake.tables()):
        return []
    some = f"{', '.join(found[:MOST_NAMED])}{', ...' if len(found) > MOST_NAMED else ''}"
    what = (
        f"the statistics of {some} are wrong: {LOST}"
        if found
        else "the statistics of an earlier release are not corrected yet"
    )
    remedy = "`doctor --repair` rewrites them, and the files that need it"
    return [Finding(what, remedy, fatal=False, repair=lambda: _repair(lake, tables, layout, synced))]


def _repair(lake: Lake, tables: Tables, layout: TableNames, synced: DurabilityMark) -> str:
    again, left = 0, []
    for name in lake.tables():
        tables.forget(name)  # another repair may have changed it
        try:
            again += renew(tables, name, inside=True)
        except (OSError, pa.ArrowException, ContractError) as error:
            left.append(f"{name} ({error})"[:MOST_SAID])
            continue
        # delta-rs writes gold, with the statistics of `writer_properties`.
        if tables.get(name) is not None and not layout.is_gold(name):
            tables.index(name)
    if left:
        return f"could not write the statistics of {', '.join(left)}: they stay unchanged"
    synced.sync(lake.tables())  # the marker is durable, so the logs must be durable before it
    lake.mark_statistics()
    return f"rewrote the statistics of every table, and {again} files"


def update(tables: Tables, name: str) -> None:
    """Correct the log of a table that an earlier release has created."""
    table = tables.get(name)
    if table is None:
        return
    if INDEXED not in table.metadata().configuration:
        renew(tables, name, inside=False)
    tables.index(name)


def renew(tables: Tables, name: str, inside: bool) -> int:
    """Write the statistics of each file's footer to the log; returns the number of rewritten files.

    Args:
        inside: also rewrite files with NaN outside of Parquet's bounds; this reads the files.
    """
    table = tables.get(name)
    if table is None:
        return 0
    storage, columns = tables.storage, columns_of(table)
    ids, compression = tables.field_ids(name, columns), tables.compression_of(name)
    adds: list[FileEntry] = []
    removes = []
    for path, size in rewrite.live(table):
        with storage.open_input(f"{name}/{path}") as source, pq.ParquetFile(source) as file:
            if inside and _hides_nan(file):
                adds.append(rewrite.merge(storage, name, [path], columns, compression, ids))
                removes.append(path)
            else:
                stats = files.statistics_of(file.metadata)
                adds.append(FileEntry(path, file.metadata.num_rows, size, stats, schema=""))
    with failpoints.around("statistics"):
        tables.replace_files(name, adds, removes)
    return len(removes)


def _is_wrong(tables: Tables, name: str, inside: bool) -> bool:
    table = tables.get(name)
    if table is None:
        return False
    right = set(files.indexed(columns_of(table)))
    return _bounds(table) - right != set() or (
        inside and any(_is_suspect(tables.storage, key) for key in tables.files(name))
    )


def _bounds(table: DeltaTable) -> set[str]:
    """Columns for which the log has bounds."""
    actions = table.get_add_actions(flatten=True)
    names = [name for name in actions.schema.names if name.startswith(("min.", "max."))]
    return {name[4:] for name in names if any(value is not None for value in actions[name].to_pylist())}


def _is_suspect(storage: Storage, key: str) -> bool:
    """True if another writer wrote the file, or its bounds leave NaN out. A missing or torn file is not suspect: it was
    replaced meanwhile, or another check reports it."""
    with (
        contextlib.suppress(OSError, pa.ArrowException),
        storage.open_input(key) as source,
        pq.ParquetFile(source) as file,
    ):
        return not file.metadata.created_by.startswith(OWN_WRITER) or _hides_nan(file)
    return False


def _hides_nan(file: pq.ParquetFile) -> bool:
    """True if a column with Parquet bounds has NaN."""
    paths = files.floating(file.metadata)
    groups = range(file.num_row_groups) if paths else ()
    return any(
        pc.any(pc.is_nan(values)).as_py()
        for number in groups
        for column in file.read_row_group(number, columns=paths, use_threads=False).columns
        for chunk in column.chunks
        for values in _leaves(chunk)
    )


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """The floating-point values inside an array, at any depth."""
    if pa.types.is_floating(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for inner in values.flatten():
            yield from _leaves(inner)
    elif pa.types.is_map(values.type):
        yield from _leaves(values.keys)
        yield from _leaves(values.items)
    elif pa.types.is_list(values.type):
        yield from _leaves(values.values)
