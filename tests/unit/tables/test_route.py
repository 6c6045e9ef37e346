"""Any text as a routing value: a name that is safe everywhere, or a cause; one table has one owner; the cap holds."""

import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.causes import Cause
from spark_app.tables.route import NAME, By, Routing, classify, normalize, route
from tests.chaos.units import open_lake
from tests.support.cost import least_cpu
from tests.support.examples import examples
from tests.support.units import table_desk

FULL_WIDTH = "\uff52\uff55\uff4d\uff4d\uff59"  # rummy
SPELLINGS = [
    "rummy",
    "RUMMY",
    "Rummy",
    FULL_WIDTH,
    "\U0001d42bummy",
    "go_fish",
    "GO_FISH",
    "straße",
    "strasse",
    "ﬁsh",
    "fish",
]
HOSTILE = ["", " ", ".", "..", "../x", "a/b", "a\0b", "a`b", "a'b", "a b", "_protolake", "a" * 65, "é", "İ", "\u202ea"]
VALUES = st.sampled_from(SPELLINGS + HOSTILE) | st.text(max_size=70) | st.from_regex(NAME, fullmatch=True)
OPEN = Routing("game_name", {}, frozenset(), True)


@given(VALUES)
@examples()
def test_a_value_is_new_or_has_a_cause(value: str) -> None:
    result = classify(value, OPEN, "M")
    assert (result.name, result.new) == (None, result.cause is None)
    assert result.new == bool(NAME.fullmatch(normalize(value)))


@given(VALUES)
@examples()
def test_a_name_is_a_plain_folder_and_identifier(value: str) -> None:
    if not classify(value, OPEN, "M").new:
        return
    name = normalize(value)
    assert name.isascii()
    assert 1 <= len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert normalize(name) == name == unicodedata.normalize("NFKC", value).casefold()


@given(st.lists(st.dictionaries(VALUES, st.integers(1, 9), max_size=8), max_size=4), st.integers(1, 5))
@examples(0.5)
def test_tables_have_one_owner_each_and_stay_under_the_cap(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str, int]], cap: int
) -> None:
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    desk = table_desk(lake, cap=cap)
    for batch in batches:
        before = dict(desk.admitted)
        desk.admit({value: ["M"] for value in batch if classify(value, desk.routing(), "M").new})
        assert desk.admitted.items() >= before.items()
        assert len(set(desk.admitted.values())) == len(desk.admitted) <= cap
        for value in batch:
            result = classify(value, desk.routing(), "M")
            assert not result.new
            if result.name is not None:
                assert result.name == normalize(value)
                assert desk.admitted[value] == result.name
    assert table_desk(lake, cap=cap).admitted == desk.admitted


@pytest.mark.parametrize(
    ("value", "routing", "cause"),
    [
        (None, OPEN, Cause.ROUTE_MISSING),
        ("", OPEN, Cause.ROUTE_MISSING),
        ("../x", OPEN, Cause.ROUTE_NAME),
        ("a" * 65, OPEN, Cause.ROUTE_NAME),
        ("uno", Routing("g", {}, frozenset({"rummy"}), True), Cause.ROUTE_REFUSED),
        ("RUMMY", Routing("g", {"rummy": "rummy"}, frozenset(), True), Cause.ROUTE_COLLISION),
        (FULL_WIDTH, Routing("g", {"rummy": "rummy"}, frozenset(), True), Cause.ROUTE_COLLISION),
        ("uno", Routing("g", {"rummy": "rummy"}, frozenset(), False), Cause.ROUTE_CAP),
    ],
)
def test_causes(value: str | None, routing: Routing, cause: Cause) -> None:
    assert classify(value, routing, "M").cause is cause


@given(st.lists(st.none() | VALUES, max_size=30))
@examples(0.5)
def test_each_row_gets_the_result_of_its_value(values: list[str | None]) -> None:
    tables = {"rummy": "rummy", "Uno": "uno"}
    routing = Routing("g", tables, frozenset(), True, messages={"rummy": ("M",), "uno": ("N",)})
    routed = route(pa.table({"g": pa.array(values, pa.string())}), len(values), routing, "M")
    results = [classify(value, routing, "M") for value in values]
    assert [routed.results[code] for code in routed.codes] == results
    rejects = {row: cause for row, cause, _ in routed.rejects()}
    assert rejects == {row: v.cause for row, v in enumerate(results) if v.cause}


