"""The audit finds nothing wrong with what the app makes of any record, and says what it cannot tell."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from spark_app.audit import Verdict, check_gold
from spark_app.audit.frames import KEY_HEADER, VALUE_HEADER
from spark_app.model.catalog import Decodable
from spark_app.model.causes import Cause
from spark_app.protobuf import framing
from spark_app.protobuf.schemas.ledger import find_message
from spark_app.settings.gold import Aggregate
from tests.support.examples import examples
from tests.support.frames import batch_of, frame, headers_of
from tests.support.lakes import SmallLake
from tests.support.messages import decodables, distort, payloads_of, pool_of
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.units import test_task as kinds
from tests.unit.units import test_task_records as carried

COUNTRY = {"routing": "country"}
shop, wrap, inner = carried.shop, carried.wrap, carried.inner
Case = tuple[list[Decodable], dict[str, Any], pa.RecordBatch, int]  # schemas, settings, records, how many in silver


def in_silver(verdict: Verdict) -> int:
    return sum(rows for name, rows in verdict.rows.items() if name.startswith("silver_"))


def check(lake: SmallLake, placed: int, **notes: int) -> Verdict:
    """The lake is clean, so many rows are in silver, and the notes are those whose words begin so."""
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert in_silver(verdict) == placed
    assert {words.split()[0]: count for words, count in verdict.notes.items()} == notes
    return verdict


def kinds_lake(root: Path) -> SmallLake:
    lake = SmallLake(root, kinds.V1, kinds.V2)
    lake.opened.resolver.ledger.add_refused(kinds.REFUSED, Cause.SCHEMA_INVALID, "no", 0.0)
    lake.opened.resolver.ledger.add_waiting(kinds.WAITING, "not now", 0.0)
    lake.opened.resolver.ledger.save()
    return lake


def played(lake: SmallLake, *gamers: str) -> None:
    """A unit of one event of each gamer."""
    version = message_class(kinds.V1, "Event")
    values = [
        frame(kinds.OLD, version(game_name="rummy", gamer_id=g, at={"seconds": 5}).SerializeToString()) for g in gamers
    ]
    lake.take(batch_of(values, first=lake.ends.get(0, 0), topic=lake.topic))


KINDS = [value for value, _ in kinds.KINDS.values()]
SILVER = sum(place.startswith("silver") for _, place in kinds.KINDS.values())


def test_every_kind_of_record(tmp_path: Path) -> None:
    lake = kinds_lake(tmp_path)
    lake.take(batch_of(KINDS), batch_of(KINDS, first=5, partition=1))
    lake.take(batch_of(KINDS * 3, first=len(KINDS)))
    assert check(lake, 5 * SILVER, gold=2).records == 5 * len(KINDS)


def test_frames_whose_index_cannot_be_read_as_earlier_releases_kept_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without their schema, whatever that is, and as bad frames."""
    split = framing.split

    def forget(*given: Any, **more: Any) -> framing.Frames:
        frames = split(*given, **more)
        for status in (framing.WRONG_INDEX, framing.WRONG_HEADER):
            frames.refuse(np.flatnonzero(frames.status == status), status)
        return frames

    lake = kinds_lake(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(framing, "split", forget)
        lake.take(batch_of(KINDS))
    kept = pl.read_delta(str(tmp_path / "quarantine_events")).filter(pl.col("cause") == "frame_index")
    assert (len(kept), kept["schema_id"].null_count()) == (3, 3)
    check(lake, SILVER, gold=2)


def test_chunks_of_any_size_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = kinds_lake(tmp_path)
    for first in range(3):
        lake.take(*(batch_of(KINDS, first=first * len(KINDS), partition=partition) for partition in range(5)))
    whole = lake.audit()
    for name, value in (("RECORDS", 7), ("PARTITIONS", 2)):
        monkeypatch.setattr(f"spark_app.audit.auditor.{name}", value)
    parts = lake.audit()
    assert (parts.faults(), parts.rows, parts.records) == ({}, whole.rows, whole.records)


def by_guid() -> Case:
    values = [frame(carried.GUID, shop("Placed", country="de", total=1)), shop("Placed", country="de"), b"", None, b"{"]
    named = [("trace", b"x"), (VALUE_HEADER, frame(carried.GUID, b""))]
    headers = [None, named, named, named, [(VALUE_HEADER, b"")]]
    return [carried.BY_GUID], {"event": COUNTRY}, batch_of(values, headers=headers_of(headers)), 2


def bare() -> Case:
    values = [shop("Placed", country="de"), frame(1, shop("Placed", country="de")), b"", b"\0\0", b"{", b"\1"]
    return [carried.ONE], {"event": COUNTRY, "decode": {"unframed_schema_id": 1}}, batch_of(values), 2


def keys() -> Case:
    schema = compile_text(PROTO3 + "message Key { int64 id = 1; message Part { bool b = 1; } }", schema_id=2)
    whole, part = message_class(schema, "Key"), message_class(schema, "Key.Part")
    given = [frame(2, whole(id=5).SerializeToString()), frame(2, part(b=True).SerializeToString(), (0, 0))]
    given += [frame(2, b"\xff"), b"plain", frame(7, b""), whole(id=6).SerializeToString()]
    headers = [None] * 5 + [[(KEY_HEADER, frame(2, b""))]]
    value = [frame(1, shop("Placed", country="de"))] * 6
    batch = batch_of(value, key=pa.array(given, pa.binary()), headers=headers_of(headers))
    return [carried.ONE, schema], {"event": COUNTRY, "decode": {"framed_keys": True}}, batch, 5


def by_message() -> Case:
    values = [
        frame(1, shop("Placed", country="de", total=5), carried.PLACED),
        frame(1, shop("Shipped", country="de", total="five"), carried.SHIPPED),
        frame(1, message_class(carried.ONE, "shop.Shipped.Parcel")(id=b"\1").SerializeToString(), carried.PARCEL),
        frame(1, b"", carried.BEAT),
        frame(1, b"\xff", carried.BEAT),
        frame(1, b"", (1, 1)),
    ]
    return [carried.ONE], {"event": {"route_by": "message"}}, batch_of(values), 4


def by_both() -> Case:
    schemas, _, batch, _ = by_message()
    return schemas, {"event": COUNTRY | {"route_by": "both"}}, batch, 2


def one_table() -> Case:
    totals = [("Placed", 5), ("Shipped", "7"), ("Shipped", "five")]
    index = {"Placed": carried.PLACED, "Shipped": carried.SHIPPED}
    values = [frame(1, shop(name, country="de", total=total), index[name]) for name, total in totals]
    return [carried.ONE], {"event": COUNTRY}, batch_of(values), 1


def wrapped() -> Case:
    values = [
        wrap("uno", 11, inner(carried.UNO, "Uno", score=5)),
        wrap("poker", 12, inner(carried.POKER, "Poker", score="full house")),
        wrap("uno", 0, frame(11, inner(carried.UNO, "Uno", score=6))),
        wrap("uno", 11, b""),
        wrap("uno", 0, inner(carried.UNO, "Uno", score=7)),
        wrap("uno", 11, b"\xff\xff"),
        wrap("uno", 0, b"\0\0"),
        wrap("uno", 11, b"\0\0\0\0\x0b\x04\x08"),
        wrap("../x", 11, inner(carried.UNO, "Uno", score=9)),
        frame(10, b"\xff"),
        frame(11, inner(carried.UNO, "Uno", score=5)),
        frame(1, b"", carried.BEAT),
    ]
    schemas = [carried.OUTER, carried.UNO, carried.POKER, carried.ONE]
    settings = {"event": {"routing": "game"}, "wrapper": {"payload": "payload", "schema_id": "schema_id"}}
    return schemas, settings, batch_of(values), 4


def wrappers_that_differ() -> Case:
    old = compile_text(PROTO3 + "message Outer { int32 schema_id = 2; bytes payload = 3; }", schema_id=9)
    event = compile_text(PROTO3 + "message Event { string game = 1; } message Beat {}", schema_id=13)
    payload = inner(event, "Event", game="uno")
    first = frame(9, message_class(old, "Outer")(schema_id=13, payload=payload).SerializeToString())
    values = [first, wrap("uno", 13, payload), wrap("uno", 0, frame(13, b"", (1,)))]
    settings = {"event": {"routing": "game"}, "wrapper": {"payload": "payload", "schema_id": "schema_id"}}
    return [old, carried.OUTER, event], settings, batch_of(values), 3


TYPES: list[tuple[str, Any, str, Sequence[Any], int]] = [  # first type and value, the next one's, how many fit
    ("string", "x", "int64", [5, -(2**63)], 2),
    ("double", 0.5, "int64", [2**53, 2**53 + 1], 1),
    ("int64", 1, "double", [2.0, 0.5, float("nan"), 1e300, -0.0], 2),
    ("bytes", b"\xff", "string", ["é"], 1),
    ("string", "x", "bytes", [b"x", b"\xff"], 1),
    ("int64", 1, "bool", [True, False], 2),
    ("bool", True, "int64", [1, 2], 1),
    ("uint64", 2**64 - 1, "int64", [5, -5], 2),
    ("int64", 1, "uint64", [5, 2**64 - 1], 1),
    ("int64", 1, "string", ["1"], 0),
    ("float", 0.1, "double", [0.1, float("inf")], 2),
]


def changed(first: str, value: Any, then: str, values: Sequence[Any], fit: int) -> Case:
    texts = (f"{PROTO3} message Event {{ string country = 1; optional {kind} x = 2; }}" for kind in (first, then))
    old, new = (compile_text(text, schema_id=number) for number, text in enumerate(texts, 1))
    frames = [frame(1, message_class(old, "Event")(country="de", x=value).SerializeToString())]
    frames += [frame(2, message_class(new, "Event")(country="de", x=v).SerializeToString()) for v in values]
    frames.append(frame(2, message_class(new, "Event")(country="de").SerializeToString()))
    return [old, new], {"event": COUNTRY}, batch_of(frames), fit + 2


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case for case in (by_guid, bare, keys, by_message, by_both, one_table, wrapped, wrappers_that_differ)
}
CASES |= {f"{first} then {then}": lambda a=a: changed(*a) for a in TYPES for first, _, then, *_ in [a]}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_topic_may_carry(tmp_path: Path, case: Callable[[], Case]) -> None:
    schemas, settings, batch, placed = case()
    lake = SmallLake(tmp_path, *schemas, **settings)
    lake.take(batch)
    check(lake, placed)


