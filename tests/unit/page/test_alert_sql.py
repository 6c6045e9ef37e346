"""Checks of alerts by SQL see the tables that they name and nothing else, and what cannot be judged ends the start."""

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode
from spark_app.page.alerts.alarm import Alarm, SqlChecks, run_sql
from spark_app.page.files import PageFiles
from spark_app.settings.models import Settings
from spark_app.settings.watching import AlertRule, Alerts
from tests.support.statuses import write_status


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"when": "age > 60"}, "alerts.rules.x.when: there is no age; did you mean age_s"),
        ({"when": "silent_s('unoo') > 60"}, "alerts.rules.x.when: there is no table unoo; did you mean uno"),
        (
            {"when": "failure_rate('sane') > 0.1"},
            "alerts.rules.x.when: there is no expectation sane; did you mean sane_time",
        ),
        ({"when": "quarantine_of('x') > 1"}, "alerts.rules.x.when: there is no cause x"),
        ({"sql": "select 1"}, "alerts.rules.x.sql: it must give one column, true or false"),
        ({"sql": "select count(*) > 0 from gold_uno_agg where nope = 1"}, "alerts.rules.x.sql: Binder Error"),
        ({"sql": "drop table gold_uno_agg"}, "alerts.rules.x.sql: it is not one SELECT"),
    ],
)
def test_a_condition_that_cannot_be_judged_ends_the_start(lake: Lake, rule: dict[str, Any], says: str) -> None:
    write_status(lake, at=time.time())
    lake.storage.replace(lake.admitted, json.dumps({"names": {"uno": "uno"}, "messages": {}}).encode())
    gold(lake, [1])
    files = PageFiles(lake)
    settings = Settings(alerts=Alerts(rules={"x": AlertRule(**rule)}))
    with pytest.raises(ConfigurationError) as caught:
        Alarm(lake, settings, files, lambda: "lake-1")
    assert str(caught.value).startswith(says)
    assert caught.value.exit_code == ExitCode.CONFIGURATION


def gold(lake: Lake, counts: list[int], **more: list[Any]) -> None:
    table = pa.table({"session_count": pa.array(counts, pa.int64())} | more)
    write_deltalake(lake.storage.uri("gold_uno_agg"), table, mode="append", schema_mode="merge")


MANY = "select count(*) > 0 from gold_uno_agg where session_count > 100"


def test_sql_sees_the_current_files_of_the_tables_that_it_names(lake: Lake) -> None:
    assert run_sql(lake, MANY) == {"failed": "the lake has no tables yet"}
    gold(lake, [])
    assert run_sql(lake, MANY) == {"holds": False}
    gold(lake, [1, 101], added=["x", "y"])
    assert run_sql(lake, MANY) == {"holds": True}
    assert run_sql(lake, "select count(added) = 2 from gold_uno_agg") == {"holds": True}
    most = "with many as (select * from gold_uno_agg) select max(session_count) = 101 from many"
    assert run_sql(lake, most) == {"holds": True}
    write_deltalake(
        lake.storage.uri("gold_uno_agg"), pa.table({"session_count": [5], "added": ["z"]}), mode="overwrite"
    )
    assert run_sql(lake, MANY) == {"holds": False}
    assert run_sql(lake, "select session_count > 1 from gold_uno_agg where false") == {"holds": None}
    assert run_sql(lake, "select null::boolean from gold_uno_agg") == {"holds": None}
    gold(lake, [6])
    assert run_sql(lake, "select session_count > 1 from gold_uno_agg") == {"failed": "it gives more than one row"}


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) > 0 from read_text('/etc/hostname')",
        "select count(*) > 0 from read_parquet('{lake}/silver_secret/*.parquet')",
        "select count(*) > 0 from '/etc/hostname'",
        "select count(*) > 0 from gold_uno_agg, read_csv('http://127.0.0.1:1/x')",
        "select getenv('HOME') = 'x'",
        "copy (select true) to '{lake}/x.csv'",
        "set enable_external_access = true",
        "select true; select true",
        "attach '{lake}/x.db'",
        "",
    ],
)
def test_sql_reaches_nothing_else(lake: Lake, sql: str) -> None:
    gold(lake, [1])
    before = sorted(lake.root.rglob("*"))
    assert "refused" in run_sql(lake, sql.replace("{lake}", str(lake.root)))
    assert sorted(lake.root.rglob("*")) == before


def test_a_table_that_is_not_there_yet_is_waited_for(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    gold(lake, [1])
    sql = "select count(*) > 0 from gold_dos_agg"
    checks = SqlChecks(lake, {"x": AlertRule(sql=sql, every_s=1)})
    Alarm(lake, Settings(alerts=Alerts(rules={"x": AlertRule(sql=sql)})), PageFiles(lake), lambda: "lake-1")
    checks.step(1.0)
    checks.step(2.0)
    assert checks.holds("x") is None
    assert capsys.readouterr().err.count("there is no table gold_dos_agg; did you mean gold_uno_agg") == 1
    write_deltalake(lake.storage.uri("gold_dos_agg"), pa.table({"session_count": [5]}))
    checks.step(3.0)
    assert checks.holds("x") is True


def test_sql_that_takes_too_long_is_ended_and_unknown(lake: Lake) -> None:
    gold(lake, [1])
    endless = "select count(*) > 0 from range(1000000000000) a(i), gold_uno_agg where i % 7 = 8"
    began = time.monotonic()
    assert run_sql(lake, endless, within_s=2.0) == {"failed": "it takes more than 2 s"}
    assert time.monotonic() - began < 60


def test_checks_run_when_they_are_due_and_one_that_fails_is_unknown(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[dict[str, Any]] = [{"holds": True}, {"failed": "no memory"}, {"holds": False}]
    checks = SqlChecks(lake, {"x": AlertRule(sql=MANY, every_s=10)}, lambda *_: answers.pop(0))
    assert checks.holds("x") is None
    assert checks.step(1.0) == 11.0
    assert checks.holds("x") is True
    assert checks.step(10.0) == 11.0
    checks.step(11.0)
    assert checks.holds("x") is None
    assert "no memory" in capsys.readouterr().err
    checks.step(21.0)
    assert checks.holds("x") is False
