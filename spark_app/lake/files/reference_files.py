"""The copies of reference tables in the lake: a file for each content, which workers, `rebuild` and `audit` read.

A copy is named by a digest of its content, in a bucket also by the epoch of who made it: DIGEST-EPOCH. So no process
makes a copy again under a name that one before it may still be about to remove.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from spark_app.lake.files.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "_protolake/references"
KEY = "reference key"  # the name of the first column; no other column can have it


def key_of(name: str, content: str) -> str:
    """The key of a copy in the lake.

    Args:
        name: of the reference table.
        content: as `name_of` names it.
    """
    return f"{FOLDER}/{name}/{content}.arrow"


def digest_of(data: bytes | memoryview) -> str:
    """The digest of a file's content."""
    return hashlib.sha256(data).hexdigest()[:32]


def name_of(digest: str, epoch: int) -> str:
    """The name of a new copy. `epoch`: that of the lease; 0 on a local disk."""
    return f"{digest}-{epoch}" if epoch else digest


def is_copy_of(content: str, digest: str) -> bool:
    """Whether a copy of this name has the content with this digest."""
    return content.partition("-")[0] == digest


def read_copy(storage: Storage, name: str, content: str) -> pa.RecordBatch:
    """The rows: `KEY` first, which is never NULL and has no value twice, then the joined columns. Processes of one
    machine share their memory.

    Raises:
        FileNotFoundError: the copy is no longer kept.
        ArrowInvalid: it is damaged.
    """
    import pyarrow as pa

    return pa.ipc.open_file(storage.map_input(key_of(name, content))).get_batch(0)


def read_named_copy(storage: Storage, name: str, content: str, key: str) -> pa.Table:
    """As `read_copy`; the first column has the name that the key has in the settings."""
    import pyarrow as pa

    rows = pa.Table.from_batches([read_copy(storage, name, content)])
    return rows.rename_columns([key, *rows.column_names[1:]])


def is_whole(storage: Storage, name: str, content: str) -> bool:
    """Whether a copy has the content that it is named by."""
    try:
        return is_copy_of(content, digest_of(memoryview(storage.map_input(key_of(name, content)).read_buffer())))
    except (FileNotFoundError, ValueError):
        return False
