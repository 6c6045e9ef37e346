"""The view Query: what SQL may do, what it may not, and how its values reach a browser."""

from __future__ import annotations

import datetime
import json
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import ArrayType, PrimitiveType

from spark_app.model.table_names import TableNames
from spark_app.page.format import LONGEST, json_value
from spark_app.page.job import do
from spark_app.page.queries.child_process import CANCELLED, Child
from spark_app.page.views.query.jobs import MOST_BYTES, MOST_ROWS
from spark_app.page.views.query.view import chart_of, examples, form_of, spelled
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, MASKED, POKER, UNO, event, key_file, lake_of

CHILD = "spark_app.page.job"
SECRET = "Okapi"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Ten rows of uno with latencies 0 to 9, and one record in quarantine."""
    lake = SmallLake(tmp_path_factory.mktemp("query") / "lake", EVENTS)
    sent = [event("uno", f"g{n}", latency_ms=n, large=(1 << 60) + n, ssn=SECRET) for n in range(10)]
    lake.take(batch_of([*sent, b"no frame"]))
    return lake


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """The same with projections, which conceal what bronze and quarantine have."""
    masked = lake_of(tmp_path_factory.mktemp("masked") / "lake", MASKED)
    masked.take(batch_of([event("uno", "g", ssn=SECRET), b"no frame"]))
    return masked


def question(lake: SmallLake, sql: str) -> dict[str, Any]:
    return {"job": "query", "arguments": {"sql": sql}, "settings": lake.settings.model_dump_json()}


def ask(lake: SmallLake, sql: str) -> dict[str, Any]:
    """The answer, as JSON hands it on."""
    found: dict[str, Any] = json.loads(json.dumps(do(question(lake, sql)), allow_nan=False))
    return found


def rows(lake: SmallLake, sql: str) -> list[list[Any]]:
    answer = ask(lake, sql)
    assert "failed" not in answer, answer
    found: list[list[Any]] = answer["rows"]
    return found


def why(lake: SmallLake, sql: str) -> str:
    return str(ask(lake, sql)["failed"])


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT gamer_id, latency_ms FROM {UNO} WHERE latency_ms > 7 ORDER BY 1",
        f'FROM main."{UNO}" SELECT gamer_id, latency_ms WHERE latency_ms > 7 ORDER BY 1',
        f"SELECT a.gamer_id, b.latency_ms FROM {UNO} a JOIN {UNO} b USING (gamer_id) WHERE a.latency_ms > 7 ORDER BY 1",
        f"WITH {UNO} AS (SELECT * FROM {UNO} WHERE latency_ms > 7) SELECT gamer_id, latency_ms FROM {UNO} ORDER BY 1",
        f"SELECT COLUMNS('^gamer_id$'), COLUMNS('latency') FROM {UNO.upper()} WHERE latency_ms > 7 ORDER BY 1;",
        f"SELECT gamer_id, latency_ms FROM (UNPIVOT {UNO} ON latency_ms INTO NAME n VALUE latency_ms) "
        "WHERE latency_ms > 7 ORDER BY 1",
    ],
)
def test_a_select_reads_the_tables_that_it_names(lake: SmallLake, sql: str) -> None:
    assert rows(lake, sql) == [["g8", 8], ["g9", 9]]


def test_columns_that_no_row_has_yet_are_null(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake", EVENTS)
    lake.take(batch_of([event("uno", "g", latency_ms=3)]))
    fields = [Field("added", PrimitiveType("integer")), Field('in "quotes"', ArrayType(PrimitiveType("string")))]
    DeltaTable(str(lake.lake.path(UNO))).alter.add_columns(fields)
    answer = ask(lake, f'SELECT latency_ms, added, "in ""quotes""" FROM {UNO} WHERE added IS NULL')
    assert answer["rows"] == [[3, None, None]]
    assert [one["type"] for one in answer["columns"]] == ["BIGINT", "INTEGER", "VARCHAR[]"]


