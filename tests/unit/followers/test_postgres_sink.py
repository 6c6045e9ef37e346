"""What the sink `postgres` does without a server: its settings, the text of its rows, and what it says of failures."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from spark_app.followers.sinks.copy_rows import copy_text, type_of
from spark_app.followers.sinks.open_sink import sink_of
from spark_app.followers.sinks.postgres import PostgresSink
from spark_app.followers.sinks.sink import Call
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.settings.models import Settings
from spark_app.settings.sinks import Postgres, SinkSettings
from tests.tiers import ROOT

SECRET = "hush5ecret"
READ = {"N": None, "n": "\n", "r": "\r", "t": "\t", "\\": "\\"}  # what COPY makes of a letter behind a backslash


def sink(dsn: Path, **values: Any) -> PostgresSink:
    return PostgresSink("crm", Postgres(dsn_file=str(dsn), **values))


def test_it_is_a_kind_of_sink(tmp_path: Path) -> None:
    own = {"postgres": {"dsn_file": "/d", "schema": "games", "table": "{name}_x"}}
    settings = Settings(sinks={"crm": SinkSettings.model_validate(own)})
    assert isinstance(sink_of("crm", settings, Lake(tmp_path)), PostgresSink)
    for others in ({"kind": "x"}, {"rest": {"url": "http://h.example"}}):
        with pytest.raises(ValueError, match="set exactly one of rest, kafka, postgres and kind"):
            SinkSettings.model_validate({"postgres": {"dsn_file": "/d"}, **others})


@pytest.mark.parametrize("pattern", ["", "{other}", "{}", "{0}", "{name.x}", "{name", "}"])
def test_what_is_no_pattern_of_a_table_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is a name, in which|is no pattern"):
        Postgres(dsn_file="/d", table=pattern)


@pytest.mark.parametrize("text", [SECRET, f"host=h passwort={SECRET}", f"postgresql://u:{SECRET}@h:x y/"])
def test_no_message_repeats_what_is_no_connection_string(text: str, tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text(text)
    with pytest.raises(ConfigurationError, match=r"sinks.crm.postgres.dsn_file: the file has no") as found:
        sink(tmp_path / "dsn").open({})
    assert SECRET not in repr(found.value)


def test_a_server_that_is_away_is_no_fault_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text(f"postgresql://me:{SECRET}@127.0.0.1:1/games?sslpassword={SECRET}2\n")
    made = sink(tmp_path / "dsn")
    made.open({})
    [outcome] = made.send([Call("k", "people", "rummy", pa.table({"n": [1]}))])
    made.close()
    assert (outcome.key, outcome.result) == ("k", "unavailable")
    assert "127.0.0.1" in outcome.answer
    assert SECRET not in outcome.answer
    assert "\n" not in outcome.answer


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sinks.crm.postgres.dsn_file: cannot read"):
        sink(tmp_path / "dsn").open({})


def test_rows_are_lines_for_copy() -> None:
    rows = pa.table(
        {
            "text": ["a\tb", "\\N", None],
            "raw": [b"\x00\xff", None, b""],
            "large": pa.array([(1 << 64) - 1, None, 0], pa.uint64()),
            "amount": [Decimal("1.50"), None, Decimal("0.00")],
            "at": pa.array([0, None, -1], pa.timestamp("us", "UTC")),
            "home": [{"city": "a\nb", "raw": b"\xff"}, None, {"city": None, "raw": None}],
        }
    )
    assert copy_text(rows).decode().splitlines() == [
        r"a\tb	\\x00ff	18446744073709551615	1.50	1970-01-01 00:00:00.000000Z	"
        r'{"city":"a\\nb","raw":"/w=="}',
        r"\\N	\N	\N	\N	\N	\N",
        r'\N	\\x	0	0.00	1969-12-31 23:59:59.999999Z	{"city":null,"raw":null}',
    ]
    assert copy_text(rows.slice(0, 0)) == b""


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.text()), max_size=5))
def test_every_text_can_be_read_back(rows: list[tuple[str | None, str | None]]) -> None:
    """By the rules of COPY: lines, tabs, and a backslash before a letter."""
    table = pa.table(
        {"a": [a for a, _ in rows], "b": [b for _, b in rows]}, pa.schema([("a", "string"), ("b", "string")])
    )
    lines = copy_text(table).decode().split("\n")
    assert lines.pop() == ""
    assert [tuple(map(read, line.split("\t"))) for line in lines] == rows


@given(st.lists(st.text(st.sampled_from('\0\\"u0ab\ufffd'), max_size=12), min_size=1, max_size=5))
def test_nul_is_replaced_where_it_would_refuse_a_table(texts: list[str]) -> None:
    rows = pa.table({"plain": texts, "nested": [{"t": text} for text in texts]})
    lines = copy_text(rows, replaces_nul=True).decode().split("\n")[:-1]
    for line, text in zip(lines, texts, strict=True):
        plain, nested = map(read, line.split("\t"))
        due = text.replace("\0", "\ufffd")
        assert (plain, json.loads(nested or "")) == (due, {"t": due})


def read(field: str) -> str | None:
    if field == "\\N":
        return None
    text, letters = "", iter(field)
    for letter in letters:
        text += letter if letter != "\\" else READ[next(letters)] or "?"
    return text


def test_what_python_cannot_read_is_a_fault_of_the_row() -> None:
    late = pa.ListArray.from_arrays([0, 1], pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")))
    broken = pa.array([b"\xff"]).view(pa.string())
    for values in (late, broken):
        with pytest.raises((ValueError, OverflowError)):
            copy_text(pa.table({"v": values}))


def test_types_that_few_tables_have() -> None:
    assert type_of(pa.decimal128(5, -2)) == "numeric(5, -2)"
    assert type_of(pa.time64("us")) == "time"
    assert type_of(pa.large_string()) == type_of(pa.null()) == "text"
    assert type_of(pa.map_(pa.string(), pa.int8())) == "jsonb"


def test_other_sinks_do_not_load_psycopg() -> None:
    code = "import sys, spark_app.followers.sinks.open_sink; print([m for m in ['psycopg'] if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
