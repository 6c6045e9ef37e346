"""`confluent.type.Decimal`: a field that declares precision and scale is a DECIMAL in new tables, never rounded."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.confluent.type.decimal_utils import to_proto_decimal
from deltalake import DeltaTable
from hypothesis import example, given
from hypothesis import strategies as st

from spark_app.audit.values import carried, fits
from spark_app.model.catalog import Decodable
from spark_app.protobuf.columns import decimals
from spark_app.protobuf.columns.decimals import DECODED, convert_decimals
from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.schemas.ledger import message_schemas
from tests.support.examples import examples
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.projections import UNO, faults, quarantined, rows
from tests.support.protos import compile_text, message_class
from tests.unit.recovery.test_renewal import renew

IMPORTS = 'import "confluent/meta.proto"; import "confluent/type/decimal.proto";\n'


def option(**params: Any) -> str:
    given_ = ", ".join(f'{{key: "{name}", value: "{value}"}}' for name, value in params.items())
    return f"[(confluent.field_meta) = {{params: [{given_}]}}]"


MONEY = option(precision=6, scale=2)


def schema_of(fields: str, syntax: str = "proto3") -> Decodable:
    label = "optional " if syntax == "proto2" else ""
    bill = f"message Bill {{ {label}confluent.type.Decimal tip = 1 {MONEY}; }}"
    return compile_text(f'syntax = "{syntax}";\n{IMPORTS}message Event {{ {fields} }} {bill}')


GAME = "string game_name = 1;"
DECLARED = schema_of(
    f"""{GAME} confluent.type.Decimal amount = 2 {MONEY}; repeated confluent.type.Decimal all = 3 {MONEY};
    map<string, confluent.type.Decimal> by = 4 {MONEY}; Bill bill = 5; repeated Bill bills = 6;
    confluent.type.Decimal free = 7;"""
)
BARE = schema_of(f"{GAME} confluent.type.Decimal amount = 2;")


def written(number: str) -> bytes:
    """A number as Confluent's own code writes it, with its own scale."""
    data: bytes = to_proto_decimal(Decimal(number)).SerializeToString()
    return data


def event(decodable: Decodable, amount: str | None = None, **fields: Any) -> bytes:
    message = message_class(decodable, "Event")(game_name="uno", **fields)
    if amount is not None:
        message.amount.MergeFromString(written(amount))
    return frame(decodable.key, message.SerializeToString())


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({"precision": 6, "scale": 2}, pa.decimal128(6, 2)),
        ({"precision": 38, "scale": 38, "more": "x"}, pa.decimal128(38, 38)),
        ({"precision": 20, "scale": 0}, pa.decimal128(20, 0)),
        ({"precision": 39, "scale": 2}, DECODED),
        ({"precision": 2, "scale": 3}, DECODED),
        ({"precision": 0, "scale": 0}, DECODED),
        ({"precision": 6}, DECODED),
        ({"scale": 6}, DECODED),
        ({"precision": "-6", "scale": 2}, DECODED),
        ({"precision": " 6", "scale": "2.0"}, DECODED),
        ({}, DECODED),
    ],
)
def test_a_field_declares_its_column(params: dict[str, Any], kind: pa.DataType) -> None:
    made = schema_of(f"{GAME} confluent.type.Decimal amount = 2 {option(**params)};")
    assert arrow_schema(message_class(made, "Event").DESCRIPTOR).field("amount").type == kind


def test_lists_maps_and_messages_inside_have_decimals_too() -> None:
    money, bill = pa.decimal128(6, 2), pa.struct([("tip", pa.decimal128(6, 2))])
    columns = arrow_schema(message_class(DECLARED, "Event").DESCRIPTOR)
    assert columns.types == [
        pa.string(), money, pa.list_(money), pa.map_(pa.string(), money), bill, pa.list_(bill), DECODED,
    ]  # fmt: skip