OPEN_G = Routing("g", {}, frozenset(), True)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([7, -1, None], pa.int64()), ["7", "-1", None]),
        (pa.array([7, 8, None], pa.int32()), ["7", "8", None]),
        (pa.array([2**64 - 1, 0, None], pa.decimal128(20, 0)), [str(2**64 - 1), "0", None]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array(["rummy", "", None]), ["rummy", "", None]),
    ],
    ids=lambda values: str(values.type) if isinstance(values, pa.Array) else "",
)
def test_texts_integers_and_booleans_name_tables(values: pa.Array, texts: list[str | None]) -> None:
    routed = route(pa.table({"g": values}), 3, OPEN_G, "M")
    assert [routed.values[code] for code in routed.codes] == texts
    assert routed.rejects()[-1] == (2, Cause.ROUTE_MISSING, "g is NULL")


@pytest.mark.parametrize(
    ("table", "detail"),
    [
        (pa.table({"x": ["rummy"] * 3}), "the message has no field g"),
        (pa.table({"g": [b"x"] * 3}), "g is binary, which cannot name a table: a text, an enum, an integer or"),
        (pa.table({"g": [1.5] * 3}), "g is double, which cannot name a table"),
        (pa.table({"g": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}), "g is timestamp[us, tz=UTC], which cannot"),
        (pa.table({"g": [{"a": 1}] * 3}), "g is struct<a: int64>, which cannot name a table"),
        (pa.table({"g": [["rummy"]] * 3}), "g is list<item: string>, which cannot name a table"),
        (pa.table({"g": pa.array([1] * 3, pa.decimal128(20, 2))}), "g is decimal128(20, 2), which cannot name a table"),
    ],
    ids=lambda value: str(value.schema.types[0]) if isinstance(value, pa.Table) else "",
)
def test_a_field_that_cannot_name_a_table_is_named_in_the_detail(table: pa.Table, detail: str) -> None:
    rejects = route(table, 3, OPEN_G, "M").rejects()
    assert [(row, cause, text[: len(detail)]) for row, cause, text in rejects] == [
        (row, Cause.ROUTE_MISSING, detail) for row in range(3)
    ]


def test_a_hostile_value_is_cut_in_the_detail() -> None:
    hostile = pa.table({"g": ["\x1b[2J\n" * 100_000]})
    [(_, _, detail)] = route(hostile, 1, Routing("g", {}, frozenset(), True), "M").rejects()
    assert len(detail) <= 200
    assert detail.isprintable()


def test_thousands_of_values_cost_little() -> None:
    table = pa.table({"g": [f"g{number}" if number % 2 else f"G {number}" for number in range(20_000)]})

    def routes() -> None:
        routed = route(table, len(table), Routing("g", {}, frozenset(), True), "M")
        assert len(routed.rejects()) == 10_000

    assert least_cpu(routes) < 1


@pytest.mark.parametrize(
    ("by", "message", "value", "name"),
    [
        ("message", "shop.v1.OrderPlaced", None, "order_placed"),
        ("message", "HTTPRequest", "x", "http_request"),
        ("message", "acme.event_v2", "x", "event_v2"),
        ("message", "Wrapper/shop.Order", "x", "order"),
        ("both", "shop.OrderPlaced", "DE", "order_placed_de"),
        ("both", "Order", "a/b", None),
        ("both", "Order", "", None),
    ],
)
def test_message_types_name_tables(tmp_path: Path, by: By, message: str, value: str | None, name: str | None) -> None:
    desk = table_desk(open_lake(tmp_path), event={"routing": "g", "route_by": by})
    table = pa.table({"g": pa.array([value], pa.string())})
    routed = route(table, 1, desk.routing(), message)
    desk.admit({str(v): [message] for v, result in zip(routed.values, routed.results, strict=True) if result.new})
    assert [result.name for result in route(table, 1, desk.routing(), message).results] == [name]


def test_two_message_types_with_one_short_name_do_not_share_a_table(tmp_path: Path) -> None:
    desk = table_desk(open_lake(tmp_path), event={"route_by": "message"})
    desk.admit({"a.Order": ["a.Order"]})
    assert classify("b.Order", desk.routing(), "b.Order").cause is Cause.ROUTE_COLLISION


def test_a_message_type_that_a_table_never_had_is_new(tmp_path: Path) -> None:
    desk = table_desk(open_lake(tmp_path))
    desk.admit({"rummy": ["A"]})
    assert classify("rummy", desk.routing(), "B").new
    assert desk.admit({"rummy": ["B"]}) == []
    assert classify("rummy", desk.routing(), "B").name == "rummy"
    assert table_desk(open_lake(tmp_path)).messages == {"rummy": ("A", "B")}
