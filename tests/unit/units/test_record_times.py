"""Record times outside the years 1 to 9999: all readers read the tables, bronze has the number that was sent."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.model.record_schemas import FIRST_MICROSECOND, LAST_MICROSECOND, NUMBER, bounded_times
from spark_app.units.driver.status import Status
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text

EVENT = compile_text(PROTO3 + "message Event { string game_name = 1; }")
UNO = frame(1, b"\x0a\x03uno")
NANOSECONDS = 1_700_000_000_000_000_000  # as a producer sends them by mistake
MILLIS = [1_700_000_000_000, NANOSECONDS, -1, -(2**63), 2**63 - 1, 253_402_300_800_000, 253_402_300_799_999]
YEARS = [2023, 9999, 1969, 1, 9999, 9999, 9999]
NUMBERS = [None, NANOSECONDS, None, -(2**63), 2**63 - 1, 253_402_300_800_000, None]


def sent(lake: SmallLake, millis: list[int]) -> pa.RecordBatch:
    moments, numbers = bounded_times(pa.array(millis), 1000)
    batch = batch_of([UNO] * len(millis), first=lake.ends.get(0, 0), timestamp=moments)
    return batch if numbers.null_count == len(numbers) else batch.append_column(NUMBER, numbers)


def test_every_reader_can_read_the_tables_and_bronze_has_the_numbers(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENT)
    lake.take(sent(lake, MILLIS[:1]))
    bronze = DeltaTable(str(lake.lake.path("bronze_events")))
    assert NUMBER not in [field.name for field in bronze.schema().fields]
    lake.take(sent(lake, MILLIS[1:]))
    lake.take(sent(lake, MILLIS[:1]))
    bronze.update_incremental()
    rows = sorted(bronze.to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])
    assert [row["timestamp"].year for row in rows] == [*YEARS, 2023]
    assert [row[NUMBER] for row in rows] == [*NUMBERS, None]
    silver = pl.read_delta(str(lake.lake.path("silver_uno_events"))).sort("_offset")
    assert [moment.year for moment in silver["_kafka_timestamp"].to_list()] == [*YEARS, 2023]
    assert lake.audit().faults() == {}


def test_the_audit_compares_the_numbers(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENT)
    lake.take(sent(lake, MILLIS))
    lake.kafka.batches = [
        sent(SmallLake(tmp_path / "other", EVENT), [NANOSECONDS + 1 if n == NANOSECONDS else n for n in MILLIS])
    ]
    assert NUMBER in str(lake.audit().faults())


@pytest.mark.parametrize("factor", [1, 1000, 1_000_000])
def test_the_bounds_are_those_of_the_years(factor: int) -> None:
    counts = [FIRST_MICROSECOND // factor, LAST_MICROSECOND // factor, None]
    moments, numbers = bounded_times(pa.array(counts, pa.int64()), factor)
    assert (numbers.null_count, moments[2].as_py()) == (3, None)
    beyond = [counts[0] - 1, counts[1] + 1]
    again, numbers = bounded_times(pa.array(beyond, pa.int64()), factor)
    assert (again.to_pylist(), numbers.to_pylist()) == (moments.to_pylist()[:2], beyond)


def test_an_age_is_never_that_of_the_future_and_never_that_of_no_time(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENT)
    status = Status(lake.lake, lake.settings.layout)
    status.batch_done(1, lake.take(sent(lake, [-1])), 0.1)
    assert status.value["age_s"] is None
    status.batch_done(2, lake.take(sent(lake, [NANOSECONDS])), 0.1)
    assert status.value["age_s"] == 0
    status.batch_done(3, lake.take(sent(lake, [int(time.time() * 1000) - 60_000, -1])), 0.1)
    assert 60 <= status.value["age_s"] < 90
