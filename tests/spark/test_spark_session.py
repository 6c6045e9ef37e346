"""What the session must and must not show, and what the shell makes of the lake."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import java_gateway
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from scripts.local.artifacts import ROOT
from spark_app.app import shell
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.sources.kafka import spark_source
from spark_app.units.spark import jvm
from spark_app.units.spark.cluster import cause_of
from tests.spark.parts import Parts, events
from tests.support.answers import Answers
from tests.support.games import Game

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
CANARY = "canary-7f3a"
CHANGES = [
    "insert into silver_uno_events select * from silver_uno_events",
    "insert overwrite silver_uno_events select * from silver_rummy_events",
    "delete from silver_uno_events",
    "update silver_uno_events set gamer_id = 'x'",
    "truncate table silver_uno_events",
    "merge into silver_uno_events t using silver_rummy_events s on t._offset = s._offset when matched then delete",
]


def explained(spark: SparkSession, options: dict[str, str]) -> str:
    """Everything Spark says about a stream from Kafka; no broker is asked."""
    frame = spark.readStream.format("kafka").options(**options).option("subscribe", "t").load()
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        frame.explain(True)
    return shown.getvalue() + frame._jdf.queryExecution().toString()


def test_password_is_not_in_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(CANARY)
    kafka = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u", sasl_password_file=str(secret)
    )
    options = spark_source.jvm_options(kafka)
    assert CANARY in options["kafka.sasl.jaas.config"]
    text = explained(spark, options)
    assert "kafka.sasl.jaas.config" in text
    assert "redacted" in text
    assert CANARY not in text


def test_time_is_utc_and_there_is_no_ui(spark: SparkSession, spark_settings: Settings) -> None:
    assert spark_settings.spark.ui_port == 0
    assert spark.sparkContext.uiWebUrl is None
    moment = "select date_format(timestamp_seconds(0), 'yyyy-MM-dd HH:mm') as at, current_timezone() as zone"
    assert tuple(spark.sql(moment).collect()[0]) == ("1970-01-01 00:00", "UTC")


def test_workers_are_met_at_sockets_that_nobody_else_can_open(spark: SparkSession) -> None:
    folder = Path(os.environ["TMPDIR"])
    assert sum(spark.sparkContext.parallelize([1, 2], 2).map(lambda n: n + 1).collect()) == 5
    assert any(path.is_socket() for path in folder.iterdir())
    assert folder.stat().st_mode & 0o077 == 0


def test_workers_of_frames_and_of_rdds_come_from_one_process(spark: SparkSession) -> None:
    def parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (pa.RecordBatch.from_pydict({"pid": [os.getppid()]}) for _ in batches)

    by_frame = spark.range(0, 1, 1, 1).mapInArrow(parent, "pid long").collect()
    by_rdd = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()
    assert [row["pid"] for row in by_frame] == by_rdd


def test_what_a_task_lacks_besides_records_is_told_from_what_they_do(spark: SparkSession) -> None:
    for raised, known in ((ConfigurationError("silver.hmac_key_file: no key"), True), (ValueError("no key"), False)):

        def fail(batches: Iterator[pa.RecordBatch], error: Exception = raised) -> Iterator[pa.RecordBatch]:
            raise error
            yield from batches

        with pytest.raises(PySparkException) as caught:
            spark.range(0, 1, 1, 1).mapInArrow(fail, "id long").collect()
        cause = cause_of(caught.value)
        assert isinstance(cause, ConfigurationError) is known
        assert ("silver.hmac_key_file: no key" in str(cause)) is known


def test_tables_are_read_only_views_that_follow_the_lake(spark: SparkSession, new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, [("rummy", "a")]))
    assert shell.register(spark, parts.lake, parts.settings) == ["bronze_events", "silver_rummy_events"]
    assert spark.sql("select gamer_id from silver_rummy_events").toArrow()["gamer_id"].to_pylist() == ["a"]
    parts.learn(2)
    parts.take(events(2, [("rummy", "b"), ("uno", "c")]))
    assert shell.register(spark, parts.lake, parts.settings)[1:] == [
        "silver_rummy_events",
        "silver_uno_events",
    ]
    found = spark.sql("select gamer_id, col_custom_1 from silver_rummy_events order by 1").collect()
    assert [tuple(row) for row in found] == [("a", None), ("b", "a")]
    for change in CHANGES:
        with pytest.raises(PySparkException):
            spark.sql(change)
    assert parts.read("silver_uno_events")["gamer_id"].to_list() == ["c"]
    assert len(parts.committer.tables.get("silver_uno_events").history()) == 1


REFUSED = [
    *CHANGES,
    "drop table silver_uno_events",
    "drop view silver_uno_events",
    "create table x as select 1",
    "create or replace temporary view silver_uno_events as select 1",
    "alter table silver_uno_events add column x int",
    "vacuum silver_uno_events",
    "restore table silver_uno_events to version as of 0",
    "from silver_uno_events insert into silver_uno_events select *",
    "insert overwrite directory 'x' using csv select 1",
    "execute immediate 'drop table silver_uno_events'",
]
ANSWERED = [
    "select count(*) as n from silver_uno_events",
    "with a as (select * from silver_uno_events) select count(*) as n from a",
    "show tables",
    "describe silver_uno_events",
    "explain select * from silver_uno_events",
    "set spark.sql.session.timeZone",
]


def test_views_have_the_new_name_of_an_alias_too(spark: SparkSession, answers: Answers, tmp_path: Path) -> None:
    names = "score", "points", "total"
    versions = [f"int32 {name} = 3;" for name in names] + ["int32 total = 3; int32 points = 4;"]
    game = Game(answers, tmp_path, *versions, rename="alias")
    for version, name in enumerate(names[:2], 1):
        game.send(version, {name: version})
    shell.register(spark, game.lake.lake, game.lake.settings)
    rows = spark.sql("select score, points from silver_uno_events order by points").collect()
    assert [tuple(row) for row in rows] == [(1, 1), (2, 2)]
    game.send(3, {"total": 3})
    shell.register(spark, game.lake.lake, game.lake.settings)
    view = spark.sql("select * from silver_uno_events")
    assert {"score", "points", "total"} & set(view.columns) == {"score", "total"}
    assert sorted(row.total for row in view.collect()) == [1, 2, 3]
    game.send(4, {"total": 4, "points": 5})
    shell.register(spark, game.lake.lake, game.lake.settings)
    rows = spark.sql("select score, total, points from silver_uno_events where total > 2 order by total").collect()
    assert [tuple(row) for row in rows] == [(3, 3, None), (4, 4, 5)]


def test_statements_of_the_shell_only_read(spark: SparkSession, new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, [("uno", "a")]))
    shell.register(spark, parts.lake, parts.settings)
    sql = shell.ReadOnly(spark)
    for change in REFUSED:
        with pytest.raises(UsageError, match=r"this shell is read-only: .* was refused"):
            sql(change)
    for question in ANSWERED:
        assert sql(question).collect()
    assert sql("select {a} as a", a=1).collect()[0]["a"] == 1
    with pytest.raises(UsageError):
        sql("drop table {t}", t=spark.table("silver_uno_events"))
    assert sql("select gamer_id from silver_uno_events").collect()[0]["gamer_id"] == "a"


WRITES = """
import sys
import threading
from spark_app.app import shell
from spark_app.units.spark import jvm, session
from spark_app.model.errors import UsageError
from spark_app.settings.models import Settings
spark = session.start(Settings.model_validate_json(sys.argv[1]), quiet=True)
shell.make_read_only(spark)
rows = spark.range(1)
for write in (
    lambda: rows.write.format("delta").mode("append").save(sys.argv[2]),
    lambda: rows.writeTo("x").append(),
    lambda: spark.readStream.format("rate").load().writeStream.start(),
    lambda: rows.mergeInto("x", rows.id == 1),
):
    try:
        write()
    except UsageError as error:
        print(error)
