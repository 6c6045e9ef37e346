"""Decodes record keys that are framed Protobuf to JSON text.

Input: an Arrow batch of records. Output: one text per record; NULL if the key has no frame or cannot be decoded. A bad
key does not affect the value, and the raw key stays in bronze. Schemas that are not in the catalog are reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from spark_app.model.catalog import Catalog, SchemaKey
from spark_app.protobuf import framing
from spark_app.protobuf.decode import Decoder, decoder_for


@dataclass
class Keys:
    """`texts` has one entry per record. `unresolved`: schema key -> rows whose record key has this schema, for schemas
    that are not in the catalog."""

    texts: pa.Array
    unresolved: dict[SchemaKey, np.ndarray]


def read_keys(batch: pa.RecordBatch, catalog: Catalog) -> Keys:
    """Decode the keys of a batch; each distinct key is decoded once."""
    keys = batch.column("key")
    frames = framing.split(keys, batch.column("headers"), framing.KEY_HEADER)
    texts = np.full(len(keys), None, object)
    unresolved: dict[SchemaKey, np.ndarray] = {}
    for rows in frames.groups():
        key, body = frames.key_of(rows[0]), int(frames.body[rows[0]])
        if frames.status[rows[0]] != framing.OK:
            continue
        if key in catalog.decodable:
            payloads = pc.dictionary_encode(pc.binary_slice(keys.take(pa.array(rows)), body, 2**31 - 1))
            decoder = decoder_for(catalog.decodable[key], frames.indexes[frames.index[rows[0]]])
            distinct = np.array([_text(decoder, p) for p in payloads.dictionary.to_pylist()], object)
            texts[rows] = distinct[payloads.indices.to_numpy()]
        elif key not in catalog.refused and not framing.is_beyond(key):
            unresolved[key] = np.concatenate([unresolved.get(key, rows[:0]), rows])
    return Keys(pa.array(texts, pa.string()), unresolved)


def _text(decoder: Decoder | None, payload: bytes) -> str | None:
    try:
        return None if decoder is None else decoder.to_text(payload)
    except (DecodeError, UnicodeError):
        return None
