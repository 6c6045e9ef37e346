"""Files as a source, through the app's own pass: each record once, whatever arrives how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_app.driver.file_stream import FileStream, origin_of
from spark_app.driver.ingest import Ingest
from spark_app.process.run_context import RunContext
from tests.spark.parts import Parts, events
from tests.support.file_sources import write_json, write_parquet

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c")]


def files_of(new_parts: NewParts, folder: Path, batch: dict[str, Any] | None = None, **source: Any) -> Parts:
    own = {"kind": "files", "path": str(folder), "settle_s": 0.0, "full_list_s": 0.001} | source
    folder.mkdir(exist_ok=True)
    return new_parts(source=own, batch=batch or {})


def take_all(parts: Parts) -> None:
    """What `run --available-now` does."""
    run = RunContext(parts.status, parts.room, parts.stop, parts.unit_lock)
    stream = FileStream(parts.spark, parts.opened, run, available_now=True)
    stream.ingest = Ingest(parts.opened, parts.units, run, stream.read, replans=True)
    stream.keep(origin_of(parts.settings.source.name, False), lambda: None)


def values_of(parts: Parts) -> list[bytes | None]:
    """The values in bronze in the order of their numbers, which must follow each other."""
    rows = parts.read("bronze_events").sort("offset")
    assert rows["offset"].to_list() == list(range(len(rows)))
    return rows["value"].to_list()


def test_parquet_and_json_become_rows_and_nothing_twice(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder)
    parts.learn(1)
    one, two = events(1, PLAYERS), events(1, [("uno", "d"), ("uno", "e")])
    write_parquet(folder / "day=1/b.parquet", one)
    write_json(folder / "day=2/a.jsonl", two)
    (folder / "_SUCCESS").write_text("")
    (folder / "readme.txt").write_text("no records")
    take_all(parts)
    assert values_of(parts) == one + two
    silver = parts.read("silver_uno_events")
    assert silver.sort("_offset")["gamer_id"].to_list() == ["b", "d", "e"]
    assert set(silver["_topic"]) == {"files"}
    bronze = parts.read("bronze_events").sort("offset")
    assert bronze["key"].to_list() == [b"k0", b"k1", b"k2", None, None]
    assert bronze["timestamp_type"].to_list() == [0, 0, 0, -1, -1]
    again = files_of(new_parts, folder)
    take_all(again)
    assert again.manifests.last == parts.manifests.last
    write_json(folder / "day=0/late.json", one)
    take_all(again)
    assert values_of(again) == one + two + one
    assert again.status.value["source"]["taken"] == 3