def bytes_of(integer: int, more: int = 0) -> bytes:
    return integer.to_bytes(integer.bit_length() // 8 + 1 + more, "big", signed=True)


integers = st.sampled_from(
    [0, 1, -1, 127, 128, -128, -129, 10**38 - 1, 10**38, -(10**38), 2**127, 150, 1500]
) | st.integers(-(10**40), 10**40)
values = st.none() | st.fixed_dictionaries(
    {
        "value": st.none() | st.just(b"") | st.builds(bytes_of, integers, st.integers(0, 20)),
        "precision": st.none() | st.integers(0, 50),
        "scale": st.none() | st.integers(-45, 45) | st.sampled_from([2**31 - 1, -(2**31)]),
    }
)
kinds = st.integers(1, 38).flatmap(lambda p: st.builds(pa.decimal128, st.just(p), st.integers(0, p)))


@given(st.lists(values, max_size=8), kinds)
@example([{"value": bytes_of(10**38 - 1), "precision": 38, "scale": -45}], pa.decimal128(38, 0))
@examples(2)
def test_a_value_fits_if_the_column_has_its_number(given_: list[Any], kind: pa.Decimal128Type) -> None:
    array = pa.array([None, *given_], DECODED).slice(1)
    made, good = convert_decimals(array, kind)
    made.validate(full=True)
    assert good.dtype == bool
    assert good.tolist() == [fits(value, kind) for value in given_]
    for value, fit, found in zip(given_, good, made.to_pylist(), strict=True):
        if value is None or not fit:
            assert found is None
        else:
            integer = int.from_bytes(value["value"] or b"", "big", signed=True)
            assert Fraction(found) == (integer and integer / Fraction(10) ** (value["scale"] or 0))
            assert found == carried(value, kind)


@pytest.mark.parametrize(
    ("number", "due"),
    [("1.5", "1.50"), ("1.500", "1.50"), ("-9999.99", "-9999.99"), ("0", "0.00"), ("7", "7.00"), ("1E+3", "1000.00")],
)
def test_numbers_of_the_official_client_land(tmp_path: Path, number: str, due: str) -> None:
    lake = SmallLake(tmp_path / "lake", DECLARED)
    lake.take(batch_of([event(DECLARED, number)]))
    assert str(rows(lake, UNO, "amount")[0][0]) == due
    assert faults(lake) == {}


@pytest.mark.parametrize("defaults", [True, False])
@pytest.mark.parametrize(("syntax", "label"), [("proto3", ""), ("proto2", "optional ")])
def test_decimals_land_wherever_they_are(tmp_path: Path, defaults: bool, syntax: str, label: str) -> None:
    """proto2 is decoded in Python."""
    made = schema_of(
        f"""{label}{GAME} {label}confluent.type.Decimal amount = 2 {MONEY};
        repeated confluent.type.Decimal all = 3 {MONEY}; map<string, confluent.type.Decimal> by = 4 {MONEY};
        {label}Bill bill = 5; repeated Bill bills = 6;""",
        syntax,
    )
    kind = message_class(made, "Event")
    full, small, zero = (kind(game_name="uno") for _ in range(3))
    for place in (full.amount, full.all.add(), full.by["a"], full.bill.tip, full.bills.add().tip):
        place.MergeFromString(written("1.5"))
    small.bills.add().tip.MergeFromString(written("1.234"))
    zero.amount.SetInParent()
    lake = SmallLake(tmp_path / "lake", made, decode={"defaults": defaults})
    lake.take(batch_of([frame(1, message.SerializeToString()) for message in (full, small, zero)]))
    money = Decimal("1.50")
    assert rows(lake, UNO, "_offset", "amount", "all", "bill", "bills") == [
        (0, money, [money], {"tip": money}, [{"tip": money}]),
        (2, Decimal(0), [], None, []),
    ]
    assert DeltaTable(str(lake.lake.path(UNO))).to_pyarrow_table()["by"].to_pylist() == [[("a", money)], []]
    assert quarantined(lake) == [(1, "decode_type")]
    assert faults(lake) == {}


def test_a_number_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", DECLARED)
    lake.take(batch_of([event(DECLARED, number) for number in ("1.234", "10000", "9999.99", "1E+30", "1e-30")]))
    assert quarantined(lake) == [(offset, "decode_type") for offset in (0, 1, 3, 4)]
    assert rows(lake, UNO, "amount") == [(Decimal("9999.99"),)]
    assert faults(lake) == {}


@pytest.mark.parametrize("first", [BARE, DECLARED], ids=["struct", "decimal"])
def test_a_table_keeps_the_column_that_it_has(tmp_path: Path, first: Decodable) -> None:
    """The option comes, or goes, with a later version."""
    bare, declared = (Decodable(key, one.descriptor_set, one.digest, "text") for key, one in ((1, BARE), (2, DECLARED)))
    order = (bare, declared) if first is BARE else (declared, bare)
    lake = SmallLake(tmp_path / "lake", *order)
    for number, schema in enumerate(order):
        lake.take(batch_of([event(schema, "1.5")], first=number))
    struct = {"value": b"\x0f", "precision": 2, "scale": 1}
    assert rows(lake, UNO, "amount") == [((struct if first is BARE else Decimal("1.50")),)] * 2
    assert faults(lake) == {}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """A lake as an earlier release would have it now, with a row of 1.5."""
    with monkeypatch.context() as earlier:
        earlier.setattr(decimals, "declared_type", lambda field: None)
        message_schemas.cache_clear()
        lake = SmallLake(tmp_path / "lake", DECLARED)
        lake.take(batch_of([event(DECLARED, "1.5")]))
    message_schemas.cache_clear()
    later = SmallLake(tmp_path / "lake")
    later.ends, later.kafka = lake.ends, lake.kafka
    return later


def test_a_table_of_an_earlier_release_keeps_its_struct(old: SmallLake) -> None:
    more = message_class(DECLARED, "Event")(game_name="go")
    more.amount.MergeFromString(written("2.5"))
    old.take(batch_of([event(DECLARED, "1.555"), frame(1, more.SerializeToString())], first=1))
    assert [row[0]["scale"] for row in rows(old, UNO, "amount")] == [1, 3]
    assert rows(old, "silver_go_events", "amount") == [(Decimal("2.50"),)]
    catalog = old.opened.resolver.ledger.catalog().columns
    assert old.opened.admission.columns("uno", catalog).field("amount").type == DECODED
    assert old.opened.admission.columns("go", catalog).field("amount").type == pa.decimal128(6, 2)
    assert faults(old) == {}


def test_a_renewal_gives_a_table_of_an_earlier_release_the_decimal(old: SmallLake) -> None:
    renew(old, "uno")
    old.take(batch_of([event(DECLARED, "7")], first=1))
    assert rows(old, UNO, "amount") == [(Decimal("1.50"),), (Decimal("7.00"),)]
    assert faults(old) == {}


def test_expectations_and_projections_see_the_number(tmp_path: Path) -> None:
    rules = {"small": {"check": "amount < 100.5", "action": "quarantine"}}
    silver = {"columns": {"twice": "amount * 2"}}
    lake = SmallLake(tmp_path / "lake", DECLARED, expectations=rules, silver=silver)
    lake.units.check_expectations()
    lake.take(batch_of([event(DECLARED, "100.49"), event(DECLARED, "100.5")]))
    assert rows(lake, UNO, "amount", "twice") == [(Decimal("100.49"), Decimal("200.98"))]
    assert quarantined(lake) == [(1, "expect_failed")]
    assert faults(lake) == {}


def test_a_huge_integer_and_a_huge_scale_cost_nothing() -> None:
    one = {"value": b"\x7f" * (1 << 20), "precision": 1, "scale": 2**31 - 1}
    made, good = convert_decimals(pa.array([one] * 4, DECODED), pa.decimal128(38, 0))
    assert (made.null_count, np.count_nonzero(good)) == (4, 0)
