"""Opens the files of a lake, on a local disk or in a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.place import Place


def open_storage(place: Place, fence: Callable[[], None] = lambda: None) -> Storage:
    """The files at a place; `fence`: see `ObjectStorage`."""
    if not place.scheme:
        return LocalStorage(place.root)
    from spark_app.lake.files.objects import ObjectStorage  # its libraries take a fifth of the start of `status`

    return ObjectStorage(place, fence)


def local_folder(place: Place) -> str:
    """The folder on this machine for what a lake in a bucket cannot hold."""
    if place.local:
        return os.path.abspath(place.local)
    states = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    digest = hashlib.sha256(f"{place.endpoint} {place.root}".encode()).hexdigest()[:12]
    return os.path.join(states, "protolake", f"{place.bucket}-{digest}")


def place_of(root: str | os.PathLike[str] | Place) -> Place:
    return root if isinstance(root, Place) else Place(os.fspath(root))
