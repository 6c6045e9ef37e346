"""Opens the files of a lake, on a local disk or in a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.address import StorageAddress


def open_storage(address: StorageAddress, fence: Callable[[], None] = lambda: None) -> Storage:
    """The files at an address; `fence`: see `ObjectStorage`."""
    if not address.scheme:
        return LocalStorage(address.root)
    from spark_app.lake.files.objects import ObjectStorage  # its libraries take a fifth of the start of `status`

    return ObjectStorage(address, fence)


def local_folder(address: StorageAddress) -> str:
    """The folder on this machine for what a lake in a bucket cannot hold."""
    if address.local:
        return os.path.abspath(address.local)
    states = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    digest = hashlib.sha256(f"{address.endpoint} {address.root}".encode()).hexdigest()[:12]
    return os.path.join(states, "protolake", f"{address.bucket}-{digest}")


def address_of(root: str | os.PathLike[str] | StorageAddress) -> StorageAddress:
    return root if isinstance(root, StorageAddress) else StorageAddress(os.fspath(root))
