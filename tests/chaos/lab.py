"""A real broker and a real registry on free ports, and a stage for each scenario, in a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.registry import Registry
from spark_app.model.address import StorageAddress
from tests.chaos.stage import Stage


class Lab:
    """The servers and the folder of the scenarios. `folder` is on the same disk as the lakes."""

    def __init__(self, folder: Path, kafka: Kafka, registry: Registry, objects: ObjectStore | None = None):
        """`objects` holds the lakes; None = they are in the folder."""
        self.folder = folder
        self.kafka = kafka
        self.registry = registry
        self.objects = objects
        self._numbers = count(1)

    def stage(self, **settings: str) -> Stage:
        """A new topic and a new lake; `settings` are the app's, as SECTION__KEY."""
        number = next(self._numbers)
        folder = self.folder / f"stage-{number}"
        folder.mkdir()
        return Stage(folder, self.kafka, self.registry, f"chaos_{number}", self.objects, **settings)

    def address(self, name: str) -> StorageAddress:
        """Where a table of somebody else is, beside the lakes."""
        folder = self.folder / name
        return self.objects.address(name, folder) if self.objects else StorageAddress(str(folder))


@contextlib.contextmanager
def open_lab(keep: bool = False, storage: str = "local") -> Iterator[Lab]:
    """Start the servers; at the end stop them and remove everything unless `keep`.

    Args:
        storage: where the lakes are, "local" or "s3".
    """
    folder = Path(tempfile.mkdtemp(prefix="protolake-chaos-"))
    try:
        in_bucket = ObjectStore(folder / "objects") if storage == "s3" else contextlib.nullcontext()
        with Kafka(folder / "kafka") as kafka, Registry(folder / "registry") as registry, in_bucket as objects:
            yield Lab(folder, kafka, registry, objects)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
