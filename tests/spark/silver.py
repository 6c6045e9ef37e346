"""Silver for tests of gold: real files in a real lake, committed, and what gold must be by Polars."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from polars.testing import assert_frame_equal

from spark_app.audit.check_gold import check_gold
from spark_app.audit.snapshot import Snapshot
from spark_app.audit.verdict import Verdict
from spark_app.settings.gold import Aggregate
from tests.chaos.units import ingest_unit
from tests.spark.parts import Parts
from tests.support.protos import PROTO3, compile_text

SCHEMA = f"""{PROTO3} import "google/protobuf/timestamp.proto";
message Event {{
  string game_name = 1; string gamer_id = 2; google.protobuf.Timestamp event_timestamp = 3; int64 score = 4;
}}"""
TIME = pa.timestamp("us", "UTC")
Row = tuple[str | None, int | None, int | None]  # gamer, second, score


def learn(parts: Parts) -> Parts:
    """Enter the schema and the tables of the tests, as passes would have."""
    parts.ledger.add_decodable(1, compile_text(SCHEMA).descriptor_set, 0.0)
    parts.tables.admit({key: ["Event"] for key in "abc"})
    return parts


def rows_of(rows: Sequence[Row], with_score: bool = True) -> pa.Table:
    """Rows as a silver file has them; without the score they are of a version that did not know it."""
    epoch = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = [None if s is None else epoch + datetime.timedelta(seconds=s) for _, s, _ in rows]
    columns = {
        "gamer_id": pa.array([gamer for gamer, _, _ in rows], pa.string()),
        "event_timestamp": pa.array(times, TIME),
        "score": pa.array([score for _, _, score in rows], pa.int64()),
    }
    return pa.table(columns if with_score else {name: columns[name] for name in ("gamer_id", "event_timestamp")})


def decide(parts: Parts, **tables: pa.Table) -> None:
    """Decide a unit that adds one file to the silver table of each name; its commits are not made."""
    changes = {f"silver_{name}_events": rows for name, rows in tables.items()}
    parts.manifests.commit(ingest_unit(parts.lake, parts.manifests.last + 1, changes))


def add(parts: Parts, **tables: pa.Table) -> None:
    decide(parts, **tables)
    parts.committer.apply(parts.manifests.read(parts.manifests.last))


def check(parts: Parts, *names: str) -> None:
    """The gold tables are those of `names`, and each is what Polars makes of its silver table."""
    gold = [name for name in parts.lake.tables() if name.startswith("gold_")]
    assert gold == [f"gold_{name}_player_agg" for name in names]
    check_audited(parts)
    for name in names:
        rows = parts.read(f"silver_{name}_events")
        if "score" not in rows.columns:
            rows = rows.with_columns(score=pl.lit(None, pl.Int64))
        columns = [_column(a).alias(column) for column, a in parts.settings.gold.columns.items()]
        expected = rows.group_by("gamer_id").agg(columns)
        actual = parts.read(f"gold_{name}_player_agg")
        assert_frame_equal(actual, expected, check_row_order=False, check_column_order=False, check_dtypes=False)


def check_audited(parts: Parts) -> None:
    """The audit's own computing of gold agrees, and leaves nothing out."""
    verdict = Verdict()
    if parts.manifests.last:
        check_gold(Snapshot.read(parts.settings, 10), verdict)
    assert (verdict.faults(), dict(verdict.notes)) == ({}, {})


def _column(aggregate: Aggregate) -> pl.Expr:
    if aggregate.function == "count" and not aggregate.field:
        return pl.len()
    values = pl.col(aggregate.field or "event_timestamp")
    made: dict[str, Any] = {
        "count": values.count(),
        "sum": pl.when(values.count() > 0).then(values.sum()),
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "median": values.median(),
        "distinct": values.drop_nulls().n_unique(),
    }
    return made[aggregate.function]
