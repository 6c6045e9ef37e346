"""Every aggregate function is known wherever functions are named."""

from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql import functions

from spark_app.audit.check_gold import _aggregate
from spark_app.followers.gold.aggregates import Aggregate, Grouping
from spark_app.model.gold_functions import GOLD_FUNCTIONS
from spark_app.settings import gold as settings
from spark_app.settings.gold import Aggregate as Setting

NAMES = list(GOLD_FUNCTIONS)
PAGE = Path(__file__).parents[3] / "docs" / "gold.md"


@pytest.mark.parametrize("name", NAMES)
def test_spark_knows_them(name: str) -> None:
    known = Mock(spec=functions)
    function = GOLD_FUNCTIONS[name]
    assert isinstance(function.spark(known, "a column", *([0.5] if function.has_q else [])), Mock)
    if sketch := function.sketch:
        assert isinstance(sketch.make(known, "a column"), Mock)
        assert isinstance(sketch.merge(known, "a column", "another"), Mock)


@pytest.mark.parametrize("name", [name for name in NAMES if GOLD_FUNCTIONS[name].arrow])
def test_arrow_computes_them(name: str) -> None:
    fields = pa.schema([("k", pa.string()), ("v", pa.int64())])
    grouping = Grouping(("k",), (Aggregate("made", name, "v"),), fields)
    assert grouping.is_exact_in_arrow()
    part = grouping.combine([grouping.combine([of_rows(grouping, fields, value)]) for value in (3, 3)])
    assert int(grouping.finish(part)["made"][0].as_py()) == {"count": 2, "sum": 6}.get(name, 3)


def of_rows(grouping: Grouping, fields: pa.Schema, value: int) -> pa.Table:
    rows = pa.table({"k": ["x"], "v": [value]}, schema=fields)
    return grouping._group(grouping._of_rows(rows), grouping._first())


def test_the_settings_know_them_and_no_others() -> None:
    for name in NAMES:
        assert setting(name).function == name
    with pytest.raises(ValueError, match="Input should be 'count', 'sum'"):
        settings.Aggregate(function="nonsense")


@pytest.mark.parametrize("name", NAMES)
def test_those_of_numbers_need_a_field(name: str) -> None:
    if GOLD_FUNCTIONS[name].accepts == "numbers":
        with pytest.raises(ValueError, match=f"{name} needs the field"):
            settings.Aggregate(function=name, q=setting(name).q)
    else:
        settings.Aggregate(function=name)


def setting(name: str, approximate: bool = False) -> Setting:
    q = 0.5 if GOLD_FUNCTIONS[name].has_q else None
    return Setting(function=name, field="f", q=q, approximate=approximate)


@pytest.mark.parametrize("name", NAMES)
def test_those_with_a_sketch_may_be_approximate(name: str) -> None:
    if GOLD_FUNCTIONS[name].sketch:
        assert setting(name, approximate=True).folds
    else:
        with pytest.raises(ValueError, match=f"{name} is always exact; approximate is for distinct, median, quantile"):
            setting(name, approximate=True)


def test_only_a_quantile_has_a_q() -> None:
    with pytest.raises(ValueError, match="max has no q"):
        Setting(function="max", field="f", q=0.5)
    with pytest.raises(ValueError, match="quantile needs q"):
        Setting(function="quantile", field="f")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "count"])
def test_the_audit_knows_them(name: str) -> None:
    assert _aggregate(pa.array([3]), setting(name)) == (1 if name == "distinct" else 3)


def test_the_audit_refuses_others() -> None:
    with pytest.raises(ValueError, match="does not know the function nonsense"):
        _aggregate(pa.array([3]), Setting.model_construct(function="nonsense"))


def test_the_page_explains_them() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [name for name in NAMES if not any(f"`{name}`" in row for row in rows)] == []
