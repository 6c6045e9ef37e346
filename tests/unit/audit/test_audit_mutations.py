"""The audit is audited: of rows that are deleted, doubled, swapped or altered behind the app's back, it finds each one,
and nothing else."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.protos import compile_text
from tests.unit.producer.test_producer_source import Lab

RECORDS = 6_000
ROWS = 25  # of each kind in each layer: 400 in all
SEED = 20261121
GOLD_KEY = "gamer_id"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Three versions mixed, every kind of poison, seven games, three partitions, some units, gold."""
    lab = Lab("--schema-version", "3", "--num-versions", "3", "--poison", "0.1", "--gamers", "200")
    records = lab.take(RECORDS)
    texts = {n: (lab.settings.proto / f"v{n}" / "game_event.proto").read_text() for n in (1, 2, 3)}
    ids = {lab.source._encoders._ready[n]._serialize._schema_id.id: n for n in (1, 2, 3)}
    lake = SmallLake(tmp_path_factory.mktemp("demo"), *(compile_text(texts[n], schema_id=i) for i, n in ids.items()))
    third = RECORDS // 3
    for first in range(0, third, third // 4):
        parts = [[v for v, _ in records[p * third + first : p * third + first + third // 4]] for p in range(3)]
        lake.take(*(batch_of(part, first, partition=p) for p, part in enumerate(parts)))
    lake.fold()
    return lake


def test_a_lake_of_the_demo_is_clean(demo: SmallLake) -> None:
    verdict = demo.audit()
    assert (verdict.faults(), verdict.records) == ({}, RECORDS)
    assert sum(rows for name, rows in verdict.rows.items() if name == "quarantine_events") > 100
    assert dict(verdict.notes) == {}
    assert {name for name in demo.lake.tables() if name.startswith("gold_")} >= {"gold_uno_player_agg"}


class Vandal:
    """Rewrites tables with delta-rs, and remembers what the audit has to say of it."""

    def __init__(self, lake: SmallLake, seed: int):
        self.lake = lake.lake
        self.layout = lake.settings.layout
        self.dice = random.Random(seed)
        self.tables = {n: DeltaTable(str(self.lake.path(n))).to_pyarrow_table() for n in self.lake.tables()}
        self.rows: dict[str, list[Row]] = {n: sorted(table.to_pylist(), key=_order) for n, table in self.tables.items()}
        self.due: set[tuple[str, str, str]] = set()  # table or "" for a record, kind, identity or key
        # Records that were picked, wait or are tombstones: when they landed is then written down in bronze alone.
        self.unfit = {_name(row) for row in self.rows[self.layout.deferred]}
        self.unfit |= {_name(row) for row in self.rows[self.layout.bronze] if row["value"] is None}
        self.touched: set[str] = set()  # gamers whose silver rows were damaged: their gold is wrong then, too

    def write(self) -> None:
        for name, table in self.tables.items():
            rows = pa.Table.from_pylist(self.rows[name], table.schema)
            write_deltalake(str(self.lake.path(name)), rows, mode="overwrite")

    def pick(self, layer: str, count: int) -> list[tuple[str, Row]]:
        """Rows that were not picked before, with their tables."""
        names = [name for name in self.tables if name.startswith(layer)]
        left = [(name, row) for name in names for row in self.rows[name] if not row.get("picked")]
        if layer != "gold":
            left = [(name, row) for name, row in left if _name(row) not in self.unfit]
        if layer == "gold":  # two wrongs may make a right
            left = [(name, row) for name, row in left if row[GOLD_KEY] not in self.touched]
        found = self.dice.sample(left, count)
        for name, row in found:
            row["picked"] = True
            self.unfit |= set() if "gold" in name else {_name(row)}
        return found

    def expect(self, kind: str, name: str, *rows: Row) -> None:
        for row in rows:
            gold = name.startswith("gold")
            self.due.add((name, "gold", row[GOLD_KEY]) if gold else ("", kind, _name(row)))
            if name.startswith("silver"):
                self.touched.add(row[GOLD_KEY])

    def delete(self, layer: str, count: int) -> None:
        for name, row in self.pick(layer, count):
            self.rows[name] = [other for other in self.rows[name] if other is not row]
            self.expect("lost", name, row)

    def double(self, layer: str, count: int) -> None:
        for name, row in self.pick(layer, count):
            self.rows[name].append(dict(row))
            self.expect("doubled", name, row)

    def swap(self, layer: str, count: int) -> None:
        """Every other pair of silver exchanges tables, all other pairs what they say of the same table's record."""
        for turn in range(count // 2):
            (name, one), (other_name, other) = self.pair(layer, same=turn % 2 == 0 or layer != "silver")
            self.touched |= {row[GOLD_KEY] for row in (one, other) if layer == "silver"}
            if name != other_name:
                columns = set(self.tables[name].column_names) & set(self.tables[other_name].column_names)
                for column in columns:
                    one[column], other[column] = other[column], one[column]
                self.expect("misplaced", name, one, other)
                continue
            for column in self.content(name):
                one[column], other[column] = other[column], one[column]
            self.expect("altered", name, one, other)

    def pair(self, layer: str, same: bool) -> list[tuple[str, Row]]:
        while True:
            (name, one), (other_name, other) = pair = self.pick(layer, 2)
            proof = "value" if "value" in one else "event_timestamp" if layer == "silver" else "session_count"
            if (name == other_name) == same and one[proof] != other[proof]:
                return pair
            for _, row in pair:
                del row["picked"]

    def content(self, name: str) -> list[str]:
        own = ("topic", "topic_id", "partition", "offset")
        own += tuple(f"_{column}" for column in own)
        return [c for c in self.tables[name].column_names if c not in (*own, GOLD_KEY if "gold" in name else "")]

    def alter(self, layer: str, count: int) -> None:
        for name, row in self.pick(layer, count):
            self.touched |= {row[GOLD_KEY]} if layer == "silver" else set()
            column = self.dice.choice([c for c in self.content(name) if c not in SAYS_NOTHING])
            if column == "cause":
                row["cause"], row["hop"] = (
                    ("frame_short", "frame") if row["hop"] != "frame" else ("route_name", "route")
                )
            else:
                row[column] = _other(row[column], self.tables[name].schema.field(column).type)
            self.expect("altered", name, row)


SAYS_NOTHING = {"detail", "message_type", "refused_schema", "quarantined_at", "hop"}


def _order(row: Row) -> tuple[str, int]:
    """Not that of the files, whose names are random: a seed is to say it all."""
    return (row[GOLD_KEY], 0) if "session_count" in row else (_name(row).split("@")[0], int(_name(row).split("@")[1]))


def _name(row: Row) -> str:
    prefix = "_" if "_offset" in row else ""
    return f"{row[f'{prefix}topic']}/{row[f'{prefix}partition']}@{row[f'{prefix}offset']}"


def _other(value: Any, kind: pa.DataType) -> Any:
    """Another value of the type."""
    if pa.types.is_timestamp(kind):
        return (value or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)) + datetime.timedelta(microseconds=1)
    if pa.types.is_binary(kind):
        return (value or b"") + b"\0"
    return (value or "") + "x" if pa.types.is_string(kind) else (value or 0) + 1


def test_400_of_400_damaged_rows_are_found_and_no_other(demo: SmallLake) -> None:
    vandal = Vandal(demo, SEED)
    for layer in ("silver", "quarantine", "bronze", "gold"):
        vandal.delete(layer, ROWS)
        vandal.double(layer, ROWS)
        vandal.swap(layer, ROWS + (1 if layer in ("bronze", "quarantine") else -1))
        vandal.alter(layer, ROWS)
    vandal.write()
    assert len(vandal.due) == 16 * ROWS
    verdict = demo.audit()
    found = {
        (wrong.table if wrong.kind == "gold" else "", wrong.kind, wrong.what)
        for wrongs in verdict.named.values()
        for wrong in wrongs
    }
    assert vandal.due - found == set()
    extra = {item for item in found - vandal.due if item[1] != "gold" or item[2] not in vandal.touched}
    assert extra == set()
    assert sum(verdict.counts.values()) == len([w for wrongs in verdict.named.values() for w in wrongs])
