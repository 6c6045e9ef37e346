"""Which files are due: new, whole, at rest and not replaced, wherever their names sort."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spark_app.intake import finding
from spark_app.intake.columns_of_source import SourceColumns
from spark_app.intake.finding import FolderListing
from spark_app.intake.planning import Plan, Planner
from spark_app.intake.source_folder import Listed, SourceFolder
from spark_app.intake.taken_files import TakenFiles
from spark_app.model.errors import ContractError
from spark_app.settings.models import Batch
from spark_app.settings.sources import Source
from spark_app.storage.local import LocalStorage
from tests.support.file_sources import json_text, replace_file, write_json, write_parquet

VALUES = [b"\0one", None, b"\0three"]


class Taking:
    """A source without Spark: what is planned counts as committed."""

    def __init__(self, tmp_path: Path, batch: dict[str, Any] | None = None, **source: Any):
        self.folder = tmp_path / "in"
        self.folder.mkdir(exist_ok=True)
        own = {"settle_s": 0.0, "full_list_s": 0.000001} | source
        settings = Source(kind="files", path=str(self.folder), **own)
        self.ledger = TakenFiles(LocalStorage(tmp_path / "lake"), "taken")
        known = self.ledger.check(self.end)
        files = SourceFolder(settings.path)
        self.listing = FolderListing(files, self.ledger, known, settings)
        self.planner = Planner(files, self.listing, SourceColumns.of(settings), Batch(**(batch or {})), None)

    @property
    def end(self) -> int:
        rows = (row for segment in self.ledger._segments for row in segment.rows.to_pylist())
        return max((row["first"] + row["done"] for row in rows), default=0)

    def plan(self) -> Plan | None:
        return self.planner.plan(self.end)

    def take(self) -> list[str]:
        """The keys of one unit."""
        plan = self.plan()
        if plan is None:
            return []
        self.ledger.add(self.ledger.unit + 1, plan.files)
        self.planner.committed(plan)
        return [part.file.key for part in plan.parts]


def test_files_are_taken_in_the_order_of_their_names_and_late_ones_after(tmp_path: Path) -> None:
    taking = Taking(tmp_path)
    for name in ("c.json", "a.json", "day=1/b.ndjson"):
        write_json(taking.folder / name, VALUES)
    assert taking.take() == ["a.json", "c.json", "day=1/b.ndjson"]
    assert taking.take() == []
    write_json(taking.folder / "b.jsonl", VALUES)
    assert taking.take() == ["b.jsonl"]
    assert Taking(tmp_path).take() == []


def test_a_list_begins_at_the_cursor_and_a_full_one_finds_the_rest(tmp_path: Path) -> None:
    taking = Taking(tmp_path, late_keys=3, full_list_s=1000.0)
    for number in range(10, 20):
        write_json(taking.folder / f"{number}.json", VALUES)
    assert len(taking.take()) == 10
    assert taking.take() == []
    listed: list[str] = []
    look = SourceFolder.look
    taking.planner._folder.look = lambda key: listed.append(key) or look(taking.planner._folder, key)  # type: ignore[method-assign]
    write_json(taking.folder / "18a.json", VALUES)
    write_json(taking.folder / "05.json", VALUES)
    assert taking.take() == ["18a.json"]
    assert "12.json" not in listed
    assert taking.take() == []
    taking.listing._full_due = 0
    assert taking.take() == ["05.json"]
    assert Taking(tmp_path, late_keys=3).take() == []


def test_a_file_that_still_changes_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(tmp_path, settle_s=1000.0)
    write_json(taking.folder / "a.json", VALUES)
    os.utime(taking.folder / "a.json", (1, 1))  # a copy with the time of its original
    assert taking.take() == []
    assert taking.planner.is_resting
    monkeypatch.setattr("spark_app.intake.finding.time.time", lambda: 1e12)
    assert taking.take() == ["a.json"]


def test_a_file_that_was_seen_unchanged_for_long_is_taken_whatever_the_clocks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking(tmp_path, settle_s=10.0)
    write_json(taking.folder / "a.json", VALUES)
    monkeypatch.setattr("spark_app.intake.finding.time.time", lambda: 0.0)
    moment = [100.0]
    monkeypatch.setattr("spark_app.intake.finding.time.monotonic", lambda: moment[0])
    assert taking.take() == []
    moment[0] += 9
    assert taking.take() == []
    (taking.folder / "a.json").write_text(json_text(VALUES[:1]))
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
    tmp_path: Path, name: str, half: bytes, why: str
) -> None:
    taking = Taking(tmp_path)
    (taking.folder / name).write_bytes(half)
    write_json(taking.folder / "b.json", VALUES)
    assert taking.take() == ["b.json"]
    assert why in taking.planner.broken[name]
    (write_json if name.endswith("json") else write_parquet)(taking.folder / name, VALUES)
    assert taking.take() == [name]
    assert taking.planner.broken == {}


def test_a_broken_file_that_is_removed_is_no_longer_named(tmp_path: Path) -> None:
    taking = Taking(tmp_path)
    (taking.folder / "a.parquet").write_bytes(b"x")
    assert taking.take() == []
    assert list(taking.planner.broken) == ["a.parquet"]
    (taking.folder / "a.parquet").unlink()
    assert taking.take() == []
    assert taking.planner.broken == {}


def test_a_parquet_file_without_the_column_says_so(tmp_path: Path) -> None:
    taking = Taking(tmp_path, value="payload")
    write_parquet(taking.folder / "a.parquet", VALUES)
    assert taking.take() == []
    assert taking.planner.broken == {"a.parquet": "it has no column payload (source.value)"}


def test_a_replaced_file_is_refused_by_name_and_the_same_content_is_not(tmp_path: Path) -> None:
    taking = Taking(tmp_path)
    write_json(taking.folder / "a.json", VALUES)
    assert taking.take() == ["a.json"]
    replace_file(taking.folder / "a.json", json_text(VALUES).encode())
    assert taking.take() == []
    write_json(taking.folder / "b.json", VALUES)
    assert taking.take() == ["b.json"]
    again = Taking(tmp_path)  # the ledger has the new time
    assert again.take() == []
    assert again.planner._touched == {}
    replace_file(taking.folder / "a.json", json_text(VALUES[1:]).encode())
    for source in (taking, again, Taking(tmp_path)):
        with pytest.raises(ContractError, match=r"a\.json was replaced after its records were taken"):
            source.take()


def test_a_file_that_is_gone_before_it_is_planned_is_no_loss(tmp_path: Path) -> None:
    taking = Taking(tmp_path, batch={"max_records": 3})
    for name in ("a.json", "b.json", "c.json"):
        write_json(taking.folder / name, VALUES)
    assert taking.take() == ["a.json"]
    (taking.folder / "b.json").unlink()
    assert taking.take() == ["c.json"]


def test_a_file_without_rows_is_not_named(tmp_path: Path) -> None:
    taking = Taking(tmp_path)
    write_parquet(taking.folder / "a.parquet", [])
    assert taking.take() == []
    assert (taking.planner.broken, taking.planner.waiting) == ({}, 0)


def test_lines_are_cut_into_pieces_at_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_app.intake.scanning.PIECE_BYTES", 100)
    monkeypatch.setattr("spark_app.intake.scanning.CHUNK_BYTES", 7)
    taking = Taking(tmp_path)
    values = [b"v%d" % number * (number % 40) for number in range(200)]
    write_json(taking.folder / "a.json", values)
    plan = taking.plan()
    assert plan is not None
    pieces = [part.piece for part in plan.parts]
    assert len(pieces) > 20
    data = (taking.folder / "a.json").read_bytes()
    assert b"".join(data[piece.start : piece.end] for piece in pieces) == data
    assert [piece.row for piece in pieces] == [data.count(b"\n", 0, piece.start) for piece in pieces]
    assert sum(piece.rows for piece in pieces) == plan.end == 200


def test_a_key_never_leaves_the_folder(tmp_path: Path) -> None:
    folder = SourceFolder(str(tmp_path))
    for key in ("/etc/passwd", "../x", "a/../../x", "a\0b"):
        with pytest.raises(ValueError, match="is not below"):
            folder.uri(key)


def test_hidden_files_are_not_listed(tmp_path: Path) -> None:
    for name in (".a.json.tmp", "_SUCCESS", "_temporary/a.json", ".b.json", "d/c.json"):
        write_json(tmp_path / name, VALUES)
    found: list[Listed] = list(SourceFolder(str(tmp_path)).files())
    assert [one.key for one in found] == ["d/c.json"]


def test_files_that_are_kept_out_do_not_keep_out_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_FOUND", 2)
    taking = Taking(tmp_path)
    for name in "abc":
        write_parquet(taking.folder / f"{name}.parquet", [])
    os.symlink("e.json", taking.folder / "e.json")  # leads to itself
    write_json(taking.folder / "f.json", VALUES)
    taken = [taking.take() for _ in range(4)]
    assert [keys for keys in taken if keys] == [["f.json"]]
