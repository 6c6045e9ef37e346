"""The sink `postgres` at a real PostgreSQL."""

from __future__ import annotations

import datetime
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from spark_app.followers.sinks import postgres as module
from spark_app.followers.sinks.ledger import Ledger
from spark_app.followers.sinks.postgres import PostgresSink
from spark_app.followers.sinks.process import SinkProcess
from spark_app.followers.sinks.sink import DELETE, OPERATION, UPSERT, Call, Outcome
from spark_app.model.errors import ConfigurationError
from tests.support.event_lakes import take
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.support.postgres import PASSWORD, Database, PostgresServer
from tests.support.projections import EVENTS, GROWN, event

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
UTC = datetime.UTC
FIRST, LAST = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
HOME = pa.struct([("city", pa.string()), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())])
# Column -> its types of Arrow and of PostgreSQL, and values.
GIVEN: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "i8": (pa.int8(), "smallint", [-128, 127]),
    "i16": (pa.int16(), "smallint", [-(1 << 15), (1 << 15) - 1]),
    "i32": (pa.int32(), "integer", [-(1 << 31), (1 << 31) - 1]),
    "i64": (pa.int64(), "bigint", [-(1 << 63), (1 << 63) - 1]),
    "u8": (pa.uint8(), "smallint", [0, 255]),
    "u16": (pa.uint16(), "integer", [0, 65535]),
    "u32": (pa.uint32(), "bigint", [0, (1 << 32) - 1]),
    "u64": (pa.uint64(), "numeric(20,0)", [0, (1 << 64) - 1]),
    "f32": (pa.float32(), "real", [0.5, -math.inf]),
    "f64": (pa.float64(), "double precision", [math.inf, 5e-324]),
    "amount": (pa.decimal128(38, 10), "numeric(38,10)", [Decimal("-1E-7"), Decimal("9" * 28)]),
    "large": (pa.decimal128(20, 0), "numeric(20,0)", [Decimal((1 << 64) - 1), Decimal(-1)]),
    "text": (pa.string(), "text", ["\\N", "a\t\n\r\\b ä€😀"]),
    "raw": (pa.binary(), "bytea", [b"", bytes(range(256))]),
    "flag": (pa.bool_(), "boolean", [True, False]),
    "at": (pa.timestamp("us", "UTC"), "timestamp with time zone", [FIRST.replace(tzinfo=UTC), MOMENT]),
    "local": (pa.timestamp("us"), "timestamp without time zone", [FIRST, LAST]),
    "day": (pa.date32(), "date", [FIRST.date(), LAST.date()]),
    "hour": (pa.time64("us"), "time without time zone", [FIRST.time(), LAST.time()]),
    "numbers": (pa.list_(pa.uint64()), "jsonb", [[], [(1 << 64) - 1, None]]),
    "home": (HOME, "jsonb", [{"city": "Köln\n\\", "at": MOMENT, "raw": b"\xff"}, {}]),
    "scores": (pa.map_(pa.string(), pa.float64()), "jsonb", [{"a": 0.5}, {"b": math.nan}]),
}
IN_JSON: dict[str, list[Any]] = {
    "home": [
        {"city": "Köln\n\\", "at": "2024-02-29T23:59:59.999999Z", "raw": "/w=="},
        {"city": None, "at": None, "raw": None},
    ],
    "scores": [{"a": 0.5}, {"b": None}],
}
STRINGS = ["", "plain", "\\N", "\\", "a\tb", "a\nb\r\nc", "'\";--", "ä€😀", "\x01\x7f", "\\\\x41", "\\.", "{}%s", " x "]


