"""Compares what a receiver has got with the tables: is each row of a sink in an accepted call, with the values of the
table, and twice only under equal keys?

The receiver's log has a line of JSON for each call that it has accepted: {"key": ..., "rows": [...]}.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from spark_app.audit.verdict import ALTERED, DOUBLED, LOST, PHANTOM, Verdict
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.model.record_schemas import LINEAGE_COORDINATES
from spark_app.settings.models import Settings
from spark_app.settings.sinks import SinkSettings

Place = tuple[Any, ...]  # the coordinates of a row
WAITING = "rows wait for their call"
REJECTED = "rows were rejected, see sink_rejects"


def audit_sink(settings: Settings, name: str, received: Path) -> Verdict:
    """
    Args:
        received: the receiver's log; a line that is cut is left out.

    Raises:
        ConfigurationError: there is no such sink, or the file is no such log.
    """
    if name not in settings.all_sinks or not settings.all_sinks[name].is_append:
        raise ConfigurationError(f"--sink: the settings have no sink {name} whose rows come from silver")
    began = time.monotonic()
    auditor = _Auditor(settings, name, settings.all_sinks[name])
    verdict = auditor.run(received)
    verdict.seconds = time.monotonic() - began
    return verdict


class _Auditor:
    def __init__(self, settings: Settings, name: str, sink: SinkSettings):
        self._lake = Lake(settings.lake_address)
        self._layout = settings.layout
        self._name = name
        self._sink = sink
        self._folder = self._lake.sink(name)
        self._verdict = Verdict()

    def run(self, received: Path) -> Verdict:
        got, keys = self._read(received)
        verdict, waiting, rejected = self._verdict, self._waiting(), self._rejected()
        began = read_json(self._lake.storage, f"{self._folder}/began.json") or {}
        ends, again = began.get("ends", {}), self._again()
        there = set[Place]()
        for table in self._lake.tables():
            if not self._layout.is_silver(table):
                continue
            if self._sink.tables and self._layout.name_of(table) not in self._sink.tables:
                continue
            lost, altered = [], []
            for place, row in self._rows(table):
                there.add(place)
                verdict.records += 1
                if place in got:
                    altered += [_text(place)] if not _agree(row, got[place]) else []
                elif place in waiting or place in rejected:
                    verdict.note(WAITING if place in waiting else REJECTED)
                elif place[3] >= ends.get(place[0], {}).get(str(place[2]), 0):
                    lost.append(_text(place))
            verdict.add(LOST, table, lost)
            verdict.add(ALTERED, table, altered, "the values differ from those of the table")
        twice = (place for place, own in keys.items() if len(own - again) > 1)
        verdict.add(DOUBLED, self._name, map(_text, twice), "sent under several keys")
        verdict.add(PHANTOM, self._name, map(_text, got.keys() - there), "the tables have no such row")
        return verdict

    def _read(self, received: Path) -> tuple[dict[Place, dict[str, Any]], dict[Place, set[str]]]:
        """(coordinates -> the row, coordinates -> the keys under which it came)"""
        got, keys, calls = dict[Place, dict[str, Any]](), dict[Place, set[str]](), dict[str, list[Place]]()
        for number, line in enumerate(_lines(received), 1):
            try:
                call = json.loads(line)
                rows = {tuple(row[name] for name in LINEAGE_COORDINATES): row for row in call["rows"]}
                key = str(call["key"])
            except (ValueError, LookupError, TypeError) as error:
                raise ConfigurationError(f"--received: line {number} of {received} is no call ({error})") from None
            if calls.setdefault(key, list(rows)) != list(rows):
                self._verdict.add(ALTERED, self._name, [key], "one key had other rows at another time")
            got |= rows
            for place in rows:
                keys.setdefault(place, set()).add(key)
        return got, keys

    def _rows(self, table: str) -> Iterator[tuple[Place, dict[str, Any]]]:
        """(coordinates, row) of the rows of a table that the settings choose."""
        rows = self._table(table).to_pyarrow_table()
        if self._sink.where:
            rows = duckdb.from_arrow(rows).filter(self._sink.where).to_arrow_table()
        for batch in rows.to_batches(10_000):
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                yield tuple(row[name] for name in LINEAGE_COORDINATES), row

    def _waiting(self) -> set[Place]:
        """The rows of plans that are not delivered."""
        found = set[Place]()
        for key in self._lake.storage.list(f"{self._folder}/plans"):
            head, _, data = self._lake.storage.get(key).partition(b"\n")
            at = 0
            for part in json.loads(head)["parts"]:
                rows = pa.ipc.open_stream(io.BytesIO(data[at : at + part["bytes"]])).read_all()
                found |= set(zip(*(rows[name].to_pylist() for name in LINEAGE_COORDINATES), strict=True))
                at += part["bytes"]
        return found

    def _ledger(self) -> Iterator[dict[str, Any]]:
        """The lines that the app has not moved yet, or that are there still."""
        for key in self._lake.storage.list(f"{self._folder}/ledger"):
            for line in self._lake.storage.get(key).splitlines():
                with contextlib.suppress(ValueError):  # a crash has cut it
                    yield json.loads(line)

    def _moved(self, table: str) -> Iterator[dict[str, Any]]:
        if self._lake.has_table(table):
            rows = self._table(table).to_pyarrow_table(filters=[("sink", "=", self._name)])
            yield from rows.to_pylist()

    def _rejected(self) -> set[Place]:
        rows = [row["row"] for row in self._moved(self._layout.sink_rejects)]
        rows += [row for line in self._ledger() for row in line["rejects"]]
        return {tuple(json.loads(row).get(name) for name in LINEAGE_COORDINATES) for row in rows}

    def _again(self) -> set[str]:
        """The keys of calls that people have asked for."""
        lines = [*self._moved(self._layout.sink_calls), *self._ledger()]
        return {line["key"] for line in lines if line["request"]}

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable(self._lake.storage.uri(name), storage_options=self._lake.storage.delta_options)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from (line for line in lines if line.endswith("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--received: cannot read {path} ({error})") from None


def _text(place: Place) -> str:
    return f"{place[0]}/{place[2]}@{place[3]}"


def _agree(row: dict[str, Any], got: dict[str, Any]) -> bool:
    """Whether the values that JSON can hold as they are were received so."""
    return all(_is_same(row.get(name), value) for name, value in got.items())


def _is_same(own: Any, value: Any) -> bool:
    if isinstance(own, float) and not math.isfinite(own):
        return value is None
    if own is None or isinstance(own, bool | int | float | str):
        return bool(own == value)
    return True
