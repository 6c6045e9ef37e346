"""A table of rows that spools had before: each row is in it once, because the commit that has it says up to which line
of each spool the table goes."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.columns import Comments
from spark_app.settings.models import Settings

EXPIRE_EVERY_S = 3600.0
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Kept:
    """
    Attributes:
        age: the column with the time of a row, which is removed so many days later.
    """

    schema: pa.Schema
    comments: Comments
    age: str
    days: float


class SpooledTable:
    """The app alone writes it.

    Attributes:
        name: of the table.
    """

    def __init__(self, lake: Lake, settings: Settings, synced: DurabilityMark, name: str, kept: Kept, *, step: str):
        """
        Args:
            step: of the commits, one of `failpoints.STEPS`.
        """
        self.name = name
        self._lake = lake
        self._kept = kept
        self._step = step
        self._synced = synced
        self._handles = Tables(lake, settings.lake, settings.layout)
        self._maintainer = Maintainer(self._handles, settings.lake, synced)
        self._compression = settings.lake.compression
        self._next_expiry = 0.0

    def begin(self) -> bool:
        """Open the table anew; False if it does not exist.

        Raises:
            ContractError: its log needs what the app does not support.
        """
        self._handles.forget(self.name)
        table = self._handles.get(self.name)
        if table is None:
            return False
        delta_log.check(self.name, table)
        self._maintainer.count_files([self.name])
        return True

    def create(self, transactions: Sequence[tuple[str, int]]) -> None:
        """Begin the table, without rows."""
        self._synced.forget(self.name)
        with failpoints.around(self._step):
            self._handles.begin_by_rows(self.name, self._kept.schema, [], transactions, self._kept.comments)

    def transaction(self, app: str) -> int:
        """The number that a transaction of the table has; 0 without it."""
        table = self._handles.get(self.name)
        return 0 if table is None else table.transaction_version(app) or 0

    def commit(self, rows: pa.Table, transactions: Sequence[tuple[str, int]]) -> None:
        """Add rows, and remove those that are too old.

        Args:
            transactions: (name, number) of each that this commit moves; the last one decides whether an entry is whole.

        Raises:
            DeltaError: another writer has changed or removed the table.
        """
        storage, folder = self._lake.storage, self._lake.table(self.name)
        name = f"{self.name.partition('_')[2] or self.name}-{uuid.uuid4().hex}.parquet"
        entry = files.write_file(storage, folder, name, rows, self._compression, durable=False)
        try:
            if self._handles.version(self.name) is None:
                raise FileNotFoundError(f"{self.name} was removed")
            with failpoints.around(self._step):
                version = self._handles.commit_rows(self.name, [entry], self._expired(), transactions)
        except (FileExistsError, FileNotFoundError) as error:
            storage.delete(f"{folder}/{name}")
            raise DeltaError(f"another writer has changed or removed {self.name} ({error})") from None
        self._handles.checkpoint_if_due(self.name, version)
        self._maintainer.added(self.name, 1)

    def step(self) -> None:
        """Keep the table small."""
        self._maintainer.step()

    def sync(self) -> None:
        """Make what was committed durable."""
        self._handles.wait_for_checkpoints()
        self._synced.sync([self.name])

    def _expired(self) -> list[str]:
        """Files whose rows are all older than the table keeps them; looked for once an hour."""
        if time.monotonic() < self._next_expiry:
            return []
        self._next_expiry = time.monotonic() + EXPIRE_EVERY_S
        table = self._handles.get(self.name)
        actions = table.get_add_actions(flatten=True) if table is not None else None
        if actions is None or f"max.{self._kept.age}" not in actions.schema.names:
            return []
        oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=self._kept.days)
        newest = zip(actions["path"].to_pylist(), actions[f"max.{self._kept.age}"].to_pylist(), strict=True)
        return [path for path, at in newest if at is not None and at < oldest]
