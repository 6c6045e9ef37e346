"""./scripts/test reads one folder for each of these kinds, so a test of a kind elsewhere would never run."""

import pytest

from scripts.local.artifacts import ROOT


@pytest.mark.parametrize("kind", ["spark", "browser", "e2e"])
def test_a_kind_is_in_its_folder(kind: str) -> None:
    tests = ROOT / "tests"
    marked = {path for path in tests.rglob("*.py") if f"pytest.mark.{kind}" in path.read_text()}
    assert marked
    assert {path for path in marked if tests / kind not in path.parents} == set()
