"""What the pages say is what the code does."""

import re
from pathlib import Path

import pytest

from scripts import pages
from spark_app import __version__

ROOT = Path(__file__).parents[3]


def test_tables_of_the_decoding_page_are_those_of_the_code() -> None:
    page = pages.PAGE.read_text()
    assert [name for _, name, _ in pages.BLOCK.findall(page)] == [
        "conversions",
        "caps",
        "types",
        "columns",
        "changes",
        "causes",
    ]
    assert pages.render(page) == page, "run python -m scripts.pages"


FOLDERS = ("docs", "spark_app", "scripts", "tests", ".github")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_page_about_security_names_tests_that_there_are() -> None:
    named = re.findall(
        r"`((?:unit|spark|stack|e2e)/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "security.md").read_text()
    )
    assert len(named) > 20
    for file, test in named:
        assert not test or f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"
        assert (ROOT / "tests" / file).is_file(), file


def test_each_page_of_decisions_is_named_by_the_code_that_it_explains() -> None:
    pages = {page.name for page in (ROOT / "docs" / "decisions").glob("*.md")} - {"README.md"}
    code = "".join(path.read_text() for folder in ("spark_app", "scripts") for path in (ROOT / folder).rglob("*.py"))
    lines = re.findall(r"^The reasons: docs/decisions/(.*)\.$", code, re.MULTILINE)
    assert {name for line in lines for name in line.split(", ")} == pages
    assert len(pages) <= 40


def test_the_version_is_that_of_the_newest_release() -> None:
    releases = re.findall(
        r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert releases[0] == __version__
