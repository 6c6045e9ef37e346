"""Runs the commit layer on a disk with simulated power cuts, without a JVM: real manifests, committer, maintenance and
gold.

The content of a unit depends on its number only, so that after any cut the expected content of every table is known.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_app.followers import runner
from spark_app.followers.gold import tables as gold_tables
from spark_app.followers.gold.compute import AggregateComputer, Computed, Files
from spark_app.lake.delta import commit, durability, maintenance
from spark_app.lake.delta.durability import DurabilityMark
from spark_app.lake.files.storage import Storage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.table_names import TableNames
from spark_app.settings.models import Settings
from spark_app.tables.admission import TableAdmission
from spark_app.units.driver.open_lake import OpenLake
from tests.chaos.mount import Mount
from tests.chaos.units import ingest_unit, open_lake
from tests.support.following import Gold

NAMES = ("a", "b", "c")
SETTINGS: dict[str, Any] = {
    "lake": {"log_retention_hours": 1 / 3600, "compact_files": 4, "checkpoint_every": 5},
    "gold": {"aggregates": {"games": {"function": "count"}, "total": {"function": "sum", "field": "score"}}},
}
FIELDS = pa.schema([("gamer_id", pa.string()), ("score", pa.int64())])


def rows_of(unit: int) -> dict[str, pa.Table]:
    """The rows of bronze, and of some silver tables with some players; later units have more tables and columns."""
    dice = random.Random(unit)
    names = dice.sample(NAMES[: 1 + unit // 2], k=dice.randint(1, min(len(NAMES), 1 + unit // 2)))
    tables = {"bronze_events": pa.table({"x": pa.array([], pa.int64())})}
    for name in names:
        rows = [{"gamer_id": dice.choice("xyz"), "score": unit * 10 + number} for number in range(dice.randint(1, 3))]
        columns = pa.Table.from_pylist(rows, FIELDS)
        added = pa.array([unit] * len(rows))
        tables[f"silver_{name}_events"] = columns.append_column(f"later_{unit // 7}", added) if unit > 6 else columns
    tables["bronze_events"] = pa.table({"x": [unit] * sum(rows.num_rows for rows in tables.values())})
    return tables


class Known(TableAdmission):
    """Admits every table, each with the fields that gold needs, independent of schemas."""

    def __init__(self) -> None:
        self.admitted = dict(zip(NAMES, NAMES, strict=True))
        self.messages = {}

    def columns(self, name: str, known: Mapping[str, pa.Schema]) -> pa.Schema:
        return FIELDS


class ByArrow(AggregateComputer):
    """Computes with Arrow what Spark computes, without a JVM."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def of_files(self, files: Files, fields: dict[str, pa.Schema], gold: Files = MappingProxyType({})) -> Computed:
        read = {name: pa.concat_tables(map(self._rows, keys)) for name, keys in files.items()}
        return Computed({name: _totals(rows) for name, rows in read.items()}, {})

    def _rows(self, key: str) -> pa.Table:
        return pq.read_table(self._storage.open_input(key), columns=FIELDS.names)


def gold_of(opened: OpenLake) -> Gold:
    """The gold aggregator without Spark."""
    return Gold(ByArrow(opened.lake.storage), replace(opened, admission=Known()), threading.Lock())


def _totals(rows: pa.Table) -> pa.Table:
    found = rows.group_by("gamer_id").aggregate([([], "count_all"), ("score", "sum")])
    return found.select(["gamer_id", "count_all", "score_sum"]).rename_columns(["gamer_id", "games", "total"])


@dataclass
class Life:
    """One run of the app's commit layer on the disk, until a cut."""

    mount: Mount
    dice: random.Random
    committed: list[tuple[int, int]] = field(default_factory=list)  # (disk operations before its commit, unit)

    def __post_init__(self) -> None:
        commit.SYNC_EVERY_S, runner.FLUSH_EVERY_S = self.dice.choice([0, 1e6]), self.dice.choice([0, 1e6])
        self.opened = open_all(self.mount.path / "lake")
        self.gold = gold_of(self.opened)

    def live(self, units: int) -> None:
        for _ in range(units):
            self._unit()
            if self.dice.random() < 0.4:
                self.gold.run()
        if self.dice.random() < 0.2:
            self.opened.units.committer.close()
            self.gold.close()
        _end_threads(self.opened, self.gold)

    def _unit(self) -> None:
        manifests, opened = self.opened.units.manifests, self.opened
        manifest = ingest_unit(opened.lake, manifests.last + 1, rows_of(manifests.last + 1))
        manifests.commit(manifest)
        self.committed.append((self.mount.mark(), manifest.sequence))
        opened.units.committer.apply(manifest)
        for name in manifest.tables:
            opened.units.maintainer.added(name, 1)
        opened.units.maintainer.step()

    def committed_before(self, operation: int) -> int:
        return max((unit for mark, unit in self.committed if mark <= operation), default=0)


