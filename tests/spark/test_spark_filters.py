"""Spark, with what it pushes down and skips, finds in files of the app what its own comparison finds in all rows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

from spark_app.lake.lake import Lake
from tests.support import filters
from tests.support.examples import examples
from tests.unit.lake.test_filters import TABLE, write
from tests.unit.lake.test_statistics import UNITS, wide

pytestmark = pytest.mark.spark
BY_ID = "spark.sql.parquet.fieldId.read.enabled"
MOST_ASKED = 40  # filters of a table: all of them are one query


@pytest.fixture(autouse=True)
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Nothing is compiled for the few rows of a query."""
    options = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in options.items():
        spark.conf.set(name, value)
    yield
    for name in (*options, BY_ID):
        spark.conf.unset(name)


def ask(spark: SparkSession, lake: Lake, asked: list[filters.Filter]) -> filters.Answer:
    spark.read.format("delta").load(str(lake.path(TABLE))).createOrReplaceTempView("t")
    return filters.by_sql(lambda query: spark.sql(query).toArrow(), filters.Spark, "t", asked)


def files_read(frame: DataFrame) -> int:
    """Of the files that the table's log names, as the scan counts them."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.collect()
    scans = plan.collectLeaves()
    metrics = [scans.apply(number).metrics() for number in range(scans.size())]
    return sum(int(found.apply("numFiles").value()) for found in metrics if found.contains("numFiles"))


@pytest.mark.parametrize("by_id", ["false", pytest.param("true", marks=pytest.mark.nightly)])
@given(filters.units())
@examples(0.01, least=1)
def test_filters_find_every_row(spark: SparkSession, by_id: str, units: list[pa.Table]) -> None:
    """The merged file has field ids, the other has none."""
    spark.conf.set(BY_ID, by_id)
    with tempfile.TemporaryDirectory() as folder:
        lake = write(Path(folder) / "lake", units)
        rows = pa.concat_tables(units, promote_options="default")
        answer = ask(spark, lake, list(itertools.islice(filters.filters_of(rows), MOST_ASKED)))
    wrong = {wanted.sql(filters.Spark): both for wanted, both in answer.items() if both[0] != both[1]}
    assert wrong == {}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("u = 18446744073709551615", [1]),
        ("u = 9007199254740993", [2]),
        ("d > 100", [1]),
        ("d = double('NaN')", [1]),
        ("d = 0", [2, 4]),
    ],
)
def test_large_numbers_and_nan_are_found_after_compaction(
    spark: SparkSession, tmp_path: Path, where: str, found: list[int]
) -> None:
    folder = write(tmp_path / "lake", UNITS, last_apart=False).path(TABLE)
    rows = spark.read.format("delta").load(str(folder)).where(where).select("row").toArrow()
    assert sorted(rows["row"].to_pylist()) == found


def test_one_file_of_a_wide_event_is_opened_for_a_range_of_offsets(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path / "lake", [wide(10 * number) for number in range(6)]).path(TABLE)
    frame = spark.read.format("delta").load(str(folder)).where("_offset between 52 and 53")
    rows = frame.select("row", "_metadata.file_path").toArrow()
    assert sorted(rows["row"].to_pylist()) == [52, 53]
    assert files_read(frame) == 1
