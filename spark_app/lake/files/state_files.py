"""Reads and writes the lake's small state files."""

from __future__ import annotations

import contextlib
import json
from posixpath import basename
from typing import Any

from spark_app.lake.files import failpoints
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import ContractError


def write_durably(storage: Storage, key: str, text: str | bytes | memoryview, step: str) -> None:
    """Replace a file durably: after a power cut it has the old or the new content.

    Args:
        step: one of `failpoints.STEPS`.
    """
    with failpoints.around(step):
        storage.replace(key, text.encode() if isinstance(text, str) else text)


def write_quickly(storage: Storage, key: str, value: Any, step: str | None, owned: bool = False) -> None:
    """Replace a JSON file atomically but not durably.

    Args:
        step: one of `failpoints.STEPS`; None if the app goes on correctly without the file.
        owned: see `Storage.replace`.
    """
    with failpoints.around(step) if step else contextlib.nullcontext():
        storage.replace(key, json.dumps(value).encode(), durable=False, owned=owned)


def numbers_of(storage: Storage, folder: str) -> list[int]:
    """The numbers that name the JSON files of a folder, ascending."""
    names = (basename(key).removesuffix(".json") for key in storage.list(folder))
    return sorted(int(name) for name in names if name.isdecimal())


def read_json(storage: Storage, key: str) -> Any:
    """The object in a file of `write_quickly`; None if there is no file or its content is damaged.

    Raises:
        StoreError, PermissionError: the object store is not to be had, which says nothing about the file.
    """
    try:
        value = json.loads(storage.get(key))
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        if is_store_error(error):
            raise
        return None
    return value if isinstance(value, dict) else None


def read_durable(storage: Storage, key: str, kind: type = dict) -> Any:
    """The value in a JSON file of `write_durably`; None if there is no file.

    Raises:
        ContractError: the file is damaged, or its value is not of the type `kind`.
    """
    try:
        value = json.loads(storage.get(key))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ContractError(
            f"{storage.uri(key)} is damaged ({error})", "restore it from a backup of the lake"
        ) from None
    if not isinstance(value, kind):
        raise ContractError(f"{storage.uri(key)} is damaged", "restore it from a backup of the lake")
    return value
