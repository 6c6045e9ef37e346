"""The lake's folder: one writer, names that stay inside, files that are never half there, leftovers that go."""

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.state_files import read_json, write_durably, write_quickly
from spark_app.lake.lake import Lake, remove_files
from spark_app.model.errors import ConfigurationError, ContractError, ExitCode, UnreachableError
from tests.chaos.units import open_lake
from tests.support.examples import examples

HOLD = """
import fcntl, sys
handle = open(sys.argv[2], "a+")
getattr(fcntl, sys.argv[1])(handle, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another(lake: Lake, name: str, how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds one of the lake's locks; it lets go when its input ends."""
    command = [sys.executable, "-c", HOLD, how, str(lake.path(lake.state) / name)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.communicate()


@pytest.mark.parametrize(("name", "how"), [("lock", "flock"), ("lock.jvm", "lockf")], ids=["driver", "jvm"])
def test_second_process_is_refused(tmp_path: Path, name: str, how: str) -> None:
    lake = open_lake(tmp_path)
    with held_by_another(lake, name, how):
        with pytest.raises(UnreachableError, match="in use by another process") as caught:
            lake.lease.acquire(timeout_s=0.1)
        assert caught.value.exit_code is ExitCode.UNREACHABLE
    lake.lease.release()
    lake.lease.acquire(timeout_s=0.1)
    lake.lease.release()


def test_a_dying_jvm_is_waited_for(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    with held_by_another(lake, "lock.jvm", "lockf") as process:
        assert process.stdin is not None
        began = time.monotonic()
        timer = threading.Timer(0.5, process.stdin.close)
        timer.start()
        lake.lease.acquire(timeout_s=30)
        assert time.monotonic() - began >= 0.5
        process.stdin = None
        timer.join()
    lake.lease.release()


def test_the_lock_excludes_others_while_it_is_held(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    lake.lease.acquire(timeout_s=0.1)
    with pytest.raises(UnreachableError):
        Lake(tmp_path).lease.acquire(timeout_s=0.1)
    with (lake.path(lake.state) / "lock.jvm").open("a+") as handle:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # left to the JVM
    lake.lease.release()


@given(st.text(max_size=20) | st.sampled_from(["..", ".", "a/b", "/etc", "_protolake", "_protolake2", ".x", "a\0b"]))
@examples(0.5)
def test_a_table_is_a_folder_of_the_lake(name: str) -> None:
    lake = Lake("/lake")
    try:
        folder = lake.path(lake.table(name))
    except ContractError:
        return
    assert folder.parent == lake.root
    assert Path(os.path.normpath(folder)) == folder
    assert not folder.name.startswith((".", "_protolake"))


def test_identity_is_made_once_and_never_for_a_lake_that_had_one(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    identity = lake.identity()
    assert Lake(tmp_path).identity() == identity
    (lake.root / "bronze_events" / "_delta_log").mkdir(parents=True)
    (lake.path(lake.state) / "id").unlink()
    with pytest.raises(ContractError, match="restore it"):
        lake.identity()


def test_unwritable_lake_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"lake\.path"):
        Lake(tmp_path / "file").prepare()


def test_files_are_known_by_their_unit(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    table = lake.path("silver_a_events")
    table.mkdir()
    ours = [f"part-{number:012d}-abcd1234-00000-0-00000.parquet" for number in (6, 7, 8)]
    others = ["part-00000-c000.snappy.parquet", "part-00001-5e4c-c000.zstd.parquet", "x.parquet"]
    for name in ours + others:
        (table / name).touch()
    assert lake.files_from(7) == {"silver_a_events": [f"silver_a_events/{name}" for name in ours[1:]]}


def test_files_of_a_failed_pass_go(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    table = lake.path("silver_a_events")
    table.mkdir()
    for prefix in ("part-000000000001-aaaaaaaa", "part-000000000001-bbbbbbbb"):
        (table / f"{prefix}-00000-0-00000.parquet").touch()
    remove_files(lake.storage, "part-000000000001-aaaaaaaa")
    assert [path.name[:25] for path in table.iterdir()] == ["part-000000000001-bbbbbbb"]


@pytest.mark.parametrize("write", [write_durably, write_quickly])
def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, write: object) -> None:
    storage, path = LocalStorage(tmp_path), tmp_path / "f.json"
    seen, done = set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(path.read_bytes()))

    texts = ["1" * 10, "2" * 200_000]
    write_durably(storage, "f.json", texts[0], "ledger")
    reader = threading.Thread(target=look)
    reader.start()
    for number in range(60):
        if write is write_durably:
            write_durably(storage, "f.json", texts[number % 2], "ledger")
        else:
            write_quickly(storage, "f.json", int(texts[0]), None)
    done.set()
    reader.join()
    assert seen <= {len(text) for text in texts}
    assert [item.name for item in tmp_path.iterdir()] == ["f.json"]


def test_a_file_is_on_the_disk_before_its_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda number: (order.append("folder" if _is_folder(number) else "file"), fsync(number))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("rename"), rename(a, b)))
    write_durably(LocalStorage(tmp_path), "f", b"x", "ledger")
    assert order == ["file", "rename", "folder"]


def _is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def test_no_file_is_no_value(tmp_path: Path) -> None:
    assert read_json(LocalStorage(tmp_path), "nothing.json") is None
