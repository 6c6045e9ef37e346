"""Workers aggregate the files of a table: by parts, with bounded memory, and only what Arrow does exactly."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_app.followers.gold import aggregates
from spark_app.followers.gold.aggregates import Aggregate, Grouping
from spark_app.followers.gold.worker_tasks import split_among_tasks
from spark_app.lake.files.local import LocalStorage

TIME = pa.timestamp("us", "UTC")
FIELDS = pa.schema([("k", pa.string()), ("n", pa.int64()), ("s", pa.string()), ("t", TIME)])
MADE = (
    Aggregate("rows", "count", ""),
    Aggregate("some", "count", "n"),
    Aggregate("total", "sum", "n"),
    Aggregate("first", "min", "s"),
    Aggregate("last", "max", "t"),
)
GROUPING = Grouping(("k",), MADE, FIELDS)

DISK = LocalStorage("/")  # keys are absolute paths without the first slash


def written(path: Path, rows: pa.Table, **how: int) -> str:
    pq.write_table(rows, path, **how)
    return str(path)[1:]


def plain(part: pa.Table) -> dict[str | None, tuple[object, ...]]:
    rows = GROUPING.finish(part).set_column(5, "last", part.column(5).cast(pa.int64())).to_pylist()
    return {row.pop("k"): tuple(row.values()) for row in rows}


def test_parts_of_files_are_combined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "ROWS", 3)  # more parts than rows fit
    keys = ["x", None, "y", "x", "x", None, "z", "y"]
    numbers = [2**63 - 1, None, 1, 2**63 - 1, None, -5, None, 2]
    texts = ["b", None, "ä", "z", "", "q", None, "b"]
    columns = [keys, numbers, texts, list(range(8))]
    rows = pa.table([pa.array(values, f.type) for values, f in zip(columns, FIELDS, strict=True)], schema=FIELDS)
    whole = [written(tmp_path / "a", rows, row_group_size=5)]
    pieces = [written(tmp_path / f"b{at}", rows.slice(at, 2)) for at in range(0, 8, 2)]
    empty = [written(tmp_path / "c", rows.slice(0, 0))]
    expected = {
        "x": (3, 2, 2 * (2**63 - 1), "", 4),
        None: (2, 1, -5, "q", 5),
        "y": (2, 2, 3, "b", 7),
        "z": (1, 0, None, None, 6),
    }
    assert plain(GROUPING.reduce(DISK, whole)) == plain(GROUPING.reduce(DISK, empty + pieces)) == expected
    shared = [GROUPING.reduce(DISK, some) for some in (pieces[:1], empty, pieces[1:])]
    assert plain(GROUPING.combine(shared)) == expected


def test_a_file_of_an_older_schema_has_null(tmp_path: Path) -> None:
    old = written(tmp_path / "old", pa.table({"t": pa.array([5, 6], TIME)}))
    none = written(tmp_path / "none", pa.table({"other": [1, 2, 3]}))
    assert plain(GROUPING.reduce(DISK, [old, none])) == {None: (5, 0, None, None, 6)}


def test_memory_follows_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "ROWS", 100)
    held: list[int] = []
    combine = Grouping.combine

    def watched(grouping: Grouping, parts: list[pa.Table]) -> pa.Table:
        held.append(sum(map(len, parts)))
        return combine(grouping, parts)

    monkeypatch.setattr(Grouping, "combine", watched)
    rows = pa.table({"k": [f"{number % 50}" for number in range(10_000)], "n": list(range(10_000))})
    part = GROUPING.reduce(DISK, [written(tmp_path / "a", rows)])
    assert (len(part), sum(part["1"].to_pylist())) == (50, 10_000)
    assert max(held) <= 250


@pytest.mark.parametrize("content", [b"", b"damaged" * 9, None], ids=["empty", "damaged", "gone"])
def test_a_file_that_cannot_be_read_is_emitted(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises((OSError, pa.ArrowException)):
        GROUPING.reduce(DISK, [str(tmp_path / "a")[1:]])


def test_a_column_of_another_kind_is_emitted(tmp_path: Path) -> None:
    path = written(tmp_path / "a", pa.table({"k": ["x"], "n": ["no number"]}))
    with pytest.raises(pa.ArrowException):
        GROUPING.reduce(DISK, [path])


@pytest.mark.parametrize(
    ("key", "function", "kind", "is_exact_in_arrow"),
    [
        (pa.string(), "count", pa.float64(), True),
        (pa.string(), "count", pa.list_(pa.int64()), False),
        (pa.string(), "sum", pa.int32(), True),
        (pa.string(), "sum", pa.float64(), False),
        (pa.string(), "sum", pa.decimal128(20, 0), False),
        (pa.string(), "sum", pa.string(), False),
        (pa.string(), "sum", pa.bool_(), False),
        (pa.string(), "min", pa.float32(), False),
        (pa.string(), "max", pa.decimal128(20, 0), True),
        (pa.string(), "max", TIME, True),
        (pa.string(), "max", pa.timestamp("us"), False),
        (pa.string(), "max", pa.struct([("x", pa.int64())]), False),
        (pa.string(), "mean", pa.int64(), False),
        (pa.string(), "median", pa.int64(), False),
        (pa.string(), "distinct", pa.int64(), False),
        (pa.float64(), "count", pa.int64(), False),
        (pa.decimal128(20, 0), "count", pa.int64(), False),
        (TIME, "count", pa.int64(), False),
        (pa.binary(), "min", pa.binary(), True),
        (pa.bool_(), "min", pa.date32(), True),
    ],
)
def test_what_arrow_does_not_do_as_spark_does_is_left_to_spark(
    key: pa.DataType, function: str, kind: pa.DataType, is_exact_in_arrow: bool
) -> None:
    every = Aggregate("rows", "count", "")
    fields = pa.schema([("k", key), ("v", kind)])
    assert Grouping(("k",), (every, Aggregate("made", function, "v")), fields).is_exact_in_arrow() is is_exact_in_arrow


def test_files_are_shared_out_by_bytes(tmp_path: Path) -> None:
    files: dict[str, list[str]] = {}
    for name, sizes in {"a": [1, 1], "b": [9 << 20, 1 << 20], "c": [4 << 20], "d": []}.items():
        for number, size in enumerate(sizes):
            path = tmp_path / f"{name}{number}"
            path.touch()
            path.open("r+b").truncate(size)
            files.setdefault(name, []).append(path.name)
    files["e"] = ["gone"]
    shares = split_among_tasks(LocalStorage(tmp_path), files, 2)
    assert [list(share) for share in shares] == [["a", "b"], ["b", "c", "e"]]
    assert {name: [p for share in shares for p in share.get(name, [])] for name in files} == files
    assert split_among_tasks(LocalStorage(tmp_path), files, 1) == [files]
    assert split_among_tasks(LocalStorage(tmp_path), {"a": files["a"], "e": files["e"]}, 8) == [
        {"a": files["a"], "e": files["e"]}
    ]
    assert (
        split_among_tasks(LocalStorage(tmp_path), {}, 2)
        == split_among_tasks(LocalStorage(tmp_path), {"d": []}, 2)
        == []
    )
