"""The dashboard for Grafana queries metrics that there are, by labels that they have."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark_app.lake.lake import Lake
from spark_app.page.alerts.book import Book, Judged
from spark_app.page.files import PageFiles
from spark_app.page.metrics.exposition import LakeCollector, PageCollector, registry_of
from spark_app.page.metrics.reading import Reading
from spark_app.settings.watching import AlertRule
from tests.support.statuses import EVERYTHING, status_of

FILE = Path(__file__).parents[3] / "docs" / "grafana" / "protolake.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text())
OF_PROMETHEUS = {"instance"}
LABELS = r"(?:by|on|group_left) ?\(([^)]*)\)|\{\{(\w+)\}\}|[{,](\w+)=~?\""


@pytest.fixture
def labels(tmp_path: Path) -> dict[str, set[str]]:
    """Metric -> its labels, of a lake of which everything is known."""
    lake = Lake(tmp_path)
    lake.prepare()
    book = Book(PageFiles(lake), lambda: "lake-1", is_sent=False)
    book.judge({"late": AlertRule(when="lag > 0")}, {"late": Judged(True, {})}, 1_000_000.0)
    reading = Reading(status_of(**EVERYTHING), 1_000_000.0, units=1, free=1)
    text = generate_latest(registry_of(LakeCollector(lambda: reading, lambda: "lake-1"), PageCollector(book))).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def queries() -> list[tuple[str, str]]:
    """(expression, legend) of every panel."""
    return [
        (target["expr"], target.get("legendFormat", "")) for panel in BOARD["panels"] for target in panel["targets"]
    ]


def test_every_metric_and_label_of_the_dashboard_exists(labels: dict[str, set[str]]) -> None:
    [variable] = [one for one in BOARD["templating"]["list"] if one["name"] == "lake"]
    asked = [*queries(), (variable["query"]["query"], "")]
    assert len(asked) > 20
    for expression, legend in asked:
        metrics = re.findall(r"\bprotolake_\w+(?=[ {\[),]|$)", expression)
        assert metrics, expression
        assert [name for name in metrics if name not in labels] == []
        known = set().union(*(labels[name] for name in metrics)) | OF_PROMETHEUS
        named = {
            name for found in re.findall(LABELS, f"{expression} {legend}") for one in found for name in one.split(", ")
        }
        assert named - {""} <= known, expression


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    places = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids)) == len(BOARD["panels"])