@pytest.fixture
def database(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> Database:
    return Database(server, re.sub(r"\W+", "_", request.node.name).lower()[:60], tmp_path)


@pytest.fixture
def sink(database: Database) -> Iterator[PostgresSink]:
    sink = database.sink()
    sink.open({})
    yield sink
    sink.close()


def call(rows: pa.Table | dict[str, Any], key: str = "k1", **values: Any) -> Call:
    return Call(key, "people", "rummy", rows if isinstance(rows, pa.Table) else pa.table(rows), **values)


def send(sink: PostgresSink, *calls: Call) -> list[Outcome]:
    return list(sink.send(calls))


def results(sink: PostgresSink, *calls: Call) -> list[str]:
    return [outcome.result for outcome in sink.send(calls)]


def changes(*rows: tuple[str, Any, Any, Any], **values: Any) -> Call:
    """Of (operation, the columns a and b of the key, value)."""
    names = [OPERATION, "a", "b", "value"]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    kinds = [pa.string(), pa.int64(), pa.string(), pa.string()]
    table = pa.table(columns, schema=pa.schema(list(zip(names, kinds, strict=True))))
    return call(table, **{"names": ("a", "b"), **values})


def test_each_type_has_its_column_and_keeps_its_values(database: Database, sink: PostgresSink) -> None:
    kinds = pa.schema([("n", pa.int32()), *((name, kind) for name, (kind, _, _) in GIVEN.items())])
    columns = {"n": [0, 1, 2]} | {name: [*values, None] for name, (_, _, values) in GIVEN.items()}
    assert results(sink, call(pa.table(columns, schema=kinds))) == ["accepted"]
    assert database.types("people") == {"n": "integer"} | {name: kind for name, (_, kind, _) in GIVEN.items()}
    for name, (_, _, values) in GIVEN.items():
        found = [one for (one,) in database.rows("people", name, "n")]
        assert found == [*IN_JSON.get(name, values), None], name


def test_nan_and_strange_strings_arrive(database: Database, sink: PostgresSink) -> None:
    numbers = pa.table({"n": [1, 2], "x": [math.nan, -0.0], "y": pa.array([math.nan, 0.0], pa.float32())})
    texts = pa.table({"n": range(len(STRINGS)), "text": STRINGS})
    strange = 'a "col\\umn" {0} %s ä'
    assert results(sink, call(numbers)) == ["accepted"]
    (first, second) = database.rows("people")
    assert math.isnan(first[1])
    assert math.isnan(first[2])
    assert math.copysign(1, second[1]) == -1
    assert results(sink, Call("k2", strange, "", texts.rename_columns(["n", strange]))) == ["accepted"]
    found = database.run(f'SELECT * FROM {{schema}}."{strange.replace(chr(34), chr(34) * 2).replace("{0}", "{{0}}")}"')
    assert sorted(found) == list(enumerate(STRINGS))


def test_a_call_that_is_repeated_gives_its_rows_once(database: Database, sink: PostgresSink) -> None:
    other = database.sink()
    one = call({"n": [1, 2]})
    assert results(sink, one, one) == ["accepted", "accepted"]
    assert results(other, one, call({"n": [1, 2]}, key="k2")) == ["accepted", "accepted"]
    assert [n for (n,) in database.rows("people")] == [1, 1, 2, 2]
    assert database.rows("protolake_calls", "key, sink") == [("k1", "crm"), ("k2", "crm")]
    other.close()


def test_a_call_waits_for_another_process_that_is_writing_it(database: Database) -> None:
    """The process is gone, and the server has not noticed yet."""
    sink = database.sink(timeout_s=0.3)
    assert results(sink, call({"n": [1]})) == ["accepted"]
    with database.server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(f"INSERT INTO {database.schema}.protolake_calls VALUES ('crm', 'k2')")
        connection.execute(f"INSERT INTO {database.schema}.people VALUES (2)")
        [outcome] = send(sink, call({"n": [2]}, key="k2"))
        assert (outcome.result, outcome.answer[:5]) == ("unavailable", "57014"), outcome
        connection.execute("COMMIT")
    assert results(sink, call({"n": [2]}, key="k2")) == ["accepted"]
    assert database.rows("people") == [(1,), (2,)]
    sink.close()


def test_rows_are_changed_and_deleted_by_their_keys(database: Database, sink: PostgresSink) -> None:
    first = [(1, "x", "one"), (1, None, "two"), (None, "x", "three"), (None, None, "four"), (2, "y", "five")]
    assert results(sink, changes(*((UPSERT, *row) for row in first))) == ["accepted"]
    assert sorted(database.rows("people"), key=str) == sorted(first, key=str)
    second = changes(
        *((UPSERT, 1, "x", "ONE"), (UPSERT, None, None, "FOUR"), (DELETE, 1, None, None), (UPSERT, 3, "z", None)),
        *((DELETE, None, "x", None), (DELETE, 9, None, None)),
        key="k2",
    )
    assert results(sink, second) == ["accepted"]
    left = [(1, "x", "ONE"), (2, "y", "five"), (3, "z", None), (None, None, "FOUR")]
    assert database.rows("people", order="1 NULLS LAST") == left
    # An old call that is repeated late does not bring its values back.
    assert results(sink, changes(*((UPSERT, *row) for row in first))) == ["accepted"]
    assert database.rows("people", order="1 NULLS LAST") == left
    assert results(sink, changes((DELETE, 1, "x", None), (DELETE, None, None, None), key="k3")) == ["accepted"]
    assert database.rows("people") == left[1:3]


def test_a_table_of_keys_alone_changes(database: Database, sink: PostgresSink) -> None:
    rows = {OPERATION: [UPSERT, UPSERT], "a": [1, 2]}
    assert results(sink, call(rows, names=["a"]), call(rows, "k2", names=["a"])) == ["accepted", "accepted"]
    gone = {OPERATION: [DELETE, UPSERT], "a": [1, 2]}
    assert results(sink, call(gone, "k3", names=["a"])) == ["accepted"]
    assert database.rows("people") == [(2,)]


def test_a_table_that_somebody_has_made_is_taken_as_it_is(database: Database, sink: PostgresSink) -> None:
    """Its primary key is enough, and what it has besides stays."""
    database.run(
        "CREATE TABLE {schema}.people (b text, a bigint, value varchar(9), own int DEFAULT 7, PRIMARY KEY (a, b))"
    )
    assert results(sink, changes((UPSERT, 1, "x", "one"), (UPSERT, 2, "x", "two"))) == ["accepted"]
    assert results(sink, changes((UPSERT, 1, "x", "new"), (DELETE, 2, "x", None), key="k2")) == ["accepted"]
    assert database.rows("people") == [("x", 1, "new", 7)]
    assert database.run("SELECT count(*) FROM pg_indexes WHERE schemaname = %s", [database.schema]) == [(3,)]
    outcomes = send(
        sink, changes((UPSERT, 1, None, "one"), key="k3"), changes((UPSERT, 1, "x", "0123456789"), key="k4")
    )
    assert [(one.result, one.answer[:5]) for one in outcomes] == [("refused", "23502"), ("refused", "22001")]


def test_an_older_server_needs_a_primary_key(
    database: Database, sink: PostgresSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda self: 14_00_11))
    with pytest.raises(ConfigurationError, match="a, b may be NULL: this needs PostgreSQL 15, or a primary key"):
        send(sink, changes((UPSERT, 1, "x", "one")))
    database.run("CREATE TABLE {schema}.people (a bigint, b text, value text, PRIMARY KEY (b, a))")
    assert results(sink, changes((UPSERT, 1, "x", "one"))) == ["accepted"]


