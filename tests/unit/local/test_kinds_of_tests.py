"""./scripts/test reads a few folders for each kind of tests, so a test of a kind elsewhere would never run."""

import pytest

from scripts.local.artifacts import ROOT

TESTS = ROOT / "tests"
# A test on SeaweedFS in `stores` gets its mark from there.
FOLDERS = {"spark": ["spark"], "browser": ["browser"], "e2e": ["e2e"], "stack": ["stack", "stores", "support"]}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_kind_is_in_its_folders(kind: str) -> None:
    marked = {path for path in TESTS.rglob("*.py") if f"pytest.mark.{kind}" in path.read_text()}
    assert marked
    assert {path.relative_to(TESTS).parts[0] for path in marked} <= set(FOLDERS[kind])


@pytest.mark.parametrize("folder", ["spark", "stack", "e2e"])
def test_no_unit_test_is_in_another_folder(folder: str) -> None:
    files = list(TESTS.joinpath(folder).rglob("test_*.py"))
    assert files
    assert [path.name for path in files if "\npytestmark = " not in path.read_text()] == []
