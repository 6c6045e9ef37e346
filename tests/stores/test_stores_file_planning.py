"""Which files are due: new, whole, at rest and not replaced, wherever their names sort, on a disk and in a bucket."""

from __future__ import annotations

import errno
import os
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.files.local import LocalStorage
from spark_app.model.errors import ContractError
from spark_app.settings.models import Batch, Source
from spark_app.sources.files import listing as finding
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import DiskFolder, Listed, open_folder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.sources.files.input import FileFailed, FileShare
from spark_app.sources.files.listing import FolderListing
from spark_app.sources.files.planning import Plan, Planner
from tests.support.exports import DiskExports, Exports
from tests.support.file_sources import framed, json_text, parquet_bytes

VALUES = [*framed(1), None, *framed(2, 1)]
LINES = json_text(VALUES).encode()


class Taking:
    """A source without Spark: what is planned counts as committed."""

    def __init__(self, tmp_path: Path, exports: Exports, batch: dict[str, Any] | None = None, **source: Any):
        own = {"settle_s": 0.0, "full_list_s": 0.000001} | source
        settings = Source(kind="files", path=exports.address.root, **own)
        self.ledger = IngestedFiles(LocalStorage(tmp_path / "lake"), "taken")
        known = self.ledger.check(self.end)
        self.values: list[bytes | None] = []
        self.address = exports.address
        files = open_folder(exports.address)
        self.columns = SourceColumns.of(settings)
        self.listing = FolderListing(files, self.ledger, known, settings)
        open_file = next((IngestedFile(**row) for row in known.to_pylist() if row["done"] < row["rows"]), None)
        self.planner = Planner(files, self.listing, self.columns, Batch(**(batch or {})), open_file)

    @property
    def end(self) -> int:
        rows = (row for segment in self.ledger._segments for row in segment.rows.to_pylist())
        return max((row["first"] + row["done"] for row in rows), default=0)

    def plan(self) -> Plan | None:
        return self.planner.plan(self.end)

    def take(self) -> list[str]:
        """The keys of one unit, whose records are read as a task reads them."""
        while (plan := self.plan()) is not None:
            try:
                self.values += self.read(plan)
            except FileFailed as failed:
                self.planner.failed(failed)
                continue
            self.ledger.add(self.ledger.unit + 1, plan.files)
            self.planner.committed(plan)
            return [part.file.key for part in plan.parts]
        return []

    def read(self, plan: Plan) -> list[bytes | None]:
        share = FileShare(open_folder(self.address), self.columns, "files", plan.parts, 1000, 1 << 20, 1 << 20)
        batches = pickle.loads(pickle.dumps(share)).read()
        return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_files_are_taken_in_the_order_of_their_names_and_late_ones_after(tmp_path: Path, exports: Exports) -> None:
    taking = Taking(tmp_path, exports)
    for name in ("c.json", "a.json", "day=1/b.ndjson"):
        exports.write(name, LINES)
    assert taking.take() == ["a.json", "c.json", "day=1/b.ndjson"]
    assert taking.take() == []
    exports.write("b.jsonl", LINES)
    assert taking.take() == ["b.jsonl"]
    assert taking.values == VALUES * 4
    assert Taking(tmp_path, exports).take() == []