def test_values_reach_a_browser_unchanged(lake: SmallLake) -> None:
    answer = ask(
        lake,
        "SELECT 1 AS a, 2 AS a, 9007199254740993::BIGINT, 1.50::DECIMAL(9, 2), 'nan'::DOUBLE, '-inf'::FLOAT, NULL, "
        "'\\x00\\xAB'::BLOB, TIMESTAMPTZ '2026-01-02 03:04:05.678901+02', DATE '2026-01-02', [1, NULL], "
        "{'x': 'nan'::DOUBLE, 'y': '<script>'}, true, MAP {1: DATE '2026-01-02'}, '290000-01-01'::TIMESTAMP",
    )
    assert [one["name"] for one in answer["columns"]][:2] == ["a", "a"]
    assert answer["rows"] == [
        [
            1,
            2,
            "9007199254740993",
            "1.50",
            "NaN",
            "-Infinity",
            None,
            "00ab",
            "2026-01-02T01:04:05.678901+00:00",
            "2026-01-02",
            "[1, null]",
            '{"x": "NaN", "y": "<script>"}',
            True,
            '{"1": "2026-01-02"}',
            "290000-01-01 00:00:00",
        ]
    ]
    assert rows(lake, f"SELECT max(large) FROM {UNO}") == [[str((1 << 60) + 9)]]
    assert rows(lake, "SELECT 1 WHERE false") == []
    assert rows(lake, "SELECT ''") == [[""]]


def test_long_values_are_cut() -> None:
    assert json_value("x" * (LONGEST + 1)) == "x" * LONGEST + "…"
    assert json_value(b"\xff" * LONGEST) == "f" * LONGEST + "…"
    assert json_value(b"\xff" * (LONGEST // 2)) == "f" * LONGEST
    assert len(json_value(["x" * LONGEST])) == LONGEST + 1


def test_an_answer_has_so_many_rows_and_bytes(lake: SmallLake) -> None:
    answer = ask(lake, "SELECT * FROM range(1000000000000)")
    assert (len(answer["rows"]), answer["cut"]) == (MOST_ROWS, "These are the first 1,000 rows.")
    assert ask(lake, f"SELECT * FROM range({MOST_ROWS})")["cut"] == ""
    wide = ", ".join(f"repeat('x', {LONGEST}) AS c{n}" for n in range(100))
    answer = ask(lake, f"SELECT {wide} FROM range(1000)")
    assert "more would be over 4 MiB" in answer["cut"]
    assert len(json.dumps(answer)) < 1.1 * MOST_BYTES
    assert "at most 500" in why(lake, f"SELECT {', '.join(map(str, range(501)))}")


def test_errors_are_in_the_words_of_duckdb(lake: SmallLake) -> None:
    assert why(lake, "SELECT\n FROM FROM").startswith("Parser Error")
    assert "LINE 1: SELECT nope" in why(lake, f"SELECT nope FROM {UNO}")
    assert "Could not convert string 'x'" in why(lake, f"SELECT 1 FROM {UNO} WHERE latency_ms = 'x'")
    assert why(lake, "SELECT * FROM silver_un_events").startswith(
        f"there is no table silver_un_events; did you mean {UNO}"
    )
    assert "nested" in why(lake, f"SELECT {'NOT ' * 900}true")


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{place}/new'",
        "ATTACH '{place}/new' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA version",
        "SET memory_limit = '90GB'",
        "RESET memory_limit",
        "CALL force_checkpoint()",
        "EXPORT DATABASE '{place}/new'",
        "CREATE TABLE x AS SELECT 1",
        "PREPARE x AS SELECT 1",
        "EXPLAIN ANALYZE SELECT 1",
        "INSERT INTO {uno} SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO '{place}/new'",
        "",
        "-- nothing",
    ],
)
def test_what_is_no_select_is_refused(lake: SmallLake, tmp_path: Path, sql: str) -> None:
    assert why(lake, sql.format(place=tmp_path, uno=UNO)) == "it is not one SELECT"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM {uno}, read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_parquet('{bronze}')",
        "SELECT * FROM parquet_metadata('{bronze}')",
        "SELECT * FROM '{bronze}'",
        'SELECT * FROM "{file}"',
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM read_json_auto('{file}')",
        "SELECT * FROM read_duckdb('{file}')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
        "SELECT * FROM read_csv('/dev/stdin')",
        "SELECT * FROM delta_scan('{folder}')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_extensions()",
        "SELECT value FROM DuckDB_Settings()",
        "SELECT sql FROM duckdb_views()",
        "SELECT (SELECT current_setting('allowed_paths')) FROM {uno}",
        "SELECT * FROM query('FROM bronze_events')",
        "SELECT * FROM query('FROM read_text(''{file}'')')",
        "SELECT * FROM query_table('bronze_events')",
        "SELECT * FROM pragma_table_info('bronze_events')",
    ],
)
def test_nothing_else_can_be_read(lake: SmallLake, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET},1\n")
    [bronze] = (lake.lake.root / "bronze_events").glob("*.parquet")
    said = why(lake, sql.format(file=file, folder=tmp_path, bronze=bronze, uno=UNO))
    assert SECRET not in said
    refused = ("permission error", "catalog error", "there is no table", "an error occurred", "duckdb_", "current_")
    assert said.casefold().startswith(refused)
    assert "file system operations are disabled" in said or not said.startswith("An error occurred")


