"""The interface of a follower of the units. `runner` calls it and keeps its cursor.

The reasons: docs/decisions/followers.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_app.lake.delta.commit import schemas_of
from spark_app.lake.delta.manifest import Manifest, Manifests
from spark_app.lake.delta.merged_columns import merge_columns
from spark_app.lake.delta.parquet import read_batches
from spark_app.lake.lake import Lake

MOST_ROWS, MOST_BYTES = 1 << 15, 16 << 20  # of a batch


@dataclass(frozen=True)
class Units:
    """The applied units that a follower lacks, the oldest first.

    A unit has a number (`sequence`), a kind, the time when it was committed (`at`), and for each table the files that
    it adds and removes (`tables`); `replaces` is whether a table loses all files of before. Compaction is no
    unit: it changes the files of a table, and never its rows.

    Attributes:
        after, upto: the last unit that the follower includes, and the last applied one.
        gone: the last of the units whose manifest was removed; 0 if all are there. Iteration begins after it.
        recent: number -> the unit without its files, of some that were applied just now.
    """

    lake: Lake
    manifests: Manifests
    after: int
    upto: int
    gone: int
    recent: Mapping[int, Manifest] = field(default_factory=dict)

    @staticmethod
    def since(lake: Lake, manifests: Manifests, after: int, recent: Mapping[int, Manifest] | None = None) -> Units:
        upto = max(after, manifests.applied())
        return Units(lake, manifests, after, upto, manifests.gone_until(after), recent or {})

    def now(self) -> Units:
        """The same, up to the unit that is the last applied one by now."""
        return Units.since(self.lake, self.manifests, self.after, self.recent)

    def __iter__(self) -> Iterator[Manifest]:
        """
        Raises:
            ContractError: a manifest is damaged, or was removed just now.
        """
        return map(self.manifests.read, self._numbers())

    def without_files(self) -> Iterator[Manifest]:
        """As iteration, but `tables` is empty: with a thousand tables the files of a unit have megabytes."""
        for number in self._numbers():
            yield self.recent.get(number) or without_files(self.manifests.read(number))

    def rows(self, unit: Manifest, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that a unit adds to a table, in batches of at most `MOST_ROWS` rows and about `MOST_BYTES` bytes.

        Args:
            columns: those to read, all of the unit's files if None; one that no file has is NULL.

        Raises:
            FileNotFoundError: compaction has merged the file, and `lake.log_retention_hours` are over.
            OSError, pa.ArrowException: the file cannot be read.
        """
        adds = unit.tables[table].adds if table in unit.tables else []
        merged = merge_columns(pa.schema([]), *schemas_of(adds))
        known = {field.name: field for field in merged}
        fields = pa.schema([known.get(name, pa.field(name, pa.null())) for name in columns or merged.names])
        for add in adds:
            key = f"{self.lake.table(table)}/{add.path}"
            yield from read_batches(self.lake.storage, key, fields, fields.names, MOST_ROWS, MOST_BYTES)

    def _numbers(self) -> range:
        return range(max(self.after, self.gone) + 1, self.upto + 1)


def without_files(unit: Manifest) -> Manifest:
    """A unit without what is large: its files and schema ids."""
    return replace(unit, tables={}, counts={key: value for key, value in unit.counts.items() if key != "schema_ids"})


class Follower(ABC):
    """Reads the applied units, each once and in their order.

    The cursor of the lake may be behind what the follower has written when it crashed, and is never ahead. One that
    must have each unit exactly once therefore stores the unit with what it writes, as a Delta transaction for example.
    After a crash that wins: `begin` returns it, or `follow` skips the units up to it.

    Attributes:
        name: one word, of the cursor and for people.
        interval_s: seconds between the beginnings of two calls of `follow`; a call may change it.
        recomputes: whether it can go on although manifests of units that it lacks are gone. Otherwise it is paused
            then, until a person accepts the gap.
        runs_at_exit: whether it is called once more before the app exits.
    """

    name: str
    interval_s = 5.0
    recomputes = False
    runs_at_exit = True

    def begin(self, stored: int | None, newest: int) -> int:
        """Open what it writes; called at first, and again after a failure.

        Args:
            stored: its cursor in the lake; None if it never had a unit.
            newest: the last applied unit.

        Returns:
            The last unit that it includes: the units after it follow. A new one begins with the next unit; to begin
            with an earlier one, it returns the number before. The manifests from there on must exist.
        """
        return newest if stored is None else stored

    @abstractmethod
    def follow(self, units: Units) -> int:
        """Take the units, or some of them; returns the last one that it includes now. Without new units it is called,
        too, and while it is paused, it is given none.

        Raises:
            Exception: the next call tries again.
        """

    def flush(self) -> None:  # noqa: B027  # one that stores each unit at once has nothing to do
        """Make durable what `follow` has done. After it the cursor is stored.

        Raises:
            OSError: the disk could not store it.
        """

    def rests(self) -> bool:
        """Whether it is not to be called now."""
        return False