print(rows.toArrow().num_rows)
jvm.end(clean=False)
"""


@pytest.mark.nightly
def test_a_dataframe_of_the_shell_writes_nothing(spark_settings: Settings, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES, spark_settings.model_dump_json(), str(tmp_path / "table")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    refusal = "this shell is read-only: export rows with .toArrow() or .toPandas()"
    assert done.stdout.splitlines() == [*[refusal] * 4, "1"]
    assert not (tmp_path / "table").exists()


def test_a_mistyped_name_is_an_error_and_nothing_else(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnalysisException, match="nothere"):
        shell.ReadOnly(spark)("select * from nothere")
    with pytest.raises(PySparkException):
        spark.range(1).select("nothere").collect()
    assert capfd.readouterr().err == ""


def test_a_line_of_the_jvm_is_logfmt_without_signs_of_control(spark: SparkSession, spark_settings: Settings) -> None:
    code = f"""
from spark_app.units.spark import jvm, session
from spark_app.settings.models import Settings
spark = session.start(Settings.model_validate_json({spark_settings.model_dump_json()!r}))
java = spark.sparkContext._jvm
log = java.org.apache.logging.log4j.LogManager.getLogger("a.b.C")
hostile = "said\\r\\n12:00:00.000 ERROR fake \\x1b[2J\\u202eevil\\u2028\\0end"
log.warn('of "two"\\nlines')
log.error("with a cause", java.java.lang.RuntimeException("a=b"))
log.error(hostile)
log.error("failed", java.java.lang.Exception(hostile))
jvm.end(clean=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    moments, lines = zip(*(line.split(" ", 1) for line in done.stderr.splitlines()), strict=True)
    assert all(re.fullmatch(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment) for moment in moments)
    words = r"said\r\n12:00:00.000 ERROR fake \u001B[2J evil \u0000end"
    assert lines == (
        r'level=WARNING event=spark logger=C reason="of \"two\"\nlines"',
        'level=ERROR event=spark logger=C reason="with a cause" error="a=b"',
        f'level=ERROR event=spark logger=C reason="{words}"',
        f'level=ERROR event=spark logger=C reason="failed" error="{words}"',
    )


KILLED_AT_ONCE = """#!/bin/sh
if [ ! -e {flag} ]; then touch {flag}; kill -9 $$; fi
exec {java} "$@"
"""
KILLED_WHEN_CONNECTED = """#!/bin/sh
case "$*" in *launcher.Main*) exec {java} "$@" ;; esac
if [ -e {flag} ]; then exec {java} "$@"; fi
touch {flag}
exec 3<&0
{java} "$@" <&3 &
while [ ! -e "$_PYSPARK_DRIVER_CONN_INFO_PATH" ]; do sleep 0.02; done
sleep 0.5
kill -9 $!
sleep 0.5
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux shows which signals a process ignores")
def test_the_jvm_ignores_ctrl_c_and_no_python_runs_in_its_fork(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = Path(f"/proc/{jvm.jvm_pid()}/status").read_text()
    ignored = int(re.findall(r"SigIgn:\s*(\w+)", status)[0], 16)
    assert ignored & 1 << (signal.SIGINT - 1)
    given: dict[str, object] = {}
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: given.update(how))
    java_gateway.Popen(["true"], preexec_fn=lambda: None, stdin=subprocess.PIPE)
    assert given == {"stdin": subprocess.PIPE}


@pytest.mark.nightly
@pytest.mark.parametrize("script", [KILLED_AT_ONCE, KILLED_WHEN_CONNECTED])
def test_a_jvm_that_is_killed_while_it_starts_is_started_again(
    spark_settings: Settings, tmp_path: Path, script: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    real = shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) or shutil.which("java")
    java.write_text(script.format(flag=tmp_path / "killed", java=real))
    java.chmod(0o755)
    code = f"""
from spark_app.units.spark import jvm, session
from spark_app.settings.models import Settings
spark = session.start(Settings.model_validate_json({spark_settings.model_dump_json()!r}))
print(spark.range(3).count())
jvm.end(clean=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"JAVA_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.stdout, (tmp_path / "killed").exists()) == ("3\n", True), done.stderr


@pytest.mark.parametrize(
    ("script", "error", "reason"),
    [
        ("kill -9 $$", "BrokenError", "Spark's JVM ended twice while it started"),
        ("exit 1", "BrokenError", "Spark's JVM ended twice while it started"),
        ("", "ConfigurationError", "-version ends with 1"),
        (None, "ConfigurationError", "there is no java at JAVA_HOME="),
        ("old", "ConfigurationError", "is Java 11: install Java 17 or newer"),
    ],
)
def test_only_a_java_that_cannot_run_is_a_matter_of_settings(
    spark_settings: Settings, tmp_path: Path, script: str | None, error: str, reason: str
) -> None:
    """A JVM that was killed, twice in one start, leaves the restart policy something to do."""
    if script is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        versions = {"": "exit 1", "old": "echo 'openjdk version \"11.0.2\"'; exit"}
        version = versions.get(script, "echo 'version \"17\"'; exit")
        java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {version}; fi\n{script}\nexit 1\n')
        java.chmod(0o755)
    code = f"""
from spark_app.units.spark import session
from spark_app.settings.models import Settings
session.start(Settings.model_validate_json({spark_settings.model_dump_json()!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"JAVA_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert f".{error}: " in done.stderr
    assert reason in done.stderr


def test_a_session_has_the_name_of_its_command(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "tests"


def test_rows_that_workers_read_by_themselves_are_in_the_progress_of_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's listeners and its UI have them from there."""
    done = threading.Event()

    def take(_: DataFrame, batch: int) -> None:
        jvm.count_rows(spark, 7 + batch)
        if batch == 2:
            done.set()

    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = ticks.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    assert done.wait(60)
    query.stop()
    reports = query.recentProgress
    assert [report["numInputRows"] for report in reports][:2] == [7, 8]
    assert reports[1]["processedRowsPerSecond"] > 0
