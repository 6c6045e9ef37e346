"""`hmac(x)`: the HMAC-SHA256 of a text or an integer, as hex; NULL of NULL.

Of a whole column it is computed by Python, once for each distinct value. Inside of other expressions DuckDB computes it
from the two padded keys, which are variables of its connection that no expression can read.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAME = "hmac"
BLOCK = 64  # bytes of a block of SHA-256
PADS = {"inner pad": 0x36, "outer pad": 0x5C}
BODY = "sha256(getvariable('outer pad') || unhex(sha256(getvariable('inner pad') || encode(x::VARCHAR))))"
TYPES = ("VARCHAR", "HUGEINT", "DECIMAL(38, 0)")


def add_function(connection: DuckDBPyConnection) -> None:
    connection.sql(f"CREATE MACRO {NAME}{', '.join(f'(x {kind}) AS {BODY}' for kind in TYPES)}")


def set_key(connection: DuckDBPyConnection, key: bytes) -> None:
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    for name, pad in PADS.items():
        connection.sql(f'SET VARIABLE "{name}" = $1::BLOB', params=[bytes(byte ^ pad for byte in block)])


def is_hashable(kind: pa.DataType) -> bool:
    """Whether `hmac_column` takes columns of the type."""
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type))
    return bool(pa.types.is_string(kind) or kind == pa.int64() or (pa.types.is_decimal(kind) and not kind.scale))


def hmac_column(column: pa.ChunkedArray, key: bytes) -> pa.ChunkedArray:
    """The HMAC of each value."""
    encoded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    return pa.chunked_array([_hmac_chunk(chunk, key) for chunk in encoded.chunks], pa.string())


def _hmac_chunk(chunk: pa.DictionaryArray, key: bytes) -> pa.Array:
    texts = chunk.dictionary.to_pylist()
    values = [None if text is None else hmac.digest(key, text.encode(), hashlib.sha256).hex() for text in texts]
    return pc.take(pa.array(values, pa.string()), chunk.indices)
