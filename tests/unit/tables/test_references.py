"""Reference tables of other people: what is read, what is refused, and that each row finds the right one."""

from __future__ import annotations

import datetime
import os
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.address import StorageAddress
from spark_app.tables.references import joining
from spark_app.tables.references.source_table import ReferenceRefused, SourceTable

PLAYERS = pa.table(
    {"player": ["ann", "bob", "cy"], "country": ["FR", None, "IT"], "tier": pa.array([1, 2, 3], pa.int32())}
)


def table_at(path: str, key: str, columns: list[str]) -> SourceTable:
    return SourceTable(StorageAddress.of(path), key, columns)


def delta(folder: Path, table: pa.Table = PLAYERS) -> SourceTable:
    write_deltalake(str(folder / "players"), table, mode="overwrite", schema_mode="overwrite")
    return table_at(str(folder / "players"), "player", ["country", "tier"])


def parquet(folder: Path, *tables: pa.Table) -> SourceTable:
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return table_at(str(folder), "player", ["country", "tier"])


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


EXPECTED = [("ann", "FR", 1), ("bob", None, 2), ("cy", "IT", 3)]


def test_a_delta_table_a_folder_and_a_file_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    parts = parquet(tmp_path / "parts", PLAYERS.slice(0, 1), PLAYERS.slice(1))
    one = table_at(str(tmp_path / "parts" / "1.parquet"), "player", ["country", "tier"])
    for source in (delta(tmp_path), parts):
        table = source.read()
        assert rows(table) == EXPECTED
        assert table.schema.types == [pa.string(), pa.string(), pa.int64()]
    assert rows(one.read()) == EXPECTED[1:]


def test_a_version_changes_with_the_table_alone(tmp_path: Path) -> None:
    source = delta(tmp_path)
    first = source.version()
    made = DeltaTable(source.address.root).metadata().id
    assert source.version() == first == f"0 of Delta table {made}"
    assert delta(tmp_path).version() == f"1 of Delta table {made}"
    shutil.rmtree(source.address.root)
    assert delta(tmp_path).version() != first
    (tmp_path / "parts").mkdir()
    source = parquet(tmp_path / "parts", PLAYERS)
    first = source.version()
    assert source.version() == first
    os.utime(tmp_path / "parts" / "0.parquet", (1, 1))
    second = source.version()
    pq.write_table(PLAYERS, tmp_path / "parts" / "1.parquet")
    assert len({first, second, source.version()}) == 3


def test_rows_without_a_key_are_left_out(tmp_path: Path) -> None:
    table = pa.concat_tables([PLAYERS, PLAYERS.slice(0, 2).set_column(0, "player", pa.nulls(2, pa.string()))])
    assert rows(delta(tmp_path, table).read()) == EXPECTED


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pa.concat_tables([PLAYERS, PLAYERS.slice(0, 2)]), "its key player is not unique: keys with several rows: 2"),
        (PLAYERS.drop_columns(["tier"]), "it has no column tier; it has player, country"),
        (PLAYERS.slice(0, 0), "it has no rows"),
        (PLAYERS.set_column(2, "tier", pa.array([[1], [2], []])), "its column tier is list<"),
        (PLAYERS.set_column(0, "player", pa.array([1.0, 2.0, 3.0])), "its key player is double; a key is"),
    ],
)
def test_what_is_refused(tmp_path: Path, table: pa.Table, why: str) -> None:
    with pytest.raises(ReferenceRefused, match="^" + why.replace("[", r"\[")):
        parquet(tmp_path, table).read()


