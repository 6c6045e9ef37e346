"""Dictionaries by evidence: columns that repeat have one in the file, others do not, at any depth."""

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.lake.delta import parquet, rewrite
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta.parquet import Dictionaries
from spark_app.lake.files.local import LocalStorage

DICE = random.Random(5)
ITEM = pa.struct([("kind", pa.string()), ("token", pa.string())])


def token() -> str:
    return f"{DICE.getrandbits(64):016x}"


def table(count: int) -> pa.Table:
    few = [f"a place of some length {number % 7}" for number in range(count)]
    items = [[{"kind": place, "token": token()}] for place in few]
    columns = {"few": few, "many": [token() for _ in few], "offset": range(count)}
    return pa.table(columns | {"items": pa.array(items, pa.list_(ITEM))})


def encoded(path: Path) -> set[str]:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema for one in columns if one.has_dictionary_page}


def test_what_repeats_has_a_dictionary(tmp_path: Path) -> None:
    rows = table(20_000)
    files.write_file(LocalStorage(tmp_path), ".", "x.parquet", rows, "zstd")
    assert encoded(tmp_path / "x.parquet") == {"few", "items.list.element.kind"}
    assert pq.read_table(tmp_path / "x.parquet").equals(rows)


def test_files_of_another_size_are_asked_about_anew() -> None:
    """Names come again in a file of many rows, in one of few they are all different."""
    names = [f"gamer-{DICE.randrange(1500):07}" for _ in range(5000)]
    rows, found = pa.table({"name": names}), Dictionaries(["name"])
    assert found.choose(rows.slice(0, 100), "zstd") == []
    assert found.choose(rows, "zstd") == ["name"]
    assert found.choose(rows.slice(0, 100), "zstd") == []


def test_an_old_answer_is_forgotten() -> None:
    repeated, distinct = pa.table({"a": ["the same text"] * 500}), pa.table({"a": [token() for _ in range(500)]})
    found = Dictionaries(["a"])
    answers = [found.choose(rows, "zstd") for rows in [repeated] + [distinct] * parquet.ASK_AGAIN]
    assert answers == [["a"]] * parquet.ASK_AGAIN + [[]]


def test_no_rows_and_rows_too_large_for_a_sample() -> None:
    large = pa.table({"a": [b"x" * parquet.SAMPLE_BYTES] * 3})
    assert Dictionaries(["a"]).choose(large.slice(0, 0), "zstd") == []
    assert Dictionaries(["a"]).choose(large, "zstd") == []


def test_texts_with_nulls_have_one(tmp_path: Path) -> None:
    """Else DuckDB takes the only value of a file for NULL."""
    texts: list[str | None] = [token() for _ in range(500)]
    nullable_texts = [None, *texts[1:]]
    inside = [{"full": full, "hollow": text} for full, text in zip(texts, nullable_texts, strict=True)]
    rows = pa.table({"full": texts, "hollow": nullable_texts, "inside": inside})
    files.write_file(LocalStorage(tmp_path), ".", "x.parquet", rows, "zstd")
    assert encoded(tmp_path / "x.parquet") == {"hollow", "inside.hollow"}
    one = pa.table({"a": pa.array([None, "", None], pa.string()), "b": [{"c": "x"}, None, {"c": None}]})
    for number, part in enumerate((one, one.slice(0, 2), one.slice(1, 2), one.slice(0, 1), one.slice(1, 1))):
        files.write_file(LocalStorage(tmp_path), ".", f"{number}.parquet", part, "zstd")
        for column in ("a", "b.c"):
            asked = f"from '{tmp_path}/{number}.parquet' where {column} is null"
            name = column.partition(".")[0]
            values = part[name].to_pylist() if column == "a" else [v and v["c"] for v in part[name].to_pylist()]
            assert duckdb.sql(f"select count(*) {asked}").fetchall() == [(values.count(None),)]


def test_merged_files_know_which_texts_have_nulls(tmp_path: Path) -> None:
    texts = [token() for _ in range(500)]
    columns = pa.schema([("full", pa.string()), ("hollow", pa.string()), ("new", pa.string())])
    first = pa.table({"full": texts, "hollow": [None, *texts[1:]]})
    second = pa.table({"full": texts, "hollow": texts, "new": texts})
    for name, rows in (("a", first), ("b", second)):
        files.write_file(LocalStorage(tmp_path), ".", name, rows, "zstd")
    entry = rewrite.merge(LocalStorage(tmp_path), ".", ["a", "b"], columns, "zstd")
    assert encoded(tmp_path / entry.path) == {"hollow", "new"}
    assert encoded(tmp_path / rewrite.merge(LocalStorage(tmp_path), ".", ["b"], columns, "zstd").path) == set()
