"""What the page, its metrics and alerts say of the sinks."""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from spark_app.followers.sinks import state
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.page.metrics.exposition import LakeCollector
from spark_app.page.metrics.reading import read
from spark_app.page.observations import Observations
from spark_app.page.views.flow import flow_graph
from tests.support.statuses import write_status

DOWN = {"state": "down", "reason": "no answer", "from": "silver", "tables": ["t0"], "waiting": 7, "accepted": 3}


def lake_of(folder: Path) -> Lake:
    lake = Lake(folder)
    lake.prepare()
    followers = {
        name: {"unit": 1, "lag": 0} for name in ("events", "sink.crm", "sink.board", "sink.../gone", "sink.x/../gone")
    }
    write_status(lake, at=time.time(), followers=followers, tables=1)
    lake.storage.create_folders(*map(lake.sink, ("crm", "board", "gone")))
    state.tell(lake, "crm", DOWN | {"rejected": 1, "waits_since": int((time.time() - 60) * 1e6)})
    state.tell(lake, "board", {"state": "running", "reason": "", "from": "board", "waiting": 0, "rejected": 0})
    state.tell(lake, "gone", DOWN)
    return lake


def test_metrics_and_measures(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    registry = CollectorRegistry()
    registry.register(LakeCollector(lambda: read(lake, time.time()), lake.known_identity))
    text = generate_latest(registry).decode()
    assert 'protolake_sink_waiting_rows{sink="crm"} 7.0' in text
    assert 'protolake_sink_rejected_rows_total{sink="crm"} 1.0' in text
    assert 'sink="gone"' not in text  # it has no cursor, so it is no sink of the settings any more
    assert 59 < read(lake, time.time()).sink_age_s < 120


def test_the_flow_has_them_and_says_what_is_wrong(tmp_path: Path) -> None:
    observed = Observations(lake_of(tmp_path))
    flow = flow_graph(observed, ["t"], TableNames(), ("t0",))
    nodes = {node.key: node for node in flow.nodes if node.key.startswith("sink/")}
    assert nodes.keys() == {"sink/crm", "sink/board"}
    assert (nodes["sink/crm"].lines, nodes["sink/crm"].colour) == (
        ("3 rows sent · 7 wait", "down · 1 rejected"),
        "warn",
    )
    assert ("silver/t0", "sink/crm") in flow.edges
    assert not [edge for edge in flow.edges if edge[1] == "sink/board"]
