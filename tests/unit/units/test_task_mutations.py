"""Mutated frames through the whole pass: each ends once, as the row that Google's parser reads or with its cause.

What a frame is, is told by Confluent's own code. PROTOLAKE_TEST_FRAMES says how many; a million at most are judged one
by one, of more an even share. That each is in bronze and in one other table is checked for all of them.
"""

import functools
import io
import os
import random
import re
import shutil
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from spark_app.audit.expected import rows_of
from spark_app.lake.files.local import LocalStorage
from spark_app.model.catalog import SchemaKey
from spark_app.model.table_names import TableNames
from spark_app.tables.route import Routing
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan
from tests.support.frames import batch_of
from tests.support.messages import row_or_cause
from tests.support.mutations import GAMES, frames, mutate, schemas
from tests.support.protos import catalog_of, message_class
from tests.unit.units.test_task import read_back

FRAMES = int(os.environ.get("PROTOLAKE_TEST_FRAMES", "50_000"))
JUDGED = min(1.0, 1_000_000 / FRAMES)
CHUNK, BATCH = 20_000, 5_000
SCHEMAS = {decodable.key: decodable for decodable in schemas()}
CATALOG = catalog_of(*SCHEMAS.values())
LAYOUT = TableNames()
TABLES = {game: game.lower() for game in GAMES}
MESSAGES = {name: tuple(CATALOG.columns) for name in TABLES.values()}
ROUTING = Routing("game_name", TABLES, frozenset(), room=False, messages=MESSAGES)
ENDS = [(LAYOUT.quarantine, "offset"), (LAYOUT.deferred, "offset")]
ENDS += [(LAYOUT.silver_of(game.lower()), "_offset") for game in GAMES]


@functools.cache
def class_at(key: SchemaKey, index: tuple[int, ...]) -> type[Message] | None:
    """The message that an index names in the schema's own file; None if there is none."""
    files = FileDescriptorSet.FromString(SCHEMAS[key].descriptor_set).file
    level: Sequence[DescriptorProto] = files[-1].message_type
    names = [files[-1].package] if files[-1].package else []
    for position in index:
        if not 0 <= position < len(level):
            return None
        names.append(level[position].name)
        level = level[position].nested_type
    kind: type[Message] = message_class(SCHEMAS[key], ".".join(names))
    return None if kind.DESCRIPTOR.GetOptions().map_entry else kind  # nobody sends the entry of a map


def due_for(value: bytes) -> tuple[str, dict[str, Any] | None]:
    """(where the frame must end, its row): a table, a cause, or several of them as a pattern."""
    header, stream = SchemaId("PROTOBUF"), io.BytesIO(value)
    try:
        header.from_bytes(stream)
    except (SerializationError, EOFError, ValueError, struct.error):
        named = _key_of(value)
        return "frame_.*" if named is None or named in SCHEMAS else f"frame_.*|{_unsettled(named)}", None
    key: SchemaKey = header.id if header.guid is None else str(header.guid)
    index = tuple(header.message_indexes)
    shortest = header.id_to_bytes() if header.guid is None else header.guid_to_bytes()
    longer = stream.tell() != len(shortest)
    odd = "frame_index|" if longer or len(index) > 32 or not 0 <= min(index) <= max(index) < 2**31 else ""
    if key not in SCHEMAS:
        return odd + _unsettled(key), None
    kind = class_at(key, index)
    if kind is None:
        return odd + "schema_index", None
    row = row_or_cause(kind, stream.read())
    if not isinstance(row, dict):
        return f"{odd}{row}", None
    game = row.get("game_name")
    return odd + (LAYOUT.silver_of(game.lower()) if game in GAMES else "route_.*"), row


def _key_of(value: bytes) -> SchemaKey | None:
    """What names the schema where the frame is cut off, or wrong, behind it."""
    size = {0: 5, 1: 17}.get(value[0], 99) if value else 99
    if len(value) <= size:
        return None
    return int.from_bytes(value[1:5], "big") if size == 5 else str(uuid.UUID(bytes=value[1:17]))


