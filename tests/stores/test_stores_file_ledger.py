"""The ledger of taken files: each file once, whatever is killed, and a batch costs the same after many files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files import state_files
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.objects import ObjectStorage
from spark_app.model.errors import ContractError
from spark_app.sources.files.ingested import LEAST_MERGED, MOST_SEGMENTS, IngestedFile, IngestedFiles


def entry(key: str, first: int = 0, done: int = 1, rows: int = 1) -> IngestedFile:
    return IngestedFile(key, 10, 1, 1, "d" * 64, first, done, rows)


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.parquet"))


def test_what_was_added_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = IngestedFiles(LocalStorage(tmp_path), "taken")
    assert (ledger.unit, ledger.look_up(["a"])) == (0, {})
    ledger.add(3, [entry("a"), entry("b", 1)])
    ledger.add(5, [entry("c", 2, 1, 3)])
    ledger.add(6, [entry("c", 2, 3, 3)])
    again = IngestedFiles(LocalStorage(tmp_path), "taken")
    assert again.unit == 6
    assert again.look_up(["a", "c", "x"]) == {"a": entry("a"), "c": entry("c", 2, 3, 3)}
    assert sorted(again.check(5)["key"].to_pylist()) == ["a", "b", "c"]
    with pytest.raises(ContractError, match="has 5 rows of ingested files, but the last unit ended at 7"):
        again.check(7)


def test_segments_stay_few_and_each_entry_is_written_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    units = 1000

    class Counting(LocalStorage):
        def replace(self, key: str, data: bytes | memoryview, durable: bool = True) -> None:
            nonlocal written
            assert durable
            written += pa.parquet.read_metadata(pa.BufferReader(data)).num_rows
            super().replace(key, data, durable=False)

    ledger = IngestedFiles(Counting(tmp_path), "taken")
    for unit in range(1, units + 1):
        ledger.add(unit, [entry(f"{unit:05d}", unit - 1)])
        assert len(segments(tmp_path / "taken")) <= MOST_SEGMENTS
    again = IngestedFiles(LocalStorage(tmp_path), "taken")
    assert len(again.check(units)) == units
    assert written < units * 8


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_kill_around_a_merge_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    class Killed(BaseException):
        pass

    write = state_files.write_durably

    def killed(storage: LocalStorage, key: str, text: memoryview, name: str) -> None:
        if name != "taken.merge" or step == "after":
            write(storage, key, text, name)
        if name == "taken.merge":
            raise Killed

    monkeypatch.setattr("spark_app.sources.files.ingested.write_durably", killed)
    ledger = IngestedFiles(LocalStorage(tmp_path), "taken")
    for unit in range(1, MOST_SEGMENTS + 1):
        ledger.add(unit, [entry(f"{unit:05d}", unit - 1)])
    with pytest.raises(Killed):
        ledger.add(MOST_SEGMENTS + 1, [entry("last", MOST_SEGMENTS)])
    again = IngestedFiles(LocalStorage(tmp_path), "taken")
    assert len(again.check(MOST_SEGMENTS + 1)) == again.unit == MOST_SEGMENTS + 1
    assert len(segments(tmp_path / "taken")) == (MOST_SEGMENTS + 1 if step == "before" else 1)
    assert LEAST_MERGED < MOST_SEGMENTS


def test_a_damaged_segment_is_refused(tmp_path: Path) -> None:
    ledger = IngestedFiles(LocalStorage(tmp_path), "taken")
    ledger.add(1, [entry("a")])
    (tmp_path / "taken" / segments(tmp_path / "taken")[0]).write_bytes(b"PAR1")
    with pytest.raises(ContractError, match="is damaged"):
        IngestedFiles(LocalStorage(tmp_path), "taken")


def test_a_process_that_was_taken_over_in_a_merge_leaves_a_whole_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, number = LocalStorage(tmp_path), 0

    def add(ledger: IngestedFiles, files: int = 1) -> None:
        nonlocal number
        ledger.add(ledger.unit + 1, [entry(f"{number + n:05d}", number + n) for n in range(files)])
        number += files

    old = IngestedFiles(storage, "taken")
    with monkeypatch.context() as stopped:
        stopped.setattr(IngestedFiles, "_merge", lambda ledger: None)
        for unit in range(MOST_SEGMENTS + 1):
            add(old, 100 if unit == MOST_SEGMENTS + 1 - LEAST_MERGED else 1)
    new = IngestedFiles(storage, "taken")
    add(new)
    old._merge()
    names = segments(tmp_path / "taken")
    assert [name for name in names if name[:12] != name[13:25]] == names[-2:]  # they overlap
    assert names[-2][13:25] > names[-1][:12]
    again = IngestedFiles(storage, "taken")
    assert sorted(again.check(number)["key"].to_pylist()) == [f"{n:05d}" for n in range(number)]
    add(again)
    assert len(IngestedFiles(storage, "taken").check(number)) == number


def test_a_store_that_is_down_is_not_taken_for_a_damaged_segment(spoilt: ObjectStorage, proxy: StoreProxy) -> None:
    IngestedFiles(spoilt, "taken").add(1, [entry("a")])
    proxy.spoil("status", "GET|HEAD", status=403, code="AccessDenied", times=100)
    with pytest.raises(OSError, match="refuses access"):
        IngestedFiles(spoilt, "taken")