def _end_threads(opened: OpenLake, gold: Gold | None = None) -> None:
    """Wait for the syncs and checkpoints under way. A power cut would end them; here they would go on, and write what
    they know of this disk to the next one."""
    opened.units.committer.tables.wait_for_checkpoints()
    opened.units.committer._pool.shutdown()
    if gold is not None:
        gold._tables._handles.wait_for_checkpoints()


def open_all(root: Path) -> OpenLake:
    own = SETTINGS["lake"] | {"path": str(root)}
    return OpenLake.of(open_lake(root), Settings(**SETTINGS | {"lake": own}))


def faults(root: Path, committed: int) -> Iterator[str]:
    """Start after a cut, and compare all tables with the expected rows of the units."""
    opened = open_all(root)
    last = opened.units.manifests.last
    if last < committed:
        yield f"unit {committed} was committed, but the newest manifest is {last}"
    gold = gold_of(opened)
    gold.run()
    yield from _wrong(opened.lake, last)
    _end_threads(opened, gold)
    again = open_all(root)
    _end_threads(again)
    if again.units.redone_units or durability.look(again.lake, again.units.committer.synced, again.settings.layout):
        yield "the second start still found work to do"


def _wrong(lake: Lake, last: int) -> Iterator[str]:
    expected: dict[str, list[dict[str, Any]]] = {}
    for unit in range(1, last + 1):
        for name, rows in rows_of(unit).items():
            expected.setdefault(name, []).extend(rows.to_pylist())
    for name in [name for name in expected if name.startswith("silver_")]:
        gold = name.replace("silver_", "gold_").replace("_events", "_player_agg")
        expected[gold] = _totals(pa.Table.from_pylist(expected[name], FIELDS)).to_pylist()
    if lake.tables() != sorted(expected):
        yield f"tables {lake.tables()} instead of {sorted(expected)}"
    for name in set(expected) & set(lake.tables()):
        found = DeltaTable(str(lake.path(name))).to_pyarrow_table().to_pylist()
        if _count(found) != _count(expected[name]):
            yield f"{name}: {found} instead of {expected[name]}"


def _count(rows: list[dict[str, Any]]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted((k, v) for k, v in row.items() if v is not None)) for row in rows)


@dataclass
class Cuts:
    """The results of a number of cuts."""

    done: int = 0
    units: int = 0
    operations: int = 0
    mended: int = 0  # cuts that left a log torn
    faults: dict[str, list[str]] = field(default_factory=dict)


@contextlib.contextmanager
def _in_a_hurry() -> Iterator[None]:
    """Makes steps that are rare in the app happen in every run."""
    paces = [
        (commit, "SYNC_EVERY_S"),
        (runner, "FLUSH_EVERY_S"),
        (gold_tables, "CLEAN_EVERY"),
        (maintenance, "SWEEP_AFTER"),
    ]
    usual = [getattr(module, name) for module, name in paces]
    maintenance.SWEEP_AFTER, gold_tables.CLEAN_EVERY = 1, 3
    try:
        yield
    finally:
        for (module, name), value in zip(paces, usual, strict=True):
            setattr(module, name, value)


def cut_often(mount: Mount, dice: random.Random, times: int, each: int = 4) -> Cuts:
    """Runs that each end with a cut at any operation; each cut is repeated in several ways, and the next run continues
    after the last one."""
    with _in_a_hurry():
        return _cut_often(mount, dice, times, each)


def _cut_often(mount: Mount, dice: random.Random, times: int, each: int) -> Cuts:
    cuts = Cuts()
    committed = 0
    while cuts.done < times:
        life = Life(mount, dice)
        life.live(dice.randint(1, 6))
        end, known = mount.mark(), committed
        cuts.operations += end
        for number in range(each):
            seed, at = dice.randrange(1 << 30), dice.randint(0, end)
            mount.again(seed, at) if number else mount.cut(seed, at)
            committed = max(known, life.committed_before(at))
            cuts.mended += _is_torn(Lake(mount.path / "lake"))
            found = _faults(mount.path / "lake", committed)
            if found:
                cuts.faults[f"cut {seed} at {at} of {end}"] = found
            cuts.done += 1
        committed = cuts.units = _last_unit(mount.path / "lake")
    return cuts


def _last_unit(root: Path) -> int:
    opened = open_all(root)
    _end_threads(opened)
    return opened.units.manifests.last


def _is_torn(lake: Lake) -> bool:
    with contextlib.suppress(ContractError):  # the start that follows reports it
        return bool(durability.look(lake, DurabilityMark(lake), TableNames()))
    return True


def _faults(root: Path, committed: int) -> list[str]:
    try:
        return list(faults(root, committed))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