def test_who_reads_sees_all_old_rows_or_all_new_ones(database: Database, sink: PostgresSink) -> None:
    def whole(number: int) -> Call:
        return call({"n": [number] * 2000, "at": range(2000)}, f"k{number}", replaces=True)

    assert results(sink, whole(0)) == ["accepted"]
    seen, stop = set(), threading.Event()

    def read() -> None:
        with database.server.connect() as connection:
            while not stop.is_set():
                found = connection.execute(f"SELECT n, count(*) FROM {database.schema}.people GROUP BY n").fetchall()
                seen.add(tuple(found))

    with database.server.connect() as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1").fetchall()
        reader = threading.Thread(target=read)
        reader.start()
        assert results(sink, *(whole(number) for number in range(1, 10))) == ["accepted"] * 9
        stop.set()
        reader.join()
        assert old.execute(f"SELECT DISTINCT n FROM {database.schema}.people").fetchall() == [(0,)]
    assert seen <= {((number, 2000),) for number in range(10)}
    assert len(seen) > 1


def test_a_table_of_changes_is_replaced(database: Database, sink: PostgresSink) -> None:
    assert results(sink, changes((UPSERT, 1, None, "one"), (UPSERT, 2, "x", "two"))) == ["accepted"]
    assert results(sink, changes((UPSERT, 1, None, "new"), (DELETE, 2, "x", "two"), key="k2", replaces=True)) == [
        "accepted"
    ]
    assert database.rows("people") == [(1, None, "new")]
    empty = changes((UPSERT, 1, None, "new")).rows.slice(0, 0)
    assert results(sink, call(empty, "k3", names=("a", "b"), replaces=True)) == ["accepted"]
    assert database.rows("people") == []


