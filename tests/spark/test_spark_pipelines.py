"""The demo's tables by SQL under `spark-pipelines run`, by the recipe of docs/examples/spark-pipelines."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from scripts.local.artifacts import ROOT
from scripts.local.downloads import CACHE
from tests.spark.test_spark_gold_tables import events
from tests.spark.test_spark_sql_tables import Stand
from tests.support.answers import Answers

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EXAMPLE = "docs/examples/spark-pipelines"
ONCE, EACH_RUN = re.findall(r"```bash\n(.*?)```", (ROOT / EXAMPLE / "README.md").read_text(), re.DOTALL)
DEMO = {path.name: path.read_text() for path in (ROOT / "docs/examples/sql").glob("*.sql")}
RUSH = [{"game_name": "uno", "gamer_id": "bot", "event_timestamp": f"2023-11-14T21:30:00.{n:06}Z"} for n in range(3601)]


def test_the_tables_are_those_of_the_app_also_after_the_lake_has_grown(
    spark: SparkSession, answers: Answers, tmp_path: Path
) -> None:
    """In columns, types and rows. The package that the recipe installs is in the lock."""
    install, _, prepare = ONCE.partition("\n")
    assert install.removeprefix("pip install ") in (ROOT / "pyproject.toml").read_text()
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    (tmp_path / ".cache").symlink_to(CACHE)
    stand, draw = Stand(spark, answers, tmp_path, DEMO), random.Random(5)
    pipelines = tmp_path / "pipelines"

    stand.game.send(1, *events(draw, 40), *events(draw, 40, "chess"), *RUSH)
    stand.run()
    bash(prepare, tmp_path)
    bash(EACH_RUN, pipelines)
    check(stand, pipelines / "spark-warehouse")

    stand.game.send(1, *events(draw, 40), *events(draw, 40, "go"))
    stand.run()
    bash(EACH_RUN, pipelines)
    check(stand, pipelines / "spark-warehouse")


def bash(lines: str, folder: Path) -> None:
    """Run lines of the recipe, where `protolake` is that of this clone."""
    lines = f'protolake() {{ python -m spark_app "$@"; }}\n{lines}'
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", lines], cwd=folder, env=os.environ | {"PATH": path}, check=True)


def check(stand: Stand, warehouse: Path) -> None:
    """Whole, and by the greatest value of each column, which a reader misses if it trusts a bound that was cut."""
    tables = {Path(name).stem for name in DEMO}
    assert {path.name for path in warehouse.iterdir()} == tables
    for table in tables:
        expected = rows(stand.lake.path(table))
        assert expected.num_rows, table
        assert rows(warehouse / table) == expected, table
        for column in expected.column_names:
            most = pc.max(expected[column])
            found = rows(warehouse / table, f"WHERE {column} = $most", most=most.as_py())
            assert found == expected.filter(pc.field(column) == most), (table, column)


def rows(path: Any, where: str = "", **values: Any) -> pa.Table:
    """By DuckDB, from the files that delta-rs names; those whose statistics contradict a condition are not read."""
    found = DeltaTable(str(path)).to_pyarrow_dataset()
    with duckdb.connect() as con:
        con.sql("SET TimeZone = 'UTC'")
        con.register("found", found)
        return con.sql(f"SELECT * FROM found {where} ORDER BY ALL", params=values or None).to_arrow_table()
