"""The folder of a file source as another program writes to it, on a disk and in a bucket."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from pathlib import Path

import obstore
from obstore.store import ObjectStore

from spark_app.lake.files.object_clients import open_store
from spark_app.model.address import StorageAddress


class Exports(ABC):
    """A folder where another program puts files.

    Attributes:
        address: of the folder.
    """

    address: StorageAddress

    @abstractmethod
    def write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def remove(self, name: str) -> None: ...


class DiskExports(Exports):
    def __init__(self, folder: Path):
        self.folder = folder
        self.address = StorageAddress(str(folder))
        folder.mkdir(exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()


class BucketExports(Exports):
    def __init__(self, address: StorageAddress):
        self.address = address

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return open_store(self.address)

    def write(self, name: str, data: bytes) -> None:
        obstore.put(self._store, name, data)

    def read(self, name: str) -> bytes:
        return obstore.get(self._store, name).bytes().to_bytes()

    def remove(self, name: str) -> None:
        obstore.delete(self._store, name)
