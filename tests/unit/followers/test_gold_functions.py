"""Every aggregate function is known wherever functions are named."""

from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from spark_app.audit.check_gold import _aggregate
from spark_app.followers.gold.compute import FUNCTIONS
from spark_app.followers.gold.definition import FOLDED
from spark_app.settings.models import Aggregate

NAMES = get_args(Aggregate.model_fields["function"].annotation)
PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_spark_knows_them() -> None:
    assert list(FUNCTIONS) == list(NAMES)
    assert set(FOLDED) <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "count"])
def test_the_audit_knows_them(name: str) -> None:
    assert _aggregate(pa.array([3]), name) == (1 if name == "distinct" else 3)


def test_the_audit_refuses_others() -> None:
    with pytest.raises(ValueError, match="does not know the function nonsense"):
        _aggregate(pa.array([3]), "nonsense")


def test_the_page_explains_them() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [name for name in NAMES if not any(f"`{name}`" in row for row in rows)] == []