def test_a_list_begins_at_the_cursor_and_a_full_one_finds_the_rest(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking(tmp_path, exports, late_keys=3, full_list_s=1000.0)
    for number in range(10, 20):
        exports.write(f"{number}.json", LINES)
    assert len(taking.take()) == 10
    assert taking.take() == []
    listed: list[str] = []
    folder = taking.planner._folder
    files = folder.files

    def noting(after: str = "") -> Iterator[Listed]:
        for one in files(after):
            listed.append(one.key)
            yield one

    monkeypatch.setattr(folder, "files", noting)
    exports.write("18a.json", LINES)
    exports.write("05.json", LINES)
    assert taking.take() == ["18a.json"]
    assert "12.json" not in listed
    assert taking.take() == []
    taking.listing._full_due = 0
    assert taking.take() == ["05.json"]
    assert Taking(tmp_path, exports, late_keys=3).take() == []


def test_a_file_that_still_changes_waits(tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(tmp_path, exports, settle_s=1000.0)
    exports.write("a.json", LINES)
    if isinstance(exports, DiskExports):
        os.utime(exports.folder / "a.json", (1, 1))  # a copy with the time of its original
    assert taking.take() == []
    assert taking.planner.is_resting
    monkeypatch.setattr("spark_app.sources.files.listing.time.time", lambda: 1e12)
    assert taking.take() == ["a.json"]


def test_a_file_that_was_seen_unchanged_for_long_is_taken_whatever_the_clocks_say(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking(tmp_path, exports, settle_s=10.0)
    exports.write("a.json", LINES)
    monkeypatch.setattr("spark_app.sources.files.listing.time.time", lambda: 0.0)
    moment = [100.0]
    monkeypatch.setattr("spark_app.sources.files.listing.time.monotonic", lambda: moment[0])
    assert taking.take() == []
    moment[0] += 9
    assert taking.take() == []
    exports.write("a.json", json_text(VALUES[:1]).encode())
    moment[0] += 9
    assert taking.take() == []
    moment[0] += 11
    assert taking.take() == ["a.json"]


@pytest.mark.parametrize(
    ("name", "half", "why"),
    [
        ("a.json", json_text(VALUES)[:-5].encode(), "its last line has no end"),
        ("a.json", b"", "it is empty"),
        ("a.parquet", b"PAR1 half", "magic bytes"),
        ("a.parquet", b"", "size is 0 bytes"),
    ],
)
def test_a_half_written_file_is_named_and_taken_once_it_is_whole(
    tmp_path: Path, exports: Exports, name: str, half: bytes, why: str
) -> None:
    taking = Taking(tmp_path, exports)
    exports.write(name, half)
    exports.write("b.json", LINES)
    assert taking.take() == ["b.json"]
    assert why in taking.planner.broken[name]
    exports.write(name, LINES if name.endswith("json") else parquet_bytes(VALUES))
    assert taking.take() == [name]
    assert taking.planner.broken == {}


def test_a_broken_file_that_is_removed_is_no_longer_named(tmp_path: Path, exports: Exports) -> None:
    taking = Taking(tmp_path, exports)
    exports.write("a.parquet", b"x")
    assert taking.take() == []
    assert list(taking.planner.broken) == ["a.parquet"]
    exports.remove("a.parquet")
    assert taking.take() == []
    assert taking.planner.broken == {}


def test_a_parquet_file_without_the_column_says_so(tmp_path: Path, exports: Exports) -> None:
    taking = Taking(tmp_path, exports, value="payload")
    exports.write("a.parquet", parquet_bytes(VALUES))
    assert taking.take() == []
    assert taking.planner.broken == {"a.parquet": "it has no column payload (source.value)"}


def test_a_replaced_file_is_refused_by_name_and_the_same_content_is_not(tmp_path: Path, exports: Exports) -> None:
    taking = Taking(tmp_path, exports)
    exports.write("a.json", LINES)
    assert taking.take() == ["a.json"]
    exports.write("a.json", LINES)
    assert taking.take() == []
    exports.write("b.json", LINES)
    assert taking.take() == ["b.json"]
    again = Taking(tmp_path, exports)  # the ledger has the new time
    assert again.take() == []
    assert again.planner._touched == {}
    exports.write("a.json", json_text(VALUES[1:]).encode())
    for source in (taking, again, Taking(tmp_path, exports)):
        with pytest.raises(ContractError, match=r"a\.json was replaced after its records were ingested"):
            source.take()


def test_a_file_that_is_gone_before_it_is_planned_is_no_loss(tmp_path: Path, exports: Exports) -> None:
    taking = Taking(tmp_path, exports, batch={"max_records": 3})
    for name in ("a.json", "b.json", "c.json"):
        exports.write(name, LINES)
    assert taking.take() == ["a.json"]
    exports.remove("b.json")
    assert taking.take() == ["c.json"]


def test_a_file_server_that_does_not_answer_is_no_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = DiskExports(tmp_path / "in")
    taking = Taking(tmp_path, exports)
    exports.write("a.json", LINES)
    opened, codes = DiskFolder.open_input, [errno.ESTALE]

    def fail(folder: DiskFolder, listed: Listed) -> Any:
        if codes:
            raise OSError(codes.pop(), "no answer")
        return opened(folder, listed)

    monkeypatch.setattr(DiskFolder, "open_input", fail)
    with pytest.raises(OSError, match="no answer"):
        taking.plan()
    plan = taking.plan()
    assert plan is not None
    codes.append(errno.EMFILE)
    with pytest.raises(FileFailed) as failed:
        taking.read(plan)
    taking.planner.failed(failed.value)
    assert (taking.planner.broken, taking.take(), taking.values) == ({}, ["a.json"], VALUES)


def test_a_file_without_rows_is_neither_named_nor_looked_at_again(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking(tmp_path, exports)
    exports.write("a.parquet", parquet_bytes([]))
    assert taking.take() == []
    assert (taking.planner.broken, taking.planner.waiting) == ({}, 0)
    folder, looked = type(taking.listing._folder), list[str]()
    look = folder.look_at_all
    monkeypatch.setattr(folder, "look_at_all", lambda own, keys: looked.extend(keys) or look(own, keys))
    assert (taking.take(), looked) == ([], [])
    exports.write("a.parquet", parquet_bytes(VALUES))
    assert (taking.take(), taking.values) == (["a.parquet"], VALUES)


def test_lines_are_cut_into_pieces_at_their_ends(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.sources.files.scanning.PIECE_BYTES", 100)
    monkeypatch.setattr("spark_app.sources.files.scanning.CHUNK_BYTES", 7)
    taking = Taking(tmp_path, exports)
    values = [b"v%d" % number * (number % 40) for number in range(200)]
    exports.write("a.json", json_text(values).encode())
    plan = taking.plan()
    assert plan is not None
    pieces = [part.piece for part in plan.parts]
    assert len(pieces) > 20
    data = exports.read("a.json")
    assert b"".join(data[piece.start : piece.end] for piece in pieces) == data
    assert taking.read(plan) == values
    assert [piece.row for piece in pieces] == [data.count(b"\n", 0, piece.start) for piece in pieces]
    assert sum(piece.rows for piece in pieces) == plan.end == 200


def test_a_key_never_leaves_the_folder(exports: Exports) -> None:
    folder = open_folder(exports.address)
    for key in ("/etc/passwd", "../x", "a/../../x", "a\0b"):
        with pytest.raises(ValueError, match="is not below"):
            folder.uri(key)


def test_hidden_files_are_not_listed(exports: Exports) -> None:
    for name in (".a.json.tmp", "_SUCCESS", "_temporary/a.json", ".b.json", "d/c.json"):
        exports.write(name, LINES)
    assert [one.key for one in open_folder(exports.address).files()] == ["d/c.json"]


def test_files_that_are_kept_out_do_not_keep_out_others(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MOST_FOUND", 2)
    taking = Taking(tmp_path, exports)
    for name in "abc":
        exports.write(f"{name}.parquet", parquet_bytes([]))
    if isinstance(exports, DiskExports):
        os.symlink("e.json", exports.folder / "e.json")  # leads to itself
    exports.write("f.json", LINES)
    taken = [taking.take() for _ in range(4)]
    assert [keys for keys in taken if keys] == [["f.json"]]


def test_a_file_that_is_replaced_between_the_plan_and_its_task_is_read_as_one_content(
    tmp_path: Path, exports: Exports
) -> None:
    """The new one has the same size and, in a bucket, may have the same time."""
    taking = Taking(tmp_path, exports)
    exports.write("a.json", json_text(framed(3)).encode())
    exports.write("b.json", LINES)
    plan = taking.plan()
    assert plan is not None
    exports.write("a.json", json_text(framed(6, 3)).encode())
    with pytest.raises(FileFailed, match="was changed") as failed:
        taking.read(plan)
    taking.planner.failed(failed.value)
    assert taking.take() == ["a.json", "b.json"]
    assert taking.values == framed(6, 3) + VALUES
    exports.write("a.json", json_text(framed(9, 6)).encode())
    with pytest.raises(ContractError, match=r"a\.json was replaced after its records were ingested"):
        taking.take()


def test_late_twice_half_and_replaced(tmp_path: Path, exports: Exports) -> None:
    """Each record once, over restarts, whatever arrives in which order."""
    chance, values = random.Random(65), framed(400)
    texts = {f"day={n % 3}/{n:03d}.jsonl": json_text([value]).encode() for n, value in enumerate(values)}
    names = list(texts)
    chance.shuffle(names)
    half, taken = set(names[:20]), Counter[bytes | None]()

    def drain() -> Taking:
        taking = Taking(tmp_path, exports, batch={"max_records": 60}, late_keys=50)
        while taking.take():
            pass
        taken.update(taking.values)
        return taking

    for name in names[:200]:
        exports.write(name, texts[name][: len(texts[name]) // 2] if name in half else texts[name])
    assert drain().planner.broken.keys() == half
    for name in [*half, *names[200:], *chance.sample(names[20:200], 30)]:  # some with the same content once more
        exports.write(name, texts[name])
    assert drain().planner.broken == {}
    assert taken == Counter(values)
    exports.write(names[50], texts[names[51]])
    with pytest.raises(ContractError, match=f"{names[50]} was replaced"):
        drain()
    exports.write(names[50], texts[names[50]])
    assert drain().values == []


def test_a_file_whose_name_is_no_text_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    exports = DiskExports(tmp_path / "in")
    exports.write("a.json", LINES)
    for name in (b"b\xff.json", b"b\xff.txt"):
        Path(os.fsdecode(os.fsencode(exports.folder) + b"/" + name)).write_bytes(LINES)
    within = Path(os.fsdecode(os.fsencode(exports.folder) + b"/c\xe4/d.json"))
    within.parent.mkdir()
    within.write_bytes(LINES)
    taking = Taking(tmp_path, exports, late_keys=1)
    assert taking.take() == ["a.json"]
    assert list(taking.planner.broken) == [r"b\xff.json", r"c\xe4/d.json"]
    assert "not UTF-8" in taking.planner.broken[r"b\xff.json"]
    exports.write("e.json", LINES)
    assert taking.take() == ["e.json"]
    within.rename(exports.folder / "d.json")
    assert taking.take() == ["d.json"]
    assert list(taking.planner.broken) == [r"b\xff.json"]
