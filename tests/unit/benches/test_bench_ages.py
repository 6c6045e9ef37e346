"""Ages are taken from the log entry that made a row readable, once."""

import datetime
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from scripts.benches.ages import STAMP, Ages

MOMENT = 1_700_000_000


def _append(table: Path, *seconds: int) -> None:
    stamps = [datetime.datetime.fromtimestamp(MOMENT + second, datetime.UTC) for second in seconds]
    write_deltalake(str(table), pa.table({STAMP: pa.array(stamps, pa.timestamp("us", "UTC"))}), mode="append")
    entry = max((table / "_delta_log").glob("*.json"))
    os.utime(entry, (MOMENT + 10, MOMENT + 10))


def test_each_row_is_found_once_and_compaction_finds_none(tmp_path: Path) -> None:
    table, ages = tmp_path / "silver_a", Ages(tmp_path)
    assert ages.look(0.0) == 0
    _append(table, 1, 9)
    assert ages.look(1.0) == 2
    _append(table, 5)
    DeltaTable(str(table)).optimize.compact()
    assert (ages.look(2.0), ages.look(3.0), ages.rows()) == (1, 0, 3)
    assert ages.between(0.0, 2.0).tolist() == pytest.approx([9, 1])
    assert ages.between(2.0, 9.0).tolist() == pytest.approx([5])
