"""The ledger of the ingested files, as it is stored.

Manifests say what each unit ingested, but old ones are removed; so the ledger copies it into segments of its own:

    taken/000000000007-000000000042.parquet   the files ingested by the units 7 to 42

A unit's segment is written after its manifest. The manifest of the last unit with records is never removed, so a start
can always write the one segment that a kill prevented. Segments are merged as their number grows: each file's entry is
written about log(files) times in all, and a batch costs the same however many files were ingested before it.

The reasons: docs/decisions/file-source.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.lake.files.state_files import write_durably
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.errors import ContractError
from spark_app.sources.files.folder import Listed

MOST_SEGMENTS = 32
LEAST_MERGED = 16
NAME = re.compile(r"(\d{12})-(\d{12})\.parquet")
REMEDY = "restore it from a backup of the lake"


@dataclass(frozen=True)
class IngestedFile:
    """
    Attributes:
        key, size, changed, time, tag: as in `Listed`.
        digest: SHA-256 of the content, in hexadecimal digits.
        first: the running number of the file's first row.
        done: rows that are ingested.
        rows: rows of the file; more than `done` if it is split over several units.
    """

    key: str
    size: int
    changed: int
    time: int
    digest: str
    first: int
    done: int
    rows: int
    tag: str = ""

    def is_as(self, listed: Listed) -> bool:
        """Whether the file is unchanged for sure."""
        return listed.is_same(self.size, self.changed, self.tag)


SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("changed", pa.int64()),
        ("time", pa.int64()),
        ("digest", pa.string()),
        ("first", pa.int64()),
        ("done", pa.int64()),
        ("rows", pa.int64()),
        ("tag", pa.string()),
    ]
)


class Segment(NamedTuple):
    first: int
    last: int
    rows: pa.Table


class IngestedFiles:
    """The ledger of one lake.

    Attributes:
        unit: the last unit in it.
    """

    def __init__(self, storage: Storage, folder: str, tidy: bool = True):
        """
        Args:
            tidy: remove segments that a kill left after their merge.

        Raises:
            ContractError: a segment is damaged.
        """
        self._storage = storage
        self._folder = folder
        self._tidy = tidy
        # Two may overlap, if a process that lost the lease merged, too: each is complete for its units.
        self._segments = list(self._load())

    @property
    def unit(self) -> int:
        return self._segments[-1].last if self._segments else 0

    def _load(self) -> Iterator[Segment]:
        named = sorted(
            (int(found[1]), -int(found[2]), key)
            for key in self._storage.list(self._folder)
            if (found := NAME.fullmatch(key.rsplit("/", 1)[-1]))
        )
        until = 0
        for first, last, key in named:
            if -last <= until:  # a kill left it after the merge
                if self._tidy:
                    self._storage.delete(key)
                continue
            until = -last
            yield Segment(first, until, self._read(key))

    def _read(self, key: str) -> pa.Table:
        from pyarrow.parquet import read_table

        try:
            with self._storage.open_input(key) as file:
                return read_table(file).select(SCHEMA.names).cast(SCHEMA)
        except (OSError, pa.ArrowException, KeyError) as error:
            if is_store_error(error):
                raise
            raise ContractError(f"{self._storage.uri(key)} is damaged ({error})", REMEDY) from None

    def check(self, end: int, later: Iterable[IngestedFile] = ()) -> pa.Table:
        """Each file once, with its newest entry.

        Args:
            later: files of units that are not in the ledger yet.

        Raises:
            ContractError: the ledger does not have all rows before the running number `end`.
        """
        rows = _newest([*(segment.rows for segment in self._segments), _table(later)])
        counted = pc.sum(rows["done"]).as_py() or 0
        if counted != end:
            raise ContractError(
                f"{self._storage.uri(self._folder)} has {counted:,} rows of ingested files, but the last unit ended at "
                f"{end:,}{self._where(_first_gap(rows))}",
                REMEDY,
            )
        return rows

    def _where(self, number: int) -> str:
        """Between which segments the row of this running number is missing."""
        segments = [(self._key(segment).rsplit("/", 1)[-1], _ends(segment.rows)) for segment in self._segments]
        before = [name for name, ends in segments if ends <= number]
        after = [name for name, ends in segments if ends > number]
        sides = [f"after {name}" for name in before[-1:]] + [f"before {name}" for name in after[:1]]
        return f": row {number:,} is not in it, a segment is missing {' and '.join(sides)}" if sides else ""

    def look_up(self, keys: list[str]) -> dict[str, IngestedFile]:
        """The newest entries of those keys that were ingested."""
        if not keys or not self._segments:
            return {}
        wanted, found = pa.array(keys, pa.string()), dict[str, IngestedFile]()
        for segment in self._segments:
            rows = segment.rows.filter(pc.is_in(segment.rows["key"], value_set=wanted))
            found |= {row["key"]: IngestedFile(**row) for row in rows.to_pylist()}
        return found

    def add(self, unit: int, files: Iterable[IngestedFile]) -> None:
        """Store durably what a unit took."""
        rows = _table(files)
        segment = Segment(unit, unit, rows)
        write_durably(self._storage, self._key(segment), _parquet(rows), "taken")
        self._segments.append(segment)
        if len(self._segments) > MOST_SEGMENTS:
            self._merge()

    def _merge(self) -> None:
        """Merge the newest segments, and older ones as long as these are not larger than twice the merged ones: so each
        entry is written again only when what it is in has grown by half."""
        at = len(self._segments) - LEAST_MERGED
        total = sum(len(segment.rows) for segment in self._segments[at:])
        while at and len(self._segments[at - 1].rows) <= 2 * total:
            at -= 1
            total += len(self._segments[at].rows)
        old = self._segments[at:]
        merged = Segment(old[0].first, old[-1].last, _newest(segment.rows for segment in old))
        write_durably(self._storage, self._key(merged), _parquet(merged.rows), "taken.merge")
        self._storage.delete(*map(self._key, old))
        self._segments[at:] = [merged]

    def _key(self, segment: Segment) -> str:
        return f"{self._folder}/{segment.first:012d}-{segment.last:012d}.parquet"


def _table(files: Iterable[IngestedFile]) -> pa.Table:
    return pa.Table.from_pylist([asdict(file) for file in files], SCHEMA)


def _ends(rows: pa.Table) -> int:
    """The running number after the last row."""
    return pc.max(pc.add(rows["first"], rows["done"])).as_py() or 0


def _first_gap(rows: pa.Table) -> int:
    """The first running number that is in no file."""
    at = 0
    for file in rows.sort_by("first").select(["first", "done"]).to_pylist():
        if file["first"] > at:
            break
        at = file["first"] + file["done"]
    return at


def _parquet(rows: pa.Table) -> memoryview:
    from pyarrow.parquet import write_table

    sink = pa.BufferOutputStream()
    write_table(rows, sink, compression="zstd")
    return memoryview(sink.getvalue())


def _newest(tables: Iterable[pa.Table]) -> pa.Table:
    """The last entry of each key."""
    rows = pa.concat_tables([SCHEMA.empty_table(), *tables])
    others = [name for name in SCHEMA.names if name != "key"]
    found = rows.group_by("key", use_threads=False).aggregate([(name, "last") for name in others])
    return found.rename_columns([name.removesuffix("_last") for name in found.column_names]).select(SCHEMA.names)


def files_of(source: Mapping[str, Any]) -> list[IngestedFile]:
    """The files of a manifest's source."""
    return [IngestedFile(**entry) for entry in source["files"]]
