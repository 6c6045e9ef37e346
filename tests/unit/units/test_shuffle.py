"""Rows of small tables that tasks pack for others: packed and gathered they are the same rows."""

import pickle
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.columns import NO_IDS
from spark_app.model.record_schemas import SHARED
from spark_app.model.reports import Report
from spark_app.units.worker import shuffle
from spark_app.units.worker.buffers import Groups
from spark_app.units.worker.shuffle import Pack, gather, split_small
from spark_app.units.worker.table_rows import NOWHERE, NUMBER, split_by_table
from tests.unit.units.test_task import plan_for

NARROW = pa.schema([("at", pa.int64()), ("kind", SHARED), (NUMBER, pa.int64())])
WIDE = pa.schema([("at", pa.int64()), ("more", pa.struct([("x", pa.list_(pa.string()))])), (NUMBER, pa.int64())])
Rows = list[tuple[int, bool]]  # of a task: the table's number, whether the row has the wide schema


def groups_of(task: int, rows: Rows) -> Groups:
    """In several parts, as a task buffers them; `at` names the row."""
    found: Groups = {}
    for place, (number, is_wide) in enumerate(rows):
        schema = WIDE if is_wide else NARROW
        other = {"x": ["y", None]} if is_wide else f"kind {number}"
        column = pa.array([other], schema[1].type)
        values = [pa.array([task * 1000 + place]), column, pa.array([number])]
        found.setdefault(schema, []).append(pa.Table.from_arrays(values, schema=schema))
    return found


def number_of(groups: Groups) -> int:
    return sum(part.num_rows for parts in groups.values() for part in parts)


def gathered(folder: Path, packs: Iterable[Pack]) -> tuple[Report, dict[str, list[int]]]:
    report = gather(packs, plan_for(folder), NO_IDS, "00000-7")
    assert {len(files) for files in report.files.values()} <= {1}
    read = {table: pl.read_parquet(folder / table / files[0].path) for table, files in report.files.items()}
    return report, {table: rows["at"].to_list() for table, rows in read.items()}


@given(
    tasks=st.lists(st.lists(st.tuples(st.integers(NOWHERE, 5), st.booleans()), max_size=30), max_size=4),
    gatherers=st.integers(1, 3),
    small=st.integers(1, 8),
    order=st.randoms(use_true_random=False),
)
def test_every_row_is_kept_or_gathered_once(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[Rows], gatherers: int, small: int, order: object
) -> None:
    names = [f"g{number}" for number in range(6)]
    arriving: dict[int, list[Pack]] = {}
    expected: dict[str, list[int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "SMALL_ROWS", small)
        for task, rows in enumerate(tasks):
            own = names[task:] + names[:task]  # each task numbers its tables anew
            kept, packs = split_small(groups_of(task, rows), own, f"{task:05d}-9", gatherers)
            counts = np.bincount([number - NOWHERE for number, _ in rows], minlength=7)[1:]
            for schema, parts in kept.items():
                numbers = np.concatenate([part.column(NUMBER).to_numpy() for part in parts])
                assert all(number == NOWHERE or counts[number] >= small for number in numbers), schema
            packed = sum(pa.ipc.open_stream(s).read_all().num_rows for pack in packs.values() for s in pack.streams)
            assert packed == sum(count for count in counts if count < small)
            assert number_of(kept) + packed == len(rows)
            large = {number: count for number, count in enumerate(counts) if count >= small}
            assert {number: part.num_rows for number, part in split_by_table(kept.values())} == large
            for number, count in enumerate(counts):
                if 0 < count < small:
                    places = [task * 1000 + place for place, row in enumerate(rows) if row[0] == number]
                    expected.setdefault(f"silver_{own[number]}_events", []).extend(places)
            for target, pack in packs.items():
                arriving.setdefault(target, []).append(pickle.loads(pickle.dumps(pack)))
    found: dict[str, list[int]] = {}
    for target, packs_of_task in arriving.items():
        order.shuffle(packs_of_task)  # type: ignore[attr-defined]
        _, read = gathered(tmp_path_factory.mktemp(f"lake{target}"), packs_of_task)
        assert not set(read) & set(found)
        found |= read
    assert {table: sorted(rows) for table, rows in found.items()} == expected


def test_the_rows_of_a_file_are_in_the_order_of_their_tasks(tmp_path: Path) -> None:
    packs = [split_small(groups_of(task, [(0, False)] * 3), ["a"], f"{task:05d}-9", 1)[1][0] for task in (2, 0, 1)]
    report, read = gathered(tmp_path, packs)
    assert read == {"silver_a_events": [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]}
    assert report.files["silver_a_events"][0].path == "part-000000000001-aaaaaaaa-00000-7-00000.parquet"


def test_more_rows_than_a_task_may_hold_are_written_to_several_files(tmp_path: Path) -> None:
    packs = [split_small(groups_of(task, [(0, False)]), ["a"], f"{task:05d}-9", 1)[1][0] for task in range(3)]
    report = gather(packs, plan_for(tmp_path, buffer_bytes=1), NO_IDS, "00000-7")
    files = report.files["silver_a_events"]
    read = [pl.read_parquet(tmp_path / "silver_a_events" / entry.path)["at"].to_list() for entry in files]
    assert read == [[0], [1000], [2000]]


def test_rows_of_large_tables_are_not_even_copied() -> None:
    groups = groups_of(0, [(0, False)] * shuffle.SMALL_ROWS)
    assert split_small(groups, ["a"], "0", 2) == (groups, {})


def test_every_process_sends_a_table_to_the_same_task() -> None:
    assert [shuffle._gatherer_of(name, 5) for name in ("rummy", "uno", "go_fish", "x" * 200)] == [2, 3, 0, 2]
