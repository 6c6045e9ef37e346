"""Unwraps messages that contain another message as bytes, with a schema of its own.

Input: the decoded wrappers. Output: the payloads with their frames, and the wrappers' other fields. A payload may have
a frame of its own. If it has none, its schema is the one that the wrapper names, and its message is the first of it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_app.model.wrapper import Wrapper
from spark_app.protobuf import framing

COLUMN = "_wrapper"
UNNAMED: framing.UnframedSchema = (framing.NO_SCHEMA, framing.FIRST_MESSAGE)


def unwrap(wrappers: pa.Table, wrapper: Wrapper) -> tuple[pa.Array, framing.Frames]:
    """(payloads, their frames), one per row. A wrapper without a payload or without a schema for it is rejected."""
    payloads = _column(wrappers, wrapper.payload, pa.binary())
    frames = framing.split(payloads, bare=UNNAMED)
    frames.refuse(np.flatnonzero(frames.status == framing.TOMBSTONE), framing.WRONG_WRAPPER)
    ids = _column(wrappers, wrapper.schema_id, pa.int64()).fill_null(framing.NO_SCHEMA).to_numpy(zero_copy_only=False)
    bare = np.flatnonzero((frames.status == framing.OK) & (frames.schema == framing.NO_SCHEMA))
    frames.schema[bare] = ids[bare]
    frames.refuse(bare[(ids[bare] <= 0) | (ids[bare] > framing.LARGEST_ID)], framing.WRONG_WRAPPER)
    return payloads, frames


def keep_rest(wrappers: pa.Table, wrapper: Wrapper) -> pa.Array | None:
    """The wrappers' other fields as one struct column; None if there are none."""
    names = [name for name in wrappers.column_names if name not in wrapper.own]
    columns = [wrappers.column(name).combine_chunks() for name in names]
    return pa.StructArray.from_arrays(columns, fields=[wrappers.schema.field(n) for n in names]) if names else None


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """The column; NULLs if the message has no such field of this type."""
    if name in table.column_names and table.schema.field(name).type == kind:
        return table.column(name).combine_chunks()
    return pa.nulls(len(table), kind)
