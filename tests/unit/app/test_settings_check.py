"""What `settings --check` finds without servers, and what the app finds once it knows schemas."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from spark_app.app.cli import entry
from spark_app.app.settings_check import field_faults, find_faults
from spark_app.model.errors import ExitCode
from spark_app.settings.models import Settings
from tests.support.answers import Answers
from tests.support.games import Game

RULE = '[expectations.{}]\naction = "warn"\ncheck = "{}"\n'
MISTAKES = {
    "no SQL": (RULE.format("a", "bet >"), ["expectations.a.check: is not one SQL expression"]),
    "two rules": (
        RULE.format("a", "lowr(game) = 'x'") + RULE.format("b", "bet > 0; drop table x") + RULE.format("c", "bet > 0"),
        [
            "expectations.a.check: there is no function lowr(); did you mean lower",
            "expectations.b.check: is more than one",
        ],
    ),
    "clock": (RULE.format("a", "seen < now()"), ["expectations.a.check: now() does not always give the same"]),
    "no truth value": (RULE.format("a", "_offset + 1"), ["expectations.a.check: is of the type BIGINT"]),
    "projection": (
        '[silver.columns]\nx = "uper(a)"',
        ["silver.columns.x: there is no function uper(); did you mean upper"],
    ),
    "hmac": ('[silver.columns]\nx = "hmac(a)"', ["silver.hmac_key_file: is empty"]),
    "condition": ('[alerts.rules.a]\nwhen = "age > 60"', ["alerts.rules.a.when: there is no age; did you mean age_s"]),
    "no condition": ('[alerts.rules.a]\nwhen = "lag"', ["alerts.rules.a.when: is of the type DOUBLE"]),
    "alert in SQL": ('[alerts.rules.a]\nsql = "selec 1"', ["alerts.rules.a.sql: "]),
    "alert that writes": ('[alerts.rules.a]\nsql = "delete from bronze_events"', ["alerts.rules.a.sql: "]),
    "SQL file": (
        '[tables]\nsql = ["/none/*.sql", "/tmp"]',
        ["tables.sql: /none/*.sql: there is no such file", "tables.sql: /tmp: there is no such file"],
    ),
    "gold of nothing": (
        '[gold.tables.a]\nwhere = "bet >"\naggregates = { n = { function = "count" } }',
        ["gold.tables.a.where: is not one SQL expression"],
    ),
    "sink": (
        "[sinks.a]\nwhere = 'bet >'\nrest = { url = 'http://x/' }\n"
        "[sinks.b.rest]\nurl = 'http://10.0.0.1/'\n[sinks.c]\nkind = 'none'\n"
        "[sinks.d.rest]\nurl = 'https://x/'\nauth = { bearer_file = '/none' }",
        [
            "sinks.a.where: is not one SQL expression",
            "sinks.b.rest.url: http://10.0.0.1/ is 10.0.0.1, of the machine's own network",
            "no package has a sink none",
            "sinks.d.rest.auth.bearer_file: cannot read /none",
        ],
    ),
    "webhook": ('[alerts]\nwebhook_file = "/none"', ["alerts.webhook_file: cannot read /none"]),
    "registry": ('[registry]\nusername = "u"\npassword_file = "/none"', ["registry.password_file: cannot read /none"]),
    "brokers": (
        '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_password_file = "/none"',
        ["kafka.sasl_password_file: cannot read /none"],
    ),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_named_with_its_setting(tmp_path: Path, text: str, said: list[str]) -> None:
    settings = Settings(**{"lake": {"path": str(tmp_path / "lake")}, **tomllib.loads(text)})
    found = find_faults(settings)
    assert [one.startswith(start) for one, start in zip(found, said, strict=True)] == [True] * len(said), found
    assert list(tmp_path.iterdir()) == []


def test_what_only_a_server_or_a_table_knows_is_no_fault(tmp_path: Path) -> None:
    text = (
        RULE.format("a", "any_column > 0")
        + '[silver.columns]\nx = "upper(y)"\n[reference.p]\npath = "/none"\nkey = "k"\n'
        'columns = ["c"]\n[alerts.rules.a]\nsql = "select count(*) > 3 from silver_uno_events"\n'
        "[alerts.rules.b]\nwhen = \"rows('uno') > 3\"\n"
    )
    assert find_faults(Settings(**{"lake": {"path": str(tmp_path / "lake")}, **tomllib.loads(text)})) == []


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["protolake", "settings", *arguments])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    return int(ended.value.code or 0)


def test_the_command_says_what_is_wrong_and_ends_with_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", str(tmp_path / "lake"))
    file = tmp_path / "mine.toml"
    file.write_text(RULE.format("a", "bet >"))
    assert run(monkeypatch, str(file)) == ExitCode.CONFIGURATION
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("expectations.a.check: ")
    assert run(monkeypatch, "--settings", str(file)) == ExitCode.CONFIGURATION
    values = capsys.readouterr().out.splitlines()
    assert (values[-1], values[0]) == (line, "kafka.brokers = '127.0.0.1:9092'")
    file.write_text(RULE.format("a", "bet > 0"))
    assert run(monkeypatch, "--settings", str(file), "--check") == ExitCode.DONE
    assert capsys.readouterr().out == "nothing is wrong; --live asks the servers, too\n"


COUNT = {"n": {"function": "count"}}
EVENT = {"routing": "game_name", "key": "Player_Id", "time": "at"}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"event": EVENT}, {}),
        ({"event": EVENT | {"routing": "GAME_NAME", "key": "player_id"}}, {}),
        (
            {"event": EVENT | {"routing": "gamename"}},
            {"event.routing = gamename": "no message has such a field; did you"},
        ),
        ({"event": EVENT | {"routing": "bet"}}, {"event.routing = bet": "is double, which cannot name a table"}),
        ({"event": EVENT | {"routing": "no", "route_by": "message"}}, {}),
        (
            {"event": EVENT | {"key": "player"}},
            {"event.key = player": "no message has such a field; did you mean Player"},
        ),
        ({"event": EVENT | {"time": "when"}}, {"event.time = when": "no message has such a field; there are "}),
        ({"event": EVENT | {"time": "room.size"}}, {}),
        ({"event": EVENT | {"time": "room.sise"}}, {"event.time = room.sise": "no message has such a field; "}),
        (
            {"event": EVENT, "gold": {"aggregates": {"s": {"function": "sum", "field": "bett"}}}},
            {"gold.aggregates.s = bett": "no message has such a field; did you mean bet"},
        ),
        (
            {"event": EVENT, "gold": {"tables": {"t": {"where": "bett > _offset", "aggregates": COUNT}}}},
            {"gold.tables.t.where = bett": "no message has such a field; did you mean bet"},
        ),
        ({"event": EVENT | {"key": "k"}, "silver": {"columns": {"K": "player_id"}}}, {}),
        ({"event": {"key": "x"}, "wrapper": {"payload": "x"}}, {}),
    ],
)
def test_fields_of_the_settings_that_no_message_has(
    answers: Answers, tmp_path: Path, sections: dict[str, Any], said: dict[str, str]
) -> None:
    text = (
        "message Event { string game_name = 1; string Player_Id = 2; int64 at = 3; double bet = 4; Room room = 5; }"
        " message Room { int64 size = 1; }"
    )
    game = Game(answers, tmp_path, text)
    resolver = game.lake.opened.resolver
    resolver.resolve_new([11])
    found = field_faults(Settings(**sections), resolver.ledger.catalog())
    assert found.keys() == said.keys()
    assert [why for setting, why in found.items() if not why.startswith(said[setting])] == []


def test_nothing_is_wrong_with_fields_while_no_schema_is_known(tmp_path: Path, answers: Answers) -> None:
    assert field_faults(Settings(), Game(answers, tmp_path).lake.opened.resolver.ledger.catalog()) == {}