def test_new_columns_are_added(database: Database, sink: PostgresSink) -> None:
    homes = [pa.struct([("city", pa.string())]), pa.struct([("city", pa.string()), ("zip", pa.string())])]
    small = pa.table({"n": [1], "home": pa.array([{"city": "Bonn"}], homes[0])})
    grown = pa.table(
        {"n": [2], "home": pa.array([{"city": "Köln", "zip": "5"}], homes[1]), "country": ["DE"], "raw": [b"x"]}
    )
    assert results(sink, call(small), call(grown, "k2"), call(small, "k3")) == ["accepted"] * 3
    assert database.types("people") == {"n": "bigint", "home": "jsonb", "country": "text", "raw": "bytea"}
    assert database.rows("people", order="1, 3") == [
        *[(1, {"city": "Bonn"}, None, None)] * 2,
        (2, {"city": "Köln", "zip": "5"}, "DE", b"x"),
    ]


LATE = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))  # the year 10000
REFUSED: dict[str, tuple[str, Any, str]] = {
    "a NUL": ("text", ["a\0b"], "22021"),
    "a NUL in JSON": ("jsonb", pa.array([["\0"]]), "22P05"),
    "no number": ("integer", ["abc"], "22P02"),
    "too large a number": ("smallint", [1 << 20], "22003"),
    "a time before Christ": ("timestamptz", pa.array([-(1 << 56)], pa.timestamp("us", "UTC")), "22009"),
    "a constraint": ("text CHECK (v <> 'no')", ["no"], "23514"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_rows_that_cannot_be_stored_are_refused(what: str, database: Database, sink: PostgresSink) -> None:
    kind, values, code = REFUSED[what]
    database.run(f"CREATE TABLE {{schema}}.people (v {kind})")
    [outcome] = send(sink, call({"v": values}))
    assert (outcome.result, outcome.answer[:5]) == ("refused", code), outcome
    assert results(sink, call({"v": pa.nulls(1, pa.string())})) == ["accepted"]  # with the same key: nothing was kept
    assert database.rows("people") == [(None,)]


def test_times_after_the_year_9999_arrive_but_not_in_json(database: Database, sink: PostgresSink) -> None:
    assert results(sink, call({"v": LATE})) == ["accepted"]
    assert database.rows("people", "v::text") == [("10000-01-01 00:00:00+00",)]
    nested = pa.ListArray.from_arrays([0, 1], LATE)
    [outcome] = send(sink, call({"w": nested}, "k2"))
    assert outcome.result == "refused", outcome


def test_the_answer_names_the_column_and_not_the_row(database: Database, sink: PostgresSink) -> None:
    database.run("CREATE TABLE {schema}.people (n int, v text CHECK (v <> 'no'), secret text)")
    [outcome] = send(sink, call({"n": ["1", "abc"], "v": ["a", "b"], "secret": ["hush", "hush"]}))
    assert outcome.answer == '22P02 invalid input syntax for type integer: "abc" (COPY people, line 2, column n)'
    [outcome] = send(sink, call({"n": ["1"], "v": ["no"], "secret": ["hush"]}, "k2"))
    assert outcome.answer.startswith("23514 ")
    assert "hush" not in outcome.answer


def test_a_target_that_does_not_fit_makes_the_rows_wait(database: Database, sink: PostgresSink) -> None:
    database.run("CREATE VIEW {schema}.people AS SELECT 1::bigint AS n")
    [outcome] = send(sink, call({"n": [1]}))
    assert outcome.result == "unavailable", outcome
    database.run("DROP VIEW {schema}.people")
    database.run("CREATE TABLE {schema}.people (a bigint, b text, value text)")
    database.run("INSERT INTO {schema}.people VALUES (1, NULL, 'x'), (1, NULL, 'y')")
    [outcome] = send(sink, changes((UPSERT, 1, "x", "one")))
    assert (outcome.result, outcome.answer[:5]) == ("unavailable", "23505"), outcome
    database.run("DELETE FROM {schema}.people")
    assert results(sink, changes((UPSERT, 1, "x", "one"))) == ["accepted"]
    database.run("DROP TABLE {schema}.people")
    assert results(sink, *[changes((UPSERT, 1, "x", "two"), key="k2")] * 2) == ["unavailable", "accepted"]
    with pytest.raises(ConfigurationError, match="names of 1 to 63 bytes, and not 'ää"):
        send(sink, call({"ä" * 32: [1]}, "k3"))
    missing = database.sink(schema="nowhere")
    [outcome] = send(missing, call({"n": [1]}))
    assert outcome == Outcome("k1", "unavailable", answer='3F000 schema "nowhere" does not exist')


def test_who_may_only_write_needs_no_more(database: Database) -> None:
    database.run("CREATE TABLE {schema}.people (n bigint)")
    database.run("DROP ROLE IF EXISTS writer")
    database.run(f"CREATE ROLE writer LOGIN PASSWORD {psycopg.sql.Literal(PASSWORD).as_string()}")
    database.run("GRANT USAGE ON SCHEMA {schema} TO writer")
    database.log_in("writer")
    sink = database.sink()
    [outcome] = send(sink, call({"n": [1]}))
    assert (outcome.result, outcome.answer[:5]) == ("unavailable", "42501"), outcome
    database.log_in()
    owner = database.sink()
    assert results(owner, call({"n": [1]})) == ["accepted"]
    owner.close()
    database.log_in("writer")
    [outcome] = send(sink, call({"n": [2]}, "k2"))
    assert (outcome.result, outcome.answer[:5]) == ("unavailable", "42501"), outcome
    database.run("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {schema} TO writer")
    assert results(sink, call({"n": [2]}, "k2")) == ["accepted"]
    assert database.rows("people") == [(1,), (2,)]
    sink.close()
    database.run("DROP OWNED BY writer")
    database.run("DROP ROLE writer")


def test_sinks_that_begin_at_once_make_a_table_together(database: Database) -> None:
    sinks, found = [database.sink(f"sink{number}") for number in range(4)], []

    def work(sink: PostgresSink, number: int) -> None:
        outcomes = ["unavailable"]
        while outcomes == ["unavailable"]:
            outcomes = results(sink, changes((UPSERT, number, "x", "y"), key=f"k{number}"))
        found.extend(outcomes)
        sink.close()

    threads = [threading.Thread(target=work, args=(sink, number)) for number, sink in enumerate(sinks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["accepted"] * 4
    assert [a for a, *_ in database.rows("people")] == [0, 1, 2, 3]


def test_old_keys_are_removed(database: Database, sink: PostgresSink, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results(sink, call({"n": [1]}, "k0")) == ["accepted"]
    old = "INSERT INTO {schema}.protolake_calls SELECT s, s || g, now() - a FROM generate_series(1, 7) g, "
    database.run(old + "(VALUES ('crm', interval '8 days'), ('new', '6 days'), ('other', '8 days')) AS v (s, a)")
    database.run("UPDATE {schema}.protolake_calls SET sink = 'crm' WHERE sink = 'new'")
    monkeypatch.setattr(module, "CLEAN_EVERY", 2)
    monkeypatch.setattr(module, "MOST_CLEANED", 5)
    for number, left in enumerate((2, 2, 0), 1):
        assert results(sink, call({"n": [1]}, f"k{number}")) == ["accepted"]
        assert len(database.run("SELECT FROM {schema}.protolake_calls WHERE key ~ '^crm'")) == left
    assert len(database.run("SELECT FROM {schema}.protolake_calls")) == 4 + 14


def test_a_lost_connection_is_opened_anew(server: PostgresServer, database: Database, sink: PostgresSink) -> None:
    assert results(sink, call({"n": [1]})) == ["accepted"]
    server.stop()
    outcomes = send(sink, call({"n": [2]}, "k2"), call({"n": [2]}, "k2"))
    assert [one.result for one in outcomes] == ["unavailable", "unavailable"]
    server.start()
    assert results(sink, call({"n": [2]}, "k2")) == ["accepted"]
    server.kill()
    server.start()
    outcomes += send(sink, *[call({"n": [3]}, "k3")] * 2)
    assert [one.result for one in outcomes[2:]] == ["unavailable", "accepted"]
    assert database.rows("people") == [(1,), (2,), (3,)]
    assert not any(PASSWORD in one.answer for one in outcomes)


def test_no_answer_has_the_password(database: Database, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = "wr0ng p4ss"
    answers = []
    for given in ({"password": wrong}, {"user": wrong, "password": wrong}, {"port": 1, "password": wrong}):
        database.log_in(**given)
        [outcome] = send(database.sink(), call({"n": [1]}))
        assert outcome.result == "unavailable"
        answers.append(outcome.answer)
    assert "password authentication failed for user" in answers[0]
    assert "***" in answers[1]
    assert not any(wrong in one for one in [*answers, *capfd.readouterr()])


def test_rows_of_a_lake_arrive_and_the_refused_one_is_found(database: Database, tmp_path: Path) -> None:
    section = database.section(table="{name}_rows")
    sinks = {"crm": {"postgres": section, "begin": "all", "rows_per_call": 8, "max_wait_s": 0.1}}
    lake = SmallLake(tmp_path / "lake", EVENTS, GROWN, sinks=sinks)
    take(lake, 3)
    sent = [event("uno", f"{n}\0" if n == 5 else f"{n}", EVENTS, large=(1 << 64) - 1) for n in range(8)]
    lake.take(batch_of(sent, first=lake.ends[0]))
    deliver(lake)
    take(lake, 2, GROWN)
    deliver(lake)
    deliver(lake)  # there is nothing left
    found = database.rows("uno_rows", "_offset, gamer_id, large, home, country", "_offset")
    offsets = [0, 2, 4, *(n for n in range(6, 14) if n != 11), 14, 16]
    assert [offset for offset, *_ in found] == offsets
    assert found[3][1:3] == ("0", Decimal((1 << 64) - 1))
    lines = [line for lines in Ledger(lake.lake, lake.lake.sink("crm")).read().values() for line in lines]
    [rejected] = [line for line in lines if line.result == "rejected"]
    assert [json.loads(one)["_offset"] for one in rejected.rejects] == [11]
    assert rejected.answer.startswith("22021 invalid byte sequence")
    assert PASSWORD not in "".join(line.answer for line in lines)


def deliver(lake: SmallLake) -> None:
    process = SinkProcess("crm", lake.settings, once=True)
    process.start()
    assert process.join(60)


def test_many_rows_in_a_second(database: Database, sink: PostgresSink) -> None:
    """Many times as many as these on a machine that has nothing else to do."""
    count = 50_000
    rows = table_of(count)
    began, cpu = time.perf_counter(), time.thread_time()
    calls = [call(rows.slice(at, 1000), f"k{at}") for at in range(0, count, 1000)]
    assert set(results(sink, *calls)) == {"accepted"}
    print(f"{count / (time.perf_counter() - began):,.0f} rows/s, {count / (time.thread_time() - cpu):,.0f} of our CPU")
    assert database.rows("people", "count(*)") == [(count,)]
    assert count / (time.thread_time() - cpu) > 20_000


def table_of(count: int) -> pa.Table:
    """Ten columns of a game."""
    return pa.table(
        {
            "gamer_id": [f"gamer-{n % 1000}" for n in range(count)],
            "bet": [n * 0.37 for n in range(count)],
            "latency_ms": range(count),
            "is_new": [n % 3 == 0 for n in range(count)],
            "at": pa.array(range(count), pa.timestamp("us", "UTC")),
            "amount": pa.array([Decimal(n) / 100 for n in range(count)], pa.decimal128(18, 2)),
            "home": [{"city": "Köln", "zip": str(n)} for n in range(count)],
            "device": [f"device\\{n}" for n in range(count)],
            "_partition": pa.array([n % 4 for n in range(count)], pa.int32()),
            "_offset": range(count),
        }
    )