def test_no_function_is_bound_before_everything_is_locked(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To look for the tables of a statement must not open what the statement names."""
    monkeypatch.setenv("HOME", str(tmp_path))
    began = time.monotonic()
    said = why(lake, f"SELECT * FROM {UNO}, read_csv('http://192.0.2.1/x.csv')")
    assert said.startswith("Permission Error")
    assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM bronze_events",
        'SELECT (SELECT count(*) FROM main."BRONZE_EVENTS")',
        f"SELECT 1 FROM {UNO} WHERE EXISTS (FROM bronze_events)",
        "WITH bronze_events AS (SELECT 1) SELECT * FROM memory.main.bronze_events",
        "WITH x AS (SELECT value FROM bronze_events) SELECT * FROM x",
        "DESCRIBE bronze_events",
        "SUMMARIZE bronze_events",
        "TABLE bronze_events",
        f"SELECT * FROM {UNO} UNION ALL BY NAME FROM quarantine_events",
    ],
)
def test_hidden_tables_are_refused(lake: SmallLake, masked: SmallLake, sql: str) -> None:
    assert "page.clear_text = true shows them" in why(masked, sql)
    assert "failed" not in ask(lake, sql)
    assert "failed" not in ask(masked, f"FROM {UNO}")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 300000000) FROM range(50)",
        "SELECT list(range) FROM range(100000000)",
        "SELECT list_value(repeat('x', 900000000), repeat('x', 900000000), repeat('x', 900000000))",
    ],
)
def test_memory_is_limited(lake: SmallLake, sql: str) -> None:
    answer = Child().run(CHILD, question(lake, sql), 60)
    assert "Memory Error" in answer["failed"] or "ended without an answer" in answer["failed"]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT max(a) FROM t",
        "SELECT count(*) FROM range(1000000000) a, range(100000) b WHERE a.range * b.range % 7919 = 1",
    ],
)
def test_endless_queries_end_in_time(lake: SmallLake, sql: str) -> None:
    began = time.monotonic()
    assert Child().run(CHILD, question(lake, sql), 4) == {"failed": "it takes more than 4 s"}
    assert time.monotonic() - began < 60


def test_a_query_can_be_cancelled(lake: SmallLake) -> None:
    child, began = Child(), time.monotonic()
    threading.Timer(2, child.end).start()
    sql = "SELECT count(*) FROM range(1000000000) a, range(100000) b WHERE a.range * b.range % 7919 = 1"
    assert child.run(CHILD, question(lake, sql), 600) == {"failed": CANCELLED}
    assert time.monotonic() - began < 120
    assert child.run(CHILD, question(lake, "SELECT 1"), 60) == {"failed": CANCELLED}


def test_the_process_of_a_job_has_limits(tmp_path: Path) -> None:
    code = """
import resource
from spark_app.page.queries.child_process import serve_requests
def answer(asked):
    first = open("/proc/self/oom_score_adj").read()
    return {"limits": [resource.getrlimit(one)[1] for one in asked["of"]], "first": first}
serve_requests(answer)
"""
    (tmp_path / "limited.py").write_text(code)
    of = [resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_DATA]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "limited.py")],
        input=json.dumps({"of": of}),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        check=True,
    )
    assert json.loads(done.stdout) == {"limits": [0, 60, 1 << 30], "first": "1000\n"}


def test_a_damaged_table_is_reported(lake: SmallLake, tmp_path: Path) -> None:
    other = SmallLake(tmp_path / "lake", EVENTS)
    other.take(batch_of([event("uno", "g")]))
    for path in (tmp_path / "lake" / UNO).glob("*.parquet"):
        path.unlink()
    said = why(other, f"FROM {UNO}")
    assert "No files found" in said or "No such file" in said or "Cannot access file" in said
    assert str(other.lake.root) not in said


AT = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def test_a_chart_has_time_or_names_along_its_x_axis() -> None:
    columns = [{"name": "at", "kind": "time"}, {"name": "n", "kind": "number"}, {"name": "n", "kind": "number"}]
    points: list[list[Any]] = [
        ["2026-01-02T00:01:00+00:00", "1.5", None],
        ["2026-01-02T00:00:00", 2, "NaN"],
        [None, 9, 9],
    ]
    options = chart_of(columns, points, "lines")
    assert options is not None
    at = AT.timestamp() * 1000
    assert [(one["name"], one["type"], one["data"]) for one in options["series"]] == [
        ("n", "line", [[at, 2.0], [at + 60_000, 1.5]]),
        ("n (2)", "line", [[at, None], [at + 60_000, None]]),
    ]
    columns[0]["kind"] = "other"
    options = chart_of(columns, [["uno", 1, 2], [None, 3, 4]], "bars")
    assert options is not None
    assert options["xAxis"]["data"] == ["uno", "NULL"]
    assert [one["data"] for one in options["series"]] == [[1.0, 3.0], [2.0, 4.0]]
    assert chart_of(columns[:1], [["uno"], ["poker"]], "bars") is None
    assert chart_of(columns, points[:1], "bars") is None
    assert [form_of([{"name": "", "kind": kind}]) for kind in ("time", "number", "other")] == ["lines", "lines", "bars"]


def test_the_examples_run(lake: SmallLake) -> None:
    found = {name: rows(lake, sql) for name, sql in examples(lake.lake.tables(), TableNames()).items()}
    [[table, count, _]] = found.pop("Rows of all tables")
    assert (table, count) == ("uno", 10)
    assert found == {"Rows per minute": [[datetime_of(lake), 10]]}
    assert examples([], TableNames()) == {}
    assert [spelled(name) for name in ("silver_uno_events", "Silver", 'a"b')] == [
        "silver_uno_events",
        '"Silver"',
        '"a""b"',
    ]


def datetime_of(lake: SmallLake) -> str:
    """The minute in which the rows landed."""
    [[landed]] = rows(lake, f"SELECT max(_landed_at) FROM {UNO}")
    return datetime.datetime.fromisoformat(landed).replace(second=0, microsecond=0).isoformat()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Of two games; ann may not see poker, nor what is made of ssn."""
    users = {"ann": {"token_file": "/t", "tables": ["silver_uno_*", "quarantine_*", "gold_*"], "hide": ["ssn"]}}
    users["zoe"] = {"token_file": "/t2", "tables": ["x"]}
    root = tmp_path_factory.mktemp("shared")
    silver = {"columns": {"short": "left(ssn, 3)"}, "hmac_key_file": key_file(root / "secrets")}
    lake = SmallLake(root / "lake", EVENTS, users=users, silver=silver)
    lake.units.check_expectations()
    sent = [event(game, f"g{n}", latency_ms=n, ssn=SECRET) for n, game in enumerate(("uno", "poker", "uno"))]
    lake.take(batch_of([*sent, b"no frame"]))
    return lake


def ask_as(lake: SmallLake, user: str, sql: str, job: str = "query") -> dict[str, Any]:
    arguments = {"user": user} | ({"sql": sql} if job == "query" else {})
    return do({"job": job, "arguments": arguments, "settings": lake.settings.model_dump_json()})


def test_a_user_sees_the_own_tables_and_columns(shared: SmallLake) -> None:
    assert ask_as(shared, "ann", "", "seen_tables") == {"tables": [UNO]}
    found = ask_as(shared, "ann", f"SELECT * FROM {UNO} ORDER BY _offset")
    names = [one["name"] for one in found["columns"]]
    assert "gamer_id" in names
    assert not {"ssn", "short"} & set(names)
    assert ask_as(shared, "ann", "SELECT _table, count(*) FROM silver_all GROUP BY ALL")["rows"] == [["uno", 2]]
    assert SECRET[:3] not in json.dumps(found)
    assert ask_as(shared, "zoe", "", "seen_tables") == {"tables": []}
    assert "there is no table" in ask_as(shared, "zoe", "SELECT 1")["failed"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT ssn FROM {UNO}",
        f"SELECT SHORT FROM {UNO}",
        f"SELECT {UNO}.ssn FROM {UNO}",
        f"SELECT COLUMNS('ss.*') FROM {UNO}",
        f"SELECT filename FROM {UNO}",
        f"SELECT * FROM {POKER}",
        "SELECT * FROM quarantine_events",
        "SELECT * FROM bronze_events",
        f"SELECT * FROM main.{POKER}",
        f"SELECT * FROM read_parquet('{UNO}/*.parquet')",
        f"SELECT * FROM '{UNO}/part.parquet'",
        f"SELECT * FROM parquet_scan('{UNO}')",
        f"SELECT * FROM query_table('{POKER}')",
        f"SELECT * FROM query('SELECT ssn FROM {UNO}')",
        "SELECT * FROM glob('*')",
        f"SELECT * FROM pragma_table_info('{UNO}')",
        f"SELECT * FROM {UNO}, LATERAL (SELECT * FROM read_text('/etc/passwd'))",
        f"SELECT (SELECT max(ssn) FROM {UNO})",
        f"WITH a AS (FROM {POKER}) SELECT * FROM a",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM duckdb_tables()",
        "SELECT current_setting('allowed_paths')",
        f"PIVOT {UNO} ON ssn",
        f"SELECT v.sql FROM sqlite_master v, (WITH sqlite_master AS (SELECT 1) SELECT 1 FROM {UNO})",
        f"SELECT v.sql FROM duckdb_views v, (WITH duckdb_views AS (SELECT 1) SELECT 1 FROM {UNO})",
        f"SELECT * FROM pg_views v, (WITH pg_views AS (SELECT 1) SELECT 1 FROM {UNO})",
        f"""SELECT f.* FROM '/p.parquet' f, (WITH "/p.parquet" AS (SELECT 1) SELECT 1 FROM {UNO})""",
        """WITH "/p.parquet" AS (SELECT * FROM '/p.parquet') SELECT * FROM "/p.parquet" """,
        "SELECT * FROM main.sqlite_master",
        f"DESCRIBE {POKER}",
        f"SUMMARIZE {POKER}",
        f"SELECT CAST(gamer_id AS INTEGER) FROM {UNO}",
        "x" * 10,
    ],
)
def test_a_user_gets_to_nothing_else(shared: SmallLake, sql: str) -> None:
    found = ask_as(shared, "ann", sql)
    said = json.dumps(found)
    assert "failed" in found, sql
    assert SECRET not in said
    assert "part-0" not in said
    assert not re.search("g[0-9]", said)  # values


def test_described_tables_have_the_columns_that_are_seen(shared: SmallLake) -> None:
    assert ask_as(shared, "ann", "SHOW ALL TABLES")["rows"] == []
    for sql in (f"DESCRIBE {UNO}", f"SUMMARIZE {UNO}", f"SELECT * FROM (SUMMARIZE {UNO})", f"SHOW {UNO}"):
        found = ask_as(shared, "ann", sql)
        assert SECRET not in json.dumps(found)
        assert "short" not in json.dumps(found), sql
