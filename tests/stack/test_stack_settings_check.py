"""`settings --check --live` against a real broker and a real registry, and the app with the same mistakes."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from spark_app.model.errors import ExitCode
from tests.chaos.stage import Stage, kill, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


def found(stage: Stage, **settings: str) -> list[str]:
    """The lines of the command."""
    done = stage.command("settings", "--live", **settings)
    lines = done.stdout.splitlines()
    assert done.returncode == (ExitCode.DONE if lines == ["nothing is wrong"] else ExitCode.CONFIGURATION), done.stderr
    return lines


def test_each_mistake_is_named_before_the_first_record(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(10)
    assert found(stage) == ["nothing is wrong"]
    root = "{0.scheme}://{0.netloc}".format(urlsplit(stage.registry.url))
    mistakes = {
        "kafka: 127.0.0.1:1: ": {"KAFKA__BROKERS": "127.0.0.1:1"},
        f"kafka: {stage.brokers}: there is no topic {stage.topic}x; did you mean {stage.topic}": {
            "KAFKA__TOPIC": f"{stage.topic}x",
            "REGISTRY__SUBJECT": f"{stage.topic}-value",
        },
        f"registry.url: {root}: it answers, but not as a schema registry": {"REGISTRY__URL": root},
        f"registry.subject: the registry has no subject {stage.topic}-values; did you mean {stage.topic}-value": {
            "REGISTRY__SUBJECT": f"{stage.topic}-values"
        },
        "event.routing = game: no message has such a field; did you mean ": {"EVENT__ROUTING": "game"},
        "event.routing = event_timestamp: is timestamp": {"EVENT__ROUTING": "event_timestamp"},
        "event.key = player: no message has such a field": {"EVENT__KEY": "player"},
        "event.time = event_time: no message has such a field; did you mean ": {"EVENT__TIME": "event_time"},
        "gold.aggregates.s = amount: no message has such a field": {
            "GOLD__AGGREGATES": '{"s": {"function": "sum", "field": "amount"}}'
        },
        "expectations.a.check: no column has the name gamer; did you mean gamer_id": {
            "EXPECTATIONS": '{"a": {"check": "gamer <> \'\'", "action": "warn"}}'
        },
        "silver.columns.x: no column has the name gamer; did you mean gamer_id": {
            "SILVER__COLUMNS": '{"x": "upper(gamer)"}'
        },
        "reference.p: /none: there is no Delta table": {
            "REFERENCE": '{"p": {"path": "/none", "key": "gamer_id", "columns": ["c"]}}'
        },
        "alerts.webhook: nothing answers there: ": {"ALERTS__WEBHOOK": "http://127.0.0.1:1/hook"},
    }
    for line, settings in mistakes.items():
        said = found(stage, **settings)
        assert any(one.startswith(line) for one in said), (line, said)


def test_the_app_says_each_once_and_goes_on(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(EVENT__KEY="player", GOLD__INTERVAL_S="0.5")
    stage.produce(50)
    app = stage.start()
    try:
        wait_until(lambda: len(stage.status().get("faults", {})) > 1, "the tables without gold")
        faults = stage.status()["faults"]
        assert faults["event.key = player"].startswith("no message has such a field")
        in_uno = faults["event.key = player in silver_uno_events"]
        assert in_uno.startswith("there is no such field, so there is no gold; ")
        printed = stage.command("status").stdout
        assert f"settings    event.key = player in silver_uno_events: {in_uno}" in printed or len(faults) > 10
    finally:
        kill(app)
    lines = [line for line in stage.lines() if "does not fit the schemas" in line]
    assert len(lines) == len(set(lines)) == len(faults)


def test_a_registry_without_its_path_ends_the_start_with_the_address_to_set(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(10)
    root = "{0.scheme}://{0.netloc}".format(urlsplit(stage.registry.url))
    app = stage.start(REGISTRY__URL=root)
    try:
        wait_until(lambda: "not as a schema registry" in (stage.status().get("reason") or ""), "the reason")
        assert app.wait(120) == ExitCode.CONFIGURATION
    finally:
        kill(app)
    assert f"set it to {stage.registry.url} for Apicurio" in stage.lines()[-1]
    assert stage.status()["state"] == "held"
