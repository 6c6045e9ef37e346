"""The page of a lake that its app has not made yet, and who says where it is."""

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_app.app.text import status_lines
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode
from spark_app.model.table_names import TableNames
from spark_app.page.alerts.alarm import Alarm
from spark_app.page.files import PageFiles, make_folders
from spark_app.page.observations import Observations
from spark_app.page.views.flow import flow_graph
from spark_app.page.widgets import OF_STATE
from spark_app.settings.models import Settings
from spark_app.settings.watching import AlertRule, Alerts
from tests.support.pages import first_view, page
from tests.support.statuses import write_status
from tests.support.terminals import printed

ROOT = Path(__file__).parents[3]


def protolake(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "spark_app", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def new_lake(tmp_path: Path) -> Lake:
    """Has what the page needs, and nothing of the app."""
    lake = Lake(tmp_path / "lake")
    make_folders(lake)
    return lake


def test_prepare_makes_what_a_page_writes_to_and_prints_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "new" / "lake")
    done = protolake("page", "--prepare", "--lake", str(lake.root))
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.DONE, "", "")
    made = {str(path.relative_to(lake.root)): stat.S_IMODE(path.stat().st_mode) for path in lake.root.rglob("*")}
    folders = (
        "_protolake",
        "_protolake/page",
        "_protolake/requests",
        "_protolake/sinks",
        "_protolake/spool",
        "_protolake/spool/page",
    )
    assert made == dict.fromkeys(folders, 0o750) | {"_protolake/page/token": 0o600}
    token = PageFiles(lake).token()
    assert protolake("page", "--prepare", "--lake", str(lake.root)).returncode == ExitCode.DONE
    assert PageFiles(lake).token() == token


def test_prepare_takes_the_umask_of_the_settings_and_works_without_them(tmp_path: Path) -> None:
    """As the service page-init does, if the settings are wrong."""
    wrong, mine = tmp_path / "wrong.toml", tmp_path / "mine.toml"
    wrong.write_text("[page]\nprot = 1\n")
    mine.write_text('[lake]\numask = "022"\n')
    folder = str(tmp_path / "lake")
    refused = protolake("page", "--prepare", PROTOLAKE_SETTINGS=str(wrong), PROTOLAKE_LAKE__PATH=folder)
    assert (refused.returncode, "page.prot" in refused.stderr) == (ExitCode.CONFIGURATION, True)
    assert not Path(folder).exists()
    assert protolake("page", "--prepare", PROTOLAKE_SETTINGS="", PROTOLAKE_LAKE__PATH=folder).returncode == 0
    assert protolake("page", "--prepare", "--settings", str(mine), "--lake", f"{folder}2").returncode == 0
    modes = [stat.S_IMODE(Path(f"{one}/_protolake").stat().st_mode) for one in (folder, f"{folder}2")]
    assert modes == [0o750, 0o755]


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(ConfigurationError, match=r"^lake.path: cannot write to .*/lake \(Not a directory\); choose"):
        make_folders(Lake(tmp_path / "lake"))


def test_a_page_that_comes_before_the_app_learns_the_id_of_the_lake(new_lake: Lake) -> None:
    with page(new_lake) as running:
        token = PageFiles(new_lake).token()
        health = running.get("/health", token)
        assert (health.status_code, health.json()["problem"]) == (503, "no status yet")
        assert running.get("/", token).status_code == 200
        assert 'protolake_info{lake=""' in running.get("/metrics", token).text
        new_lake.prepare()
        identity = new_lake.identity()
        write_status(new_lake, at=time.time())
        assert f'protolake_info{{lake="{identity}"' in running.get("/metrics", token).text
        assert running.get("/health", token).status_code == 200
    assert token not in running.printed


