"""Arrow batches to rows of the tables: bronze, silver, quarantine, deferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.records import LINEAGE_SCHEMA, SOURCE_SCHEMA, Cause

TIMESTAMP = pa.timestamp("us", "UTC")
COORDINATES = ["topic", "topic_id", "partition", "offset"]
BRONZE_SCHEMA = pa.schema(
    [*SOURCE_SCHEMA, ("topic_id", pa.string()), ("schema_id", pa.int64()), ("landed_at", TIMESTAMP)]
)
LINEAGE_OF = {
    "_topic": "topic",
    "_topic_id": "topic_id",
    "_partition": "partition",
    "_offset": "offset",
    "_kafka_timestamp": "timestamp",
    "_schema_id": "schema_id",
    "_landed_at": "landed_at",
}
LINEAGE_COORDINATES = ["_topic", "_topic_id", "_partition", "_offset"]  # `COORDINATES`, as silver names them
NUMBER = "protolake table number"  # no Protobuf field can have this name


def bronze_rows(batch: pa.RecordBatch, schema_id: np.ndarray, topic_ids: dict[str, str], landed_at: int) -> pa.Table:
    """Every byte and coordinate of the records, with what the frame says. Rows from bronze stay as they are."""
    rows = pa.Table.from_batches([batch])
    if "landed_at" in batch.schema.names:
        return rows.select(BRONZE_SCHEMA.names).cast(BRONZE_SCHEMA)
    topics = pc.dictionary_encode(batch.column("topic"))
    ids = pa.array([topic_ids.get(topic) for topic in topics.dictionary.to_pylist()], pa.string())
    framed = pa.array(schema_id, mask=schema_id < 0)
    columns = [
        *rows.select(SOURCE_SCHEMA.names).columns,
        ids.take(topics.indices),
        framed,
        _moment(landed_at, len(rows)),
    ]
    return pa.Table.from_arrays(columns, names=BRONZE_SCHEMA.names).cast(BRONZE_SCHEMA)


def silver_rows(table: pa.Table, records: pa.Table, numbers: np.ndarray) -> pa.Table:
    """The message's fields, the record's lineage, and the number of its table until the files are written."""
    for name in LINEAGE_SCHEMA.names:
        table = table.append_column(name, records.column(LINEAGE_OF[name]))
    return table.append_column(NUMBER, pa.array(numbers))


def quarantine_rows(
    records: pa.Table, causes: Sequence[Cause], details: Sequence[str], messages: Sequence[str], moment: int
) -> pa.Table:
    """The raw records with the reason: one cause, detail and message type per row."""
    count = len(records)
    columns = {
        "cause": pa.array([cause.value for cause in causes], pa.string()),
        "hop": pa.array([cause.hop for cause in causes], pa.string()),
        "detail": pa.array([detail or None for detail in details], pa.string()),
        "message_type": pa.array([message or None for message in messages], pa.string()),
        "quarantined_at": _moment(moment, count),
    }
    return pa.table(columns | {name: records.column(name) for name in BRONZE_SCHEMA.names})


def deferred_rows(records: pa.Table, reason: str, moment: int) -> pa.Table:
    """Coordinates of records that are in bronze and wait to be decoded."""
    columns = {name: records.column(name) for name in [*COORDINATES, "schema_id"]}
    extra = {"reason": pa.array([reason] * len(records)), "deferred_at": _moment(moment, len(records))}
    return pa.table(columns | extra)


def resolved_rows(placed: pa.Table, unit: int, moment: int) -> pa.Table:
    """Records of quarantine that are in silver now: their coordinates, schema id, cause and table, with the unit."""
    columns = {name: placed.column(name) for name in [*COORDINATES, "schema_id", "cause", "table"]}
    extra = {"resolved_at": _moment(moment, len(placed)), "unit": pa.array(np.full(len(placed), unit, np.int64))}
    return pa.table(columns | extra)


def _moment(micros: int, count: int) -> pa.Array:
    return pa.array(np.full(count, micros, np.int64)).cast(TIMESTAMP)


def spans(records: pa.Table) -> dict[str, list[int]]:
    """ "topic/partition" -> [first offset, last offset, records]."""
    grouped = records.group_by(["topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    rows = grouped.to_pylist()
    return {f"{r['topic']}/{r['partition']}": [r["offset_min"], r["offset_max"], r["offset_count"]] for r in rows}


def split_by_table(groups: list[list[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """Rows of all schema versions by table number. One stable sort per version: the cost is flat in the tables."""
    pieces: dict[int, list[pa.Table]] = {}
    for group in groups:
        rows = pa.concat_tables(group)
        numbers = rows.column(NUMBER).to_numpy()
        order = np.argsort(numbers, kind="stable")
        distinct, starts = np.unique(numbers[order], return_index=True)
        ordered = rows.drop_columns([NUMBER]).take(pa.array(order)).combine_chunks()
        for number, start, end in zip(distinct, starts, [*starts[1:], len(order)], strict=True):
            pieces.setdefault(int(number), []).append(ordered.slice(start, end - start))
    for number, parts in pieces.items():
        yield number, pa.concat_tables(parts, promote_options="default")
