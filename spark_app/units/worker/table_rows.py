"""Builds the rows of bronze, silver, quarantine, deferred and resolved as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.catalog import SchemaKey
from spark_app.model.causes import CAUSE_HELP, Cause
from spark_app.model.record_schemas import (
    BRONZE_SCHEMA,
    COORDINATES,
    LINEAGE_SCHEMA,
    RARE_SCHEMA,
    SOURCE_SCHEMA,
    TIMESTAMP,
)
from spark_app.protobuf.framing import Frames

LINEAGE_OF = {
    "_topic": "topic",
    "_topic_id": "topic_id",
    "_partition": "partition",
    "_offset": "offset",
    "_kafka_timestamp": "timestamp",
    "_landed_at": "landed_at",
}
Failed = tuple[str, tuple[str, ...], int]  # silver table, failed rules that keep the row out of it, definition
LONGEST_TEXT = 1000  # characters of a detail or message type: a schema's names may be far longer
NUMBER = "protolake table number"  # no Protobuf field can have this name
NOWHERE = -1  # the number of rows that no file will have


def bronze_rows(batch: pa.RecordBatch, frames: Frames, topic_ids: dict[str, str], landed_at: int) -> pa.Table:
    """Bronze rows: the records with schema id and GUID of their frames, plus columns of `RARE_SCHEMA` that have values.

    Args:
        batch: records from Kafka, or rows of bronze, which stay unchanged.
        topic_ids: topic -> Kafka's topic id.
        landed_at: microseconds since 1970.
    """
    rare = (field for field in RARE_SCHEMA if field.name in batch.schema.names)
    schema = pa.schema([*BRONZE_SCHEMA, *(one for one in rare if batch.column(one.name).null_count < len(batch))])
    rows = pa.Table.from_batches([batch])
    if "landed_at" in batch.schema.names:
        return rows.select(schema.names).cast(schema)
    topics = pc.dictionary_encode(batch.column("topic"))
    ids = pa.array([topic_ids.get(topic) for topic in topics.dictionary.to_pylist()], pa.string()).dictionary_encode()
    schemas = frames.schema.copy()  # Arrow would share the memory, and the caller may still change `frames.schema`
    columns = [
        *[topics if name == "topic" else batch.column(name) for name in SOURCE_SCHEMA.names],
        ids.take(topics.indices),
        pa.array(schemas, mask=schemas < 0),
        pa.array(frames.guids, pa.string()).take(pa.array(-2 - schemas, mask=schemas > -2)),
        _moment(landed_at, len(rows)),
        *[batch.column(name) for name in schema.names[len(BRONZE_SCHEMA) :]],
    ]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


def lineage_rows(records: pa.Table, keys: pa.Array | None) -> pa.Table:
    """Silver's columns about the record, without the schema. `keys` are the decoded record keys; None = keys are not
    decoded."""
    lineage = records.select(list(LINEAGE_OF.values())).rename_columns(list(LINEAGE_OF))
    return lineage if keys is None else lineage.append_column("_key", keys)


def silver_rows(table: pa.Table, lineage: pa.Table, key: SchemaKey) -> pa.Table:
    """Silver rows: the message's fields, the record's lineage, and the schema."""
    count = len(lineage)
    schema_id = pa.array(np.full(count, key)) if isinstance(key, int) else pa.nulls(count, pa.int64())
    lineage = lineage.append_column("_schema_id", schema_id)
    extra = [name for name in lineage.column_names if name not in LINEAGE_SCHEMA.names]
    lineage = lineage.select([*LINEAGE_SCHEMA.names, *extra])
    if isinstance(key, str):
        lineage = lineage.append_column("_schema_guid", pa.repeat(pa.scalar(key), count))
    columns = [*table.columns, *lineage.columns]
    return pa.Table.from_arrays(columns, names=[*table.column_names, *lineage.column_names])


def numbered_rows(rows: pa.Table, definitions: np.ndarray | None, tables: np.ndarray) -> pa.Table:
    """Silver rows with numbers.

    Args:
        definitions: the number of each row's definition, 0 = none; None = no row has one.
        tables: the number of each row's table, or `NOWHERE`; it is in the column `NUMBER` until the files are written.
    """
    if definitions is not None:
        rows = rows.append_column("_definition", pa.array(definitions, mask=definitions == 0))
    return rows.append_column(NUMBER, pa.array(tables))


def _detail(cause: Cause, detail: str) -> str:
    return (detail or CAUSE_HELP[cause])[:LONGEST_TEXT]


def quarantine_rows(
    records: pa.Table,
    causes: Sequence[Cause],
    details: Sequence[str],
    messages: Sequence[str],
    schemas: Sequence[str],
    moment: int,
    failed: Sequence[Failed | None] = (),
) -> pa.Table:
    """Quarantine rows: the raw records, with one entry of each list per row.

    Args:
        messages: the message type; "" = unknown.
        schemas: the key of the schema, if the schema was refused; else "".
        moment: microseconds since 1970.
        failed: for each row the rules that it fails; None = none. The columns for it exist only if a row fails some.
    """
    count = len(records)
    columns = {
        "cause": pa.array([cause.value for cause in causes], pa.string()),
        "hop": pa.array([cause.hop for cause in causes], pa.string()),
        "detail": pa.array(map(_detail, causes, details), pa.string()),
        "message_type": pa.array([message[:LONGEST_TEXT] or None for message in messages], pa.string()),
        "refused_schema": pa.array([schema or None for schema in schemas], pa.string()),
        "quarantined_at": _moment(moment, count),
    }
    if any(failed):
        columns |= _failed_columns(failed)
    return pa.table(columns | {name: records.column(name) for name in records.column_names})


def dropped_rows(records: pa.Table, failed: Sequence[Failed], moment: int) -> pa.Table:
    """Dropped rows: the coordinates of records in bronze that no table has because of a rule.

    Args:
        moment: microseconds since 1970.
    """
    columns = {name: records.column(name) for name in [*COORDINATES, "schema_id"]}
    return pa.table(columns | _failed_columns(failed) | {"dropped_at": _moment(moment, len(records))})


def _failed_columns(failed: Sequence[Failed | None]) -> dict[str, pa.Array]:
    tables, rules, definitions = zip(*(one or (None, None, None) for one in failed), strict=True)
    return {
        "table": pa.array(tables, pa.string()),
        "rules": pa.array(rules, pa.list_(pa.string())),
        "definition": pa.array(definitions, pa.int64()),
    }


def deferred_rows(records: pa.Table, waits_for: SchemaKey | None, moment: int, table: str | None = None) -> pa.Table:
    """Deferred rows: the coordinates of records in bronze that are in no other table yet.

    Args:
        waits_for: the schema that the records wait for, the decision about its changes, or the rule that has paused
            their table; None = none of these.
        moment: microseconds since 1970.
        table: the silver table, if it is paused.
    """
    columns = {name: records.column(name) for name in [*COORDINATES, "schema_id"]}
    keys = pa.repeat(pa.scalar(None if waits_for is None else str(waits_for), pa.string()), len(records))
    columns |= {"waits_for": keys, "deferred_at": _moment(moment, len(records))}
    return pa.table(columns if table is None else columns | {"table": pa.repeat(pa.scalar(table), len(records))})


def resolved_rows(replayed: pa.Table, unit: int, moment: int) -> pa.Table:
    """Resolved rows: coordinates, schema id, cause and table of quarantined records that a replay added to silver.

    Args:
        unit: the number of the unit that added them.
        moment: microseconds since 1970.
    """
    columns = {name: replayed.column(name) for name in [*COORDINATES, "schema_id", "cause", "table"]}
    extra = {"resolved_at": _moment(moment, len(replayed)), "unit": pa.array(np.full(len(replayed), unit, np.int64))}
    return pa.table(columns | extra)


def _moment(micros: int, count: int) -> pa.Array:
    return pa.array(np.full(count, micros, np.int64)).cast(TIMESTAMP)


def spans(records: pa.Table) -> dict[str, list[int]]:
    """ "topic/partition" -> [first offset, last offset, records]."""
    grouped = records.group_by(["topic", "partition"], use_threads=False).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    rows = grouped.to_pylist()
    return {f"{r['topic']}/{r['partition']}": [r["offset_min"], r["offset_max"], r["offset_count"]] for r in rows}


def count_values(column: pa.ChunkedArray) -> dict[str, int]:
    """Distinct value -> number of rows with it."""
    return {item["values"]: item["counts"] for item in column.value_counts().to_pylist()}


def split_by_table(groups: Iterable[list[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """(table number, rows) for each table, from the rows of all schema versions. There is one stable sort per version,
    so the cost does not depend on the number of tables."""
    pieces: dict[int, list[pa.Table]] = {}
    for group in groups:
        rows = pa.concat_tables(group)
        numbers = rows.column(NUMBER).to_numpy() - NOWHERE  # from 0 on
        for number, part in split_by_number(rows.drop_columns([NUMBER]), numbers, least=1):
            pieces.setdefault(number + NOWHERE, []).append(part)
    for number, parts in pieces.items():
        yield number, parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="default")


def split_by_number(rows: pa.Table, numbers: np.ndarray, least: int = 0) -> Iterator[tuple[int, pa.Table]]:
    """(number, its rows in their order), without the rows whose number is below `least`.

    Args:
        numbers: one for each row, from 0 on.
    """
    # numpy sorts integers of up to 16 bits without comparisons.
    numbers = numbers.astype(np.min_scalar_type(numbers.max()))
    order = np.argsort(numbers, kind="stable")[np.count_nonzero(numbers < least) :]
    if not len(order):
        return
    distinct, starts = np.unique(numbers[order], return_index=True)
    ordered = rows.combine_chunks().take(pa.array(order))
    for number, start, end in zip(distinct.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield number, ordered.slice(start, end - start)


def split_by_value(rows: pa.Table, column: str) -> Iterator[tuple[str, pa.Table]]:
    """(value, rows) for each value of a column of strings; the rows do not contain that column."""
    ordered = rows.sort_by([(column, "ascending")])
    runs = pc.run_end_encode(ordered[column].combine_chunks())
    start = 0
    for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield value, ordered.slice(start, end - start).drop_columns([column])
        start = end