def test_a_table_that_is_gone_damaged_or_too_large(tmp_path: Path) -> None:
    source = table_at(str(tmp_path / "none"), "player", ["tier"])
    for look in (source.version, source.read):
        with pytest.raises(ReferenceRefused, match="there is no Delta table and no Parquet file at"):
            look()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not all")
    with pytest.raises(ReferenceRefused):
        table_at(str(tmp_path / "bad.parquet"), "player", ["tier"]).read()
    with pytest.raises(ReferenceRefused, match="more than 0 MiB"):
        delta(tmp_path).read(most_bytes=20)
    (tmp_path / "players" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(ReferenceRefused):
        table_at(str(tmp_path / "players"), "player", ["tier"]).read()


def test_types_become_those_of_silver(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "player": pa.array([7, 2**63 + 1], pa.uint64()),
            "small": pa.array([1, 2], pa.int8()),
            "half": pa.array([0.5, None], pa.float32()),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "since": pa.array([moment, None], pa.timestamp("ms", "UTC")),
            "day": pa.array([moment.date(), None]),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "ok": [True, None],
            "raw": [b"\x00", None],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = table_at(str(tmp_path / "t.parquet"), "player", table.column_names[1:]).read()
    assert found.to_pylist() == [
        {"player": Decimal(7), "small": 1, "half": 0.5, "kind": "a", "since": moment, "day": moment.date()}
        | {"price": Decimal("1.50"), "ok": True, "raw": b"\x00"},
        {"player": Decimal(2**63 + 1), "small": 2, "half": None, "kind": "b", "since": None, "day": None}
        | {"price": None, "ok": None, "raw": None},
    ]


def test_rows_are_sorted_by_their_keys_and_long_values_are_refused(tmp_path: Path) -> None:
    assert parquet(tmp_path, PLAYERS.slice(1), PLAYERS.slice(0, 1)).read()["player"].to_pylist() == ["ann", "bob", "cy"]
    long = PLAYERS.set_column(1, "country", pa.array(["x" * 4097, None, "IT"]))
    with pytest.raises(ReferenceRefused, match="its column country has a value of 4,097 bytes; the most is 4,096"):
        parquet(tmp_path, long).read()


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize("column", ["player", "country"])
def test_text_that_is_not_utf8_is_refused(tmp_path: Path, column: str) -> None:
    table = PLAYERS.slice(0, 1)
    table = table.set_column(table.column_names.index(column), column, NOT_UTF8)
    with pytest.raises(ReferenceRefused, match="UTF8"):
        parquet(tmp_path, table).read()


def test_a_dictionary_counts_as_the_text_that_it_stands_for(tmp_path: Path) -> None:
    rows = 20_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["y" * 1000])
    table = pa.table({"player": [str(row) for row in range(rows)], "country": text, "tier": [1] * rows})
    with pytest.raises(ReferenceRefused, match="more than 10 MiB"):
        parquet(tmp_path, table).read(most_bytes=10 << 20)


def test_the_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    numbers = PLAYERS.slice(1).set_column(0, "player", pa.array([5, 6]))
    with pytest.raises(ReferenceRefused, match="its column player is int64 and string in different files"):
        parquet(tmp_path, PLAYERS.slice(0, 1), numbers).read()
    with pytest.raises(ReferenceRefused, match="it has no column tier"):
        parquet(tmp_path, PLAYERS.slice(0, 1), PLAYERS.slice(1).drop_columns(["tier"])).read()


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    for name in ("_tmp.parquet", ".b.parquet"):
        (tmp_path / name).write_bytes(b"half")
    assert rows(parquet(tmp_path, PLAYERS).read()) == EXPECTED


def test_moments_that_no_reader_knows_are_null(tmp_path: Path) -> None:
    late = pa.array([2**62, 0, 1]).cast(pa.timestamp("us"))
    table = PLAYERS.set_column(1, "country", late).set_column(2, "tier", pa.array([2**31 - 1, 0, 1], pa.date32()))
    found = parquet(tmp_path, table).read()
    assert (found["country"].null_count, found["tier"].null_count) == (1, 1)
    assert found["country"].type == pa.timestamp("us", "UTC")


TEXTS = st.one_of(st.none(), st.text(max_size=3))


@given(
    st.lists(TEXTS, max_size=30),
    st.lists(st.text(max_size=3), min_size=1, max_size=30, unique=True),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_each_key_finds_its_row(keys: list[str | None], known: list[str], piece: int, hashes: int) -> None:
    values = {key: None if number % 3 == 0 else number for number, key in enumerate(known)}
    reference = pa.record_batch({"key": pa.array(known, pa.string()), "value": pa.array(values.values(), pa.int64())})
    pieces = [pa.array(keys[at : at + piece], pa.string()) for at in range(0, len(keys), piece)]
    expected = [values.get(key) if key is not None else None for key in keys]
    plain = pa.chunked_array(pieces, pa.string())
    with pytest.MonkeyPatch.context() as patch:  # different keys may have the same hash
        patch.setattr(joining, "hash", lambda key: hash(key) % hashes, raising=False)
        index = joining.Index(reference)
        assert index.look_up(plain)["value"].to_pylist() == expected
        assert index.look_up(plain.dictionary_encode())["value"].to_pylist() == expected


def test_whole_numbers_find_their_rows() -> None:
    keys = np.random.default_rng(1).permutation(100_000)
    reference = pa.record_batch({"key": keys, "twice": keys * 2, "text": pa.array(keys).cast(pa.string())})
    asked = [5, None, 99_999, 100_000, 5, -1]
    expected = [
        {"twice": 10, "text": "5"},
        {"twice": None, "text": None},
        {"twice": 199_998, "text": "99999"},
        {"twice": None, "text": None},
        {"twice": 10, "text": "5"},
        {"twice": None, "text": None},
    ]
    for kind in (pa.int64(), pa.decimal128(20, 0)):
        assert joining.Index(reference).look_up(pa.chunked_array([asked], kind)).to_pylist() == expected


def test_numbers_that_the_other_type_cannot_have_find_no_row() -> None:
    low, high, beyond = 2**63 - 1, 2**63, 2**64 - 1
    reference = pa.record_batch({"key": pa.array([low, 0]), "value": [1, 2]})
    found = joining.Index(reference).look_up(pa.chunked_array([[low, high, beyond, 0]], pa.decimal128(20, 0)))
    assert found["value"].to_pylist() == [1, None, None, 2]
    large = pa.record_batch({"key": pa.array([low, beyond], pa.decimal128(20, 0)), "value": [1, 2]})
    assert joining.Index(large).look_up(pa.chunked_array([[low, -1]]))["value"].to_pylist() == [1, None]
    found = joining.Index(large).look_up(pa.chunked_array([[beyond, high]], pa.decimal128(20, 0)))
    assert found["value"].to_pylist() == [2, None]
