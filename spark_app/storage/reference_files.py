"""The copies of reference tables in the lake: a file for each content, which workers, `rebuild` and `audit` read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from spark_app.storage.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "_protolake/references"
KEY = "reference key"  # the name of the first column; no other column can have it


def key_of(name: str, content: str) -> str:
    """The key of a copy in the lake.

    Args:
        name: of the reference table.
        content: as `content_of` names it.
    """
    return f"{FOLDER}/{name}/{content}.arrow"


def content_of(data: bytes | memoryview) -> str:
    """The name of a file's content."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_copy(storage: Storage, name: str, content: str) -> pa.RecordBatch:
    """The rows: `KEY` first, which is never NULL and has no value twice, then the joined columns. Processes of one
    machine share their memory.

    Raises:
        FileNotFoundError: the copy is no longer kept.
        ArrowInvalid: it is damaged.
    """
    import pyarrow as pa

    return pa.ipc.open_file(storage.map_input(key_of(name, content))).get_batch(0)


def is_whole(storage: Storage, name: str, content: str) -> bool:
    """Whether a copy has the content that it is named by."""
    try:
        return content_of(memoryview(storage.map_input(key_of(name, content)).read_buffer())) == content
    except (FileNotFoundError, ValueError):
        return False
