"""Alerts and metrics at the servers that they are for: a real Alertmanager and a real Prometheus."""

import datetime
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.lake import Lake
from spark_app.page.alerts.book import Book, Judged
from spark_app.page.alerts.delivery import Delivery
from spark_app.page.alerts.delivery import Receiver as Sender
from spark_app.page.files import PageFiles
from spark_app.settings.watching import AlertRule, Alerts
from tests.chaos import read_back
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.monitoring import Alertmanager, Prometheus, program
from tests.support.pages import Running, page
from tests.support.receivers import Receiver, receiving
from tests.support.statuses import EVERYTHING, write_status

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
DOCS = Path(__file__).parents[2] / "docs"
ALERTS = """
[alerts]
webhook = "{address}"
format = "alertmanager"
"""
GONE = """
[alerts.rules.gone]
when = "state in ('stopped', 'dead')"
level = "ERROR"
description = "see the runbook"
"""
TWO = """
[alerts.rules.many]
when = "deferred > 10"
[alerts.rules.short]
when = "lag > 0"
"""
FIRING = """
[alerts.rules.any]
when = "records > 0"
"""
CHECKED = {"known_player": {"check": "gamer_id <> ''", "action": "warn"}}


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """What Alertmanager tells."""
    with receiving() as made:
        yield made