def test_a_topic_with_a_long_name(tmp_path: Path) -> None:
    """It has no bounds in Delta's statistics."""
    lake = SmallLake(tmp_path, kinds.V1, topic="t" * 200)
    played(lake, "a", "b")
    check(lake, 2, gold=1)


@given(st.lists(decodables(), min_size=1, max_size=2), st.integers(0, 2**32), st.booleans())
@examples(0.1)
def test_rows_of_random_messages(
    tmp_path_factory: pytest.TempPathFactory, made: list[Decodable], seed: int, defaults: bool
) -> None:
    dice, values = random.Random(seed), []
    schemas = [Decodable(key, one.descriptor_set, one.digest) for key, one in enumerate(made, 1)]
    for schema in schemas:
        kind = message_factory.GetMessageClass(pool_of(schema).FindMessageTypeByName("r.M"))
        whole = payloads_of(kind, dice, 30)
        index = find_message(schema.descriptor_set, "r.M")
        values += [frame(schema.key, distort(p, dice.choice(whole), dice), index) for p in whole]
    settings: dict[str, Any] = {"event": {"route_by": "message"}, "decode": {"defaults": defaults}}
    lake = SmallLake(tmp_path_factory.mktemp("lake"), *schemas, **settings)
    report = lake.take(batch_of(values))
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert in_silver(verdict) == sum(report.silver.values())
    assert set(verdict.notes) <= {"quarantined as decode_type, which the columns of today do not show: cause"}


def test_another_setting_of_defaults_is_reported(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, carried.ONE, event=COUNTRY)
    lake.take(batch_of([frame(1, shop("Placed", country="de")), frame(1, shop("Placed", country="de", total=1))]))
    lake.settings = lake.settings.model_copy(
        update={"decode": lake.settings.decode.model_copy(update={"defaults": False})}
    )
    check(lake, 2, rows=1)


@pytest.mark.parametrize(
    ("numbers", "function", "due"),
    [
        ([1e308, 1e308, -math.inf], "sum", check_gold.DEPENDS),
        ([1e308, 1e308], "mean", check_gold.DEPENDS),
        ([1e308, -1.0], "sum", 1e308),
        ([1.0, -math.inf], "mean", -math.inf),
    ],
)
def test_a_sum_that_depends_on_the_order_of_the_rows_proves_nothing(
    numbers: list[float], function: str, due: object
) -> None:
    aggregate = Aggregate.model_validate({"function": function, "field": "x"})
    assert check_gold._aggregate(pa.array(numbers), aggregate) == due
