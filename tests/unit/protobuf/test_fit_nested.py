"""Values inside structs, lists and maps fit their column by the same rules as others, for the app and for the audit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_app.audit.expected import plain
from spark_app.audit.values import carried, fits
from spark_app.protobuf.columns.fit import fit
from tests.support.examples import examples
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import faults, quarantined, rows
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.protobuf.test_fit import ODD


@dataclass
class Pair:
    """A type, values of it, and the type of the column that they come into."""

    kind: pa.DataType
    values: st.SearchStrategy[Any]
    column: pa.DataType


KEYS = [pa.int64(), pa.bool_(), pa.string()]


@st.composite
def pairs(draw: st.DrawFn, depth: int = 3) -> Pair:
    shape = draw(st.sampled_from(["flat", "flat", "struct", "list", "map"])) if depth else "flat"
    if shape == "flat":
        kind = draw(st.sampled_from(list(ODD)))
        return Pair(kind, ODD[kind], draw(st.just(kind) | st.sampled_from(list(ODD))))
    inner = draw(pairs(depth - 1))
    if shape == "list":
        pair = Pair(pa.list_(inner.kind), st.lists(st.none() | inner.values, max_size=3), pa.list_(inner.column))
    elif shape == "map":
        key = draw(st.sampled_from(KEYS))
        entries = st.dictionaries(ODD[key], st.none() | inner.values, max_size=3).map(lambda one: list(one.items()))
        pair = Pair(pa.map_(key, inner.kind), entries, pa.map_(draw(st.sampled_from(KEYS)), inner.column))
    else:
        other = draw(pairs(depth - 1))
        values = st.fixed_dictionaries({"a": st.none() | inner.values, "b": st.none() | other.values})
        column = draw(st.permutations([("a", inner.column), ("b", other.column), ("c", pa.string())]))
        pair = Pair(
            pa.struct([("a", inner.kind), ("b", other.kind)]),
            values,
            pa.struct(column[: draw(st.just(3) | st.just(2))]),
        )
    if not draw(st.integers(0, 9)):
        pair.column = draw(pairs(1)).column
    return pair


@given(data=st.data())
@examples()
def test_app_and_audit_agree_about_every_value(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    given_ = data.draw(st.lists(st.none() | pair.values, min_size=1, max_size=6))
    values = pa.array([None, *given_], pair.kind).slice(1)
    table, good, rejects = fit(pa.table({"f": values}), pa.schema([("f", pair.column)]))
    table.validate(full=True)
    assert good.tolist() == [row for row, value in enumerate(given_) if fits(value, pair.column)]
    assert sorted([*good, *(row for row, *_ in rejects)]) == list(range(len(given_)))
    landed = [plain(value, pair.column) for value in table["f"].to_pylist()]
    assert landed == [carried(given_[row], pair.column) for row in good]


BEFORE = """
message Event { string game_name = 1; Hand hand = 2; repeated Hand hands = 3; map<string, int64> scores = 4; }
message Hand { int64 chips = 1; Card card = 2; } message Card { bool wild = 1; }"""
AFTER = """
message Event { string game_name = 1; Hand hand = 2; repeated Hand hands = 3; map<string, uint64> scores = 4; }
message Hand { uint64 chips = 1; Card card = 2; string note = 3; } message Card { int64 wild = 1; }"""


def test_a_version_with_other_types_inside_lands_in_the_columns_that_are_there(tmp_path: Path) -> None:
    one, other = (compile_text(PROTO3 + text, schema_id=number) for number, text in enumerate((BEFORE, AFTER), 1))
    lake = SmallLake(tmp_path / "lake", one, other)
    lake.take(batch_of([frame(1, message_class(one, "Event")(game_name="uno").SerializeToString())]))
    event = message_class(other, "Event")
    lake.take(
        batch_of(
            [
                frame(2, event(game_name="uno", **fields).SerializeToString())
                for fields in (
                    {"hand": {"chips": 7, "card": {"wild": 1}, "note": "n"}, "scores": {"a": 2**63 - 1}},
                    {"hands": [{"chips": 1}, {"chips": 2**63}]},
                    {"hands": [{"card": {"wild": 2}}]},
                    {"scores": {"a": 1, "b": 2**63}},
                    {"hands": [{"chips": 1}, {"chips": 2}]},
                )
            ],
            first=1,
        )
    )
    found = rows(lake, "silver_uno_events", "_offset", "hand", "hands")
    assert [(offset, hand, len(hands)) for offset, hand, hands in found] == [
        (0, None, 0),
        (1, {"chips": 7, "card": {"wild": True}, "note": "n"}, 0),
        (5, None, 2),
    ]
    assert quarantined(lake) == [(2, "decode_type"), (3, "decode_type"), (4, "decode_type")]
    assert faults(lake) == {}
