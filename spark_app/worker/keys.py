"""Record keys that are framed Protobuf, as JSON text.

In: an Arrow batch of records. Out: one text per record, NULL where the key has no frame or cannot be decoded: a bad key
costs nobody the value, and the raw key stays in bronze. Keys of schemas outside the catalog are named.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from spark_app.records import Catalog, Decodable, MessageIndex, SchemaKey
from spark_app.worker import framing
from spark_app.worker.decode.json_text import to_json
from spark_app.worker.decode.reference import load_files
from spark_app.worker.decode.typemap import message_at


@dataclass
class Keys:
    """`texts` has one entry per record; `unsettled` the rows whose key is of a schema that the catalog lacks."""

    texts: pa.Array
    unsettled: dict[SchemaKey, np.ndarray] = field(default_factory=dict)


def read_keys(batch: pa.RecordBatch, catalog: Catalog) -> Keys:
    """Decode each distinct key once."""
    keys = batch.column("key")
    frames = framing.split(keys, batch.column("headers"), framing.KEY_HEADER)
    texts = np.full(len(keys), None, object)
    found = Keys(pa.nulls(len(keys), pa.string()))
    for rows in frames.groups():
        key, body = frames.key_of(rows[0]), int(frames.body[rows[0]])
        if key in catalog.decodable:
            payloads = pc.dictionary_encode(pc.binary_slice(keys.take(pa.array(rows)), body, 2**31 - 1))
            decodable, index = catalog.decodable[key], frames.indexes[frames.index[rows[0]]]
            distinct = np.array([_text(decodable, index, p) for p in payloads.dictionary.to_pylist()], object)
            texts[rows] = distinct[payloads.indices.to_numpy()]
        elif key not in catalog.refused and not (isinstance(key, int) and key > framing.LARGEST_ID):
            found.unsettled[key] = np.concatenate([found.unsettled.get(key, rows[:0]), rows])
    found.texts = pa.array(texts, pa.string())
    return found


def _text(decodable: Decodable, index: MessageIndex, payload: bytes) -> str | None:
    kind, pool = _message_class(decodable, index)
    try:
        return None if kind is None else to_json(pool, kind.FromString(payload))
    except (DecodeError, UnicodeError):
        return None


@functools.lru_cache(maxsize=256)
def _message_class(decodable: Decodable, index: MessageIndex) -> tuple[type[Message] | None, DescriptorPool]:
    pool, messages = load_files(decodable.descriptor_set)
    message = message_at(messages, index)
    return (None if message is None else message_factory.GetMessageClass(message)), pool