@pytest.fixture
def alertmanager(tmp_path: Path, hook: Receiver) -> Iterator[Alertmanager]:
    """It is not started yet."""
    made = Alertmanager(tmp_path / "monitoring", hook.url)
    yield made
    made.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake without tables, whose app seems to run."""
    made = Lake(tmp_path / "lake")
    made.prepare()
    made.identity()
    write_status(made, at=time.time(), deferred=0)
    return made


def told(hook: Receiver, name: str) -> list[dict[str, Any]]:
    """What Alertmanager has told of an alert, in order."""
    alerts = [alert for _, body in hook.received for alert in body["alerts"]]
    return [alert for alert in alerts if alert["labels"]["alertname"] == name]


def is_told_ended(hook: Receiver, name: str) -> bool:
    """Or that nothing was told: the alert may have ended before Alertmanager told anybody."""
    return [alert["status"] for alert in told(hook, name)][-1:] != ["firing"]


def names(alertmanager: Alertmanager) -> list[str]:
    """The alerts that are active."""
    return sorted(alert["labels"]["alertname"] for alert in alertmanager.alerts())


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def unsent(running: Running) -> float:
    text = running.get("/metrics", token=running.token).text
    [value] = re.findall(r"^protolake_alerts_unsent (\S+)$", text, re.MULTILINE)
    return float(value)


@pytest.mark.nightly
def test_an_alert_about_the_app_is_active_once_while_it_fires_and_then_ends(
    new_stage: Callable[..., Stage], alertmanager: Alertmanager, hook: Receiver
) -> None:
    stage = new_stage(BATCH__INTERVAL_S="0.5")
    stage.produce(500)
    app = stage.start()
    alertmanager.start()
    try:
        wait_until(lambda: stage.status().get("bronze", 0) == 500, "the first records")
        with page(Lake(stage.lake), ALERTS.format(address=alertmanager.url) + GONE):
            time.sleep(3)
            assert alertmanager.alerts() == []
            app.send_signal(signal.SIGTERM)
            wait_until(lambda: names(alertmanager), "the alert", 90)
            [first] = alertmanager.alerts()
            wait_until(lambda: told(hook, "gone"), "what Alertmanager tells", 30)
            is_repeated(alertmanager, first)
            kill(app)
            app = stage.start()
            wait_until(lambda: not alertmanager.alerts(), "the end of the alert", 120)
            wait_until(lambda: len(told(hook, "gone")) == 2, "what Alertmanager tells of the end", 30)
    finally:
        kill(app)
    says_what_it_was_told(first, Lake(stage.lake).known_identity())
    fired, resolved = told(hook, "gone")
    assert (fired["status"], resolved["status"]) == ("firing", "resolved")
    assert fired["labels"] == resolved["labels"] == first["labels"]
    assert fired["annotations"] == first["annotations"]
    assert moment(fired["startsAt"]) == moment(resolved["startsAt"]) == moment(first["startsAt"])
    assert moment(resolved["startsAt"]) < moment(resolved["endsAt"]) < datetime.datetime.now(datetime.UTC)
    assert resolved["annotations"]["summary"].startswith("alert gone is resolved: ")


def is_repeated(alertmanager: Alertmanager, first: dict[str, Any]) -> None:
    """The page says each minute that the alert still fires: its end is put off, and it is one alert as before."""
    wait_until(lambda: alertmanager.alerts()[0]["updatedAt"] != first["updatedAt"], "the repetition", 90)
    [again] = alertmanager.alerts()
    assert moment(again["endsAt"]) > moment(first["endsAt"])
    own = ("fingerprint", "labels", "annotations", "startsAt", "status")
    assert {name: again[name] for name in own} == {name: first[name] for name in own}


def says_what_it_was_told(alert: dict[str, Any], identity: str) -> None:
    assert alert["status"]["state"] == "active"
    assert alert["labels"] == {"alertname": "gone", "lake": identity, "job": "protolake", "severity": "critical"}
    summary = alert["annotations"].pop("summary")
    assert re.match(r"alert gone fires: state in \('stopped', 'dead'\) \(state is (stopped|dead)\)$", summary)
    assert alert["annotations"] == {"description": "see the runbook", "key": f"{identity}/gone/1"}
    alert["annotations"]["summary"] = summary


@pytest.mark.nightly
def test_an_alertmanager_that_comes_up_late_gets_what_it_missed(
    lake: Lake, alertmanager: Alertmanager, hook: Receiver
) -> None:
    """One alert still fires when it comes up, the other one has ended before."""
    with page(lake, ALERTS.format(address=alertmanager.url) + TWO) as running:
        write_status(lake, at=time.time(), deferred=20, lag=5)
        wait_until(lambda: unsent(running) == 2, "two alerts", 30)
        write_status(lake, at=time.time(), deferred=20, lag=0)
        wait_until(lambda: unsent(running) == 3, "the end of one", 30)
        time.sleep(3)  # some attempts fail
        alertmanager.start()
        wait_until(lambda: unsent(running) == 0, "the delivery", 60)
        assert names(alertmanager) == ["many"]
        wait_until(lambda: told(hook, "many"), "what Alertmanager tells", 30)
        write_status(lake, at=time.time(), deferred=0)
        wait_until(lambda: not alertmanager.alerts(), "the end of the alert", 60)
        wait_until(lambda: is_told_ended(hook, "many") and is_told_ended(hook, "short"), "what Alertmanager tells", 30)
    assert [alert["status"] for alert in told(hook, "many")] == ["firing", "resolved"]
    assert running.printed.count("an alert could not be sent") >= 2


@pytest.mark.nightly
def test_an_alert_ends_although_the_clock_was_set_back_while_it_fired(
    lake: Lake, alertmanager: Alertmanager, hook: Receiver
) -> None:
    """Alertmanager takes no alert that ends before it starts."""
    alertmanager.start()
    files = PageFiles(lake)
    files.acquire()
    book = Book(files, lake.known_identity, is_sent=True)
    delivery = Delivery(book, Sender(Alerts(webhook=alertmanager.url, format="alertmanager")).post, repeats=True)
    rules, now = {"late": AlertRule(when="lag > 0")}, time.time()
    book.judge(rules, {"late": Judged(True, {})}, now)
    delivery.step(time.monotonic)
    assert names(alertmanager) == ["late"]
    wait_until(lambda: told(hook, "late"), "what Alertmanager tells", 30)
    book.judge(rules, {"late": Judged(False, {})}, now - 60)
    delivery.step(time.monotonic)
    assert book.waiting() == []
    wait_until(lambda: len(told(hook, "late")) == 2, "what Alertmanager tells of the end", 30)
    assert told(hook, "late")[1]["status"] == "resolved"
    assert alertmanager.alerts() == []


def test_promtool_finds_no_fault_in_the_metrics(lake: Lake) -> None:
    """Of a lake of which everything is known."""
    checks = [program("prometheus", "promtool"), "check", "metrics"]
    write_status(lake, at=time.time(), tables=3, **EVERYTHING)
    with page(lake, FIRING) as running:
        text = running.get("/metrics", token=running.token).text
    assert len(re.findall("^# TYPE ", text, re.MULTILINE)) > 35
    done = subprocess.run(checks, input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def scraped(new_stage: Callable[..., Stage], tmp_path: Path) -> Iterator[tuple[Stage, Prometheus]]:
    """A lake whose app runs, with the page, and a Prometheus that is configured as the docs say. A second job of it has
    a wrong token."""
    program("prometheus", "prometheus")
    stage = new_stage(BATCH__INTERVAL_S="0.5", EXPECTATIONS=json.dumps(CHECKED))
    stage.produce(2_000, partitions="2", poison="0.05", plant="no_player=0.05", games="uno,rummy")
    app = stage.start()
    try:
        wait_until(lambda: stage.status().get("bronze", 0) == 2_000, "the first records")
        with page(Lake(stage.lake), FIRING) as running:
            config = documented(stage.lake / "_protolake" / "page" / "token", running.url, tmp_path)
            with Prometheus(tmp_path / "monitoring", config) as prometheus:
                yield stage, prometheus
    finally:
        kill(app)


def documented(token: Path, url: str, folder: Path) -> str:
    """The configuration of docs/alerts.md with the address and the token of a page, and once more with a wrong one."""
    [text] = re.findall(r"```yaml\nscrape_configs:\n(.*?)```", (DOCS / "alerts.md").read_text(), re.DOTALL)
    right, wrong = folder / "right-token", folder / "wrong-token"
    shutil.copy(token, right)
    wrong.write_text(right.read_text()[::-1])
    jobs = ""
    for name, file in (("protolake", right), ("stranger", wrong)):
        job = text
        for old, new in (
            ("job_name: protolake", f"job_name: {name}"),
            ("/run/secrets/protolake-page", str(file)),
            ("127.0.0.1:8085", url.removeprefix("http://")),
        ):
            assert job.count(old) == 1
            job = job.replace(old, new)
        jobs += job
    return f"global: {{ scrape_interval: 5s }}\nscrape_configs:\n{jobs}"


def test_prometheus_scrapes_what_the_lake_has_and_computes_the_dashboard(
    scraped: tuple[Stage, Prometheus],
) -> None:
    stage, prometheus = scraped
    wait_until(lambda: prometheus.query('up{job="protolake"} == 1'), "the page", 60)
    wait_until(lambda: len(prometheus.query("up")) == 2, "the first scrapes", 60)
    assert {labels["job"]: value for labels, value in prometheus.query("up")} == {"protolake": 1, "stranger": 0}
    targets = {one["labels"]["job"]: one for one in prometheus.ask("targets", state="active")["activeTargets"]}
    assert (targets["protolake"]["health"], targets["protolake"]["lastError"]) == ("up", "")
    assert (targets["stranger"]["health"], targets["stranger"]["lastError"][-16:]) == ("down", "401 Unauthorized")
    identity = Lake(stage.lake).known_identity()
    wait_until(lambda: prometheus.query("protolake_alert_firing == 1"), "the alert", 30)
    assert [labels["lake"] for labels, _ in prometheus.query("protolake_info")] == [identity]
    [kind] = prometheus.ask("metadata", metric="protolake_state")["protolake_state"]
    assert kind["type"] == "stateset"  # which only OpenMetrics has
    assert prometheus.ask("label/lake/values", **{"match[]": "protolake_info"}) == [identity]
    has_the_counts_of_the_tables(prometheus, stage)
    wait_until(lambda: prometheus.query("rate(protolake_records_total[1m])"), "two scrapes", 30)
    for lakes in (".*", f"({identity}|another)"):  # all of them, and those that somebody has chosen
        is_computed(prometheus, lakes)


def has_the_counts_of_the_tables(prometheus: Prometheus, stage: Stage) -> None:
    """Nothing is produced meanwhile. Delta tables, read with delta-rs, are compared with what Prometheus has stored."""

    def value(expression: str) -> float:
        [(_, found)] = prometheus.query(expression)
        return found

    wait_until(lambda: value("protolake_follower_lag_units{follower='gold'}") == 0, "gold", 60)
    looked = time.time() + 2  # after the next status
    wait_until(lambda: value("timestamp(protolake_up)") > looked, "a scrape", 60)
    counts = {name: read_back.read(stage.lake, name).num_rows for name in read_back.tables(stage.lake, "")}
    silver = {name: count for name, count in counts.items() if name.startswith("silver_")}
    assert value("protolake_records_total") == counts["bronze_events"] == 2_000
    assert value("protolake_tables") == len(silver) > 1
    assert value("sum(protolake_rows_total{layer='silver'})") == sum(silver.values()) > 1_000
    of_tables = {labels["table"]: rows for labels, rows in prometheus.query("protolake_rows_total")}
    assert {f"silver_{table}_events": rows for table, rows in of_tables.items()} == silver
    refused = counts["quarantine_events"]
    assert value("sum(protolake_quarantined_records_total)") == refused > 10
    assert value("sum(protolake_quarantine_open_records)") == refused
    outcomes = {labels["outcome"]: rows for labels, rows in prometheus.query("protolake_rule_rows_total")}
    assert outcomes["failed"] > 10
    assert sum(outcomes.values()) == sum(silver.values())
    assert (value("protolake_up"), value("protolake_healthy"), value("protolake_starts_total")) == (1, 1, 1)
    assert [labels["protolake_state"] for labels, _ in prometheus.query("protolake_state == 1")] == ["running"]


def is_computed(prometheus: Prometheus, lakes: str) -> None:
    """Every expression of the dashboard, with its variables replaced as Grafana does, now and at each second of a
    range. No table is paused, and all other metrics have values."""
    board = json.loads((DOCS / "grafana" / "protolake.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        asked = expression.replace("$lake", lakes).replace("$__rate_interval", "1m")
        assert "$" not in asked
        now = time.time()
        found = prometheus.query(asked)
        over_time = prometheus.ask("query_range", query=asked, start=now - 20, end=now, step=1)["result"]
        has_values = "protolake_paused_rows" not in asked
        assert (bool(found), bool(over_time)) == (has_values, has_values), asked