def _unsettled(key: SchemaKey) -> str:
    return "schema_unknown" if isinstance(key, int) and key > 2**31 - 1 else LAYOUT.deferred


def mutated(dice: random.Random, count: int) -> list[bytes]:
    whole = frames(list(SCHEMAS.values()), dice, 1000)
    return [mutate(dice.choice(whole), dice.choice(whole), dice) for _ in range(count)]


def land(folder: Path, values: list[bytes]) -> dict[str, pa.Table]:
    """The tables after a task with the values, at offsets from 0 on; each is in bronze, and in one other table."""
    plan = TaskPlan(LocalStorage(folder), "part-0-a", LAYOUT, ROUTING, {"t": "i"}, 1, defer_new=True)
    batches = [batch_of(values[first : first + BATCH], first) for first in range(0, len(values), BATCH)]
    report = task.run(iter(batches), plan, CATALOG, "0")
    tables = read_back(folder, report)
    assert report.balance() == (len(values), len(values))
    bronze = tables[LAYOUT.bronze].sort_by("offset")
    assert bronze["value"].to_pylist() == values
    ends = [tables[name][column].to_numpy() for name, column in ENDS if name in tables]
    assert np.array_equal(np.sort(np.concatenate(ends)), np.arange(len(values)))
    assert set(tables) <= {LAYOUT.bronze, *dict(ENDS)}
    return tables


def found_in(tables: dict[str, pa.Table], offsets: np.ndarray) -> dict[int, tuple[str, dict[str, Any] | None]]:
    """Where records ended: the cause or the table, and the row."""
    found: dict[int, tuple[str, dict[str, Any] | None]] = {}
    for name, column in ENDS:
        if name not in tables:
            continue
        table = tables[name].filter(np.isin(tables[name][column].to_numpy(), offsets))
        places = table[column].to_pylist()
        if name == LAYOUT.quarantine:
            found |= {place: (cause, None) for place, cause in zip(places, table["cause"].to_pylist(), strict=True)}
        elif name == LAYOUT.deferred:
            found |= dict.fromkeys(places, (name, None))
        else:
            found |= {place: (name, row) for place, row in zip(places, rows_of(table), strict=True)}
    return found


def check(values: list[bytes], tables: dict[str, pa.Table], offsets: np.ndarray) -> None:
    found = found_in(tables, offsets)
    for offset in offsets.tolist():
        value, (place, row) = values[offset], found[offset]
        due, fields = due_for(value)
        assert re.fullmatch(due, place), f"{value.hex()}: {place}, not {due}"
        if row is not None:
            assert fields is not None
            landed = {name: column for name, column in row.items() if name in fields or column is not None}
            assert {n: c for n, c in landed.items() if not n.startswith("_")} == fields, value.hex()


@pytest.mark.parametrize("frames", [10_000, pytest.param(FRAMES, marks=pytest.mark.nightly)])
def test_each_mutated_frame_ends_once_as_a_row_or_with_a_cause(tmp_path: Path, frames: int) -> None:
    for chunk in range(-(-frames // CHUNK)):
        dice = random.Random(chunk)
        values = mutated(dice, min(CHUNK, frames - chunk * CHUNK))
        tables = land(tmp_path / "lake", values)
        check(values, tables, np.flatnonzero(np.random.default_rng(chunk).random(len(values)) < JUDGED))
        shutil.rmtree(tmp_path / "lake")


def test_the_mutations_leave_rows_and_meet_every_kind_of_cause(tmp_path: Path) -> None:
    """Otherwise the test above would say little."""
    values = mutated(random.Random(5), CHUNK)
    tables = land(tmp_path, values)
    rows = sum(len(tables[LAYOUT.silver_of(game.lower())]) for game in GAMES)
    assert rows > CHUNK / 10
    causes = set(tables[LAYOUT.quarantine]["cause"].to_pylist())
    assert causes >= {"frame_short", "frame_magic", "frame_index", "schema_index", "decode_payload", "decode_range"}
    assert len(tables[LAYOUT.deferred]) > CHUNK / 1000
