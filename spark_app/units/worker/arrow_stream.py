"""An Arrow table as bytes, on its way from one worker to another or to the driver."""

from __future__ import annotations

import pyarrow as pa


def to_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def from_stream(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