def test_a_page_writes_nowhere_else(new_lake: Lake, tmp_path: Path) -> None:
    """As in its container: a user without a home, in a folder that nobody writes to."""
    here = tmp_path / "here"
    here.mkdir()
    before = {path: path.stat().st_mtime_ns for path in (here, tmp_path)}
    variables = {name: value for name, value in os.environ.items() if name not in ("HOME", "TMPDIR")}
    command = [sys.executable, "-m", "spark_app", "page"]
    assert first_view(command, variables | {"PYTHONPATH": str(ROOT)}, here, new_lake).status_code == 200
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_app_begins_on_such_a_lake_as_on_an_empty_one(new_lake: Lake, tmp_path: Path) -> None:
    empty = Lake(tmp_path / "empty")
    for lake in (new_lake, empty):
        lake.prepare()
        assert lake.tables() == []
        assert lake.known_identity() == ""
        assert lake.known_identity() != lake.identity() == lake.known_identity()


def test_no_alert_fires_before_there_is_an_app(new_lake: Lake) -> None:
    rules = {
        "gone": AlertRule(when="state in ('held', 'dead')"),
        "full": AlertRule(when="free_bytes > 0"),
    }
    files = PageFiles(new_lake)
    files.acquire()
    alarm = Alarm(new_lake, Settings(alerts=Alerts(rules=rules)), files, new_lake.known_identity)
    alarm.step(time.time())
    assert alarm.book.firing() == []
    new_lake.prepare()
    identity = new_lake.identity()
    write_status(new_lake, at=time.time() - 100)
    alarm.step(time.time())
    assert sorted(one["id"] for one in alarm.book.firing()) == [f"{identity}/full/1", f"{identity}/gone/1"]


def test_the_views_show_a_new_lake_otherwise_than_a_dead_app(new_lake: Lake) -> None:
    observed = Observations(new_lake)
    assert (observed.state, observed.state in OF_STATE) == ("no app yet", True)
    flow = flow_graph(observed, ["t"], TableNames(), ())
    assert [node.key for node in flow.nodes] == ["topic", "bronze", "quarantine", "deferred", "dropped"]
    assert flow.bends == ()  # they stand where no node is, and ECharts would draw all nodes smaller for them
    known = {node.key for node in flow.nodes}
    assert {end for edge in flow.edges for end in edge} <= known
    write_status(new_lake, at=time.time() - 100)
    observed.step()
    assert observed.state == "dead"


def test_the_graph_and_status_show_a_source_of_files(new_lake: Lake) -> None:
    named = {"a\n.parquet": "it is empty"}
    source = {"kind": "files", "path": "/in", "taken": 5, "waiting": 2, "broken": 1, "named": named}
    value = write_status(new_lake, at=time.time(), source=source)
    observed = Observations(new_lake)
    observed.step()
    topic = flow_graph(observed, ["plays"], TableNames(), ()).nodes[0]
    assert (topic.name, topic.colour) == ("plays", "warn")
    assert topic.lines == ("5 files ingested", "2 waiting", "1 cannot be ingested")
    lines = status_lines(value)
    assert "files       5 ingested, 2 waiting, 1 cannot be ingested; /in" in lines
    assert "            a\\n.parquet: it is empty" in lines


def test_status_prints_where_the_page_is_and_its_token_only_to_a_terminal(lake: Lake) -> None:
    def said(*options: str) -> str:
        done = protolake("status", "--lake", str(lake.root), *options)
        assert done.stderr == ""
        return done.stdout

    written = write_status(lake, at=time.time() + 600)  # healthy for as long as the commands take
    with page(lake) as running:
        address = f"{running.url}/ (token: {lake.root}/_protolake/page/token)"
        assert re.findall(r"^page +(.+)$", said(), re.MULTILINE) == [address]
        command = [sys.executable, "-m", "spark_app", "status", "--lake", str(lake.root)]
        assert f"page        {running.url}/?token={running.token}\n" in printed(command, ROOT)
        assert said("--healthy") == ""
        as_json = said("--json")
        assert json.loads(as_json) == written
        assert running.token not in as_json
        lake.storage.delete(lake.status)
        assert said() == f"page        {address}\nnot healthy: no status yet\n"
    assert said() == "not healthy: no status yet\n"
