"""No statistic of a file excludes a row that is there, whoever wrote the file: filters find in each engine what the
engine's own comparison finds in all rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given

from spark_app.lake.delta.maintenance import Maintainer
from spark_app.lake.lake import Lake
from spark_app.settings.storing import LakeSettings
from tests.chaos.units import ingest_unit, open_lake
from tests.support import filters
from tests.support.examples import examples
from tests.support.units import open_committer

TABLE = "silver_a_events"
SETTINGS = LakeSettings(compact_files=2)


def write(root: Path, units: list[pa.Table], last_apart: bool = True) -> Lake:
    """The units as the app writes them, compacted before the last."""
    lake = open_lake(root)
    manifests, committer = open_committer(lake, SETTINGS)
    maintainer = Maintainer(committer.tables, SETTINGS, committer.synced)
    for number, rows in enumerate(units, 1):
        if number == len(units) and last_apart:
            maintainer.step()
        manifest = ingest_unit(lake, number, {TABLE: rows})
        manifests.commit(manifest)
        committer.apply(manifest)
        maintainer.added(TABLE, 1)
    if not last_apart:
        maintainer.step()
    committer.close()
    return lake


def lost(folder: Path) -> list[str]:
    """Rows that a filter does not find, or should not have found, in the engines without a JVM."""
    table = DeltaTable(str(folder))
    rows = table.to_pyarrow_table()
    asked = list(filters.filters_of(rows))
    files = [str(folder / path) for path in table.get_add_actions()["path"].to_pylist()]
    answers = {
        "polars": filters.ask_polars(folder, asked),
        "duckdb": filters.ask_duckdb(files, asked),
        "arrow": filters.ask_arrow(files, rows.schema, asked),
        "delta-rs": filters.ask_delta_rs(table, asked),
    }
    return [
        f"{engine}: {wanted.sql(filters.Dialect)}: {sorted(right)} became {sorted(found)}"
        for engine, answer in answers.items()
        for wanted, (right, found) in answer.items()
        if right != found
    ]


@given(filters.units())
@examples(0.05, least=3)
def test_filters_find_every_row(units: list[pa.Table]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert lost(write(Path(folder) / "lake", units).path(TABLE)) == []
