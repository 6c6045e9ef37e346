"""Full disks: which folder it is, what counts as one, and that a wait has an end."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.lake.files.disk import free_bytes, is_full, shortage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode
from spark_app.model.table_names import TableNames
from spark_app.units.driver.disk_space import DiskSpaceGuard, StopRequested
from spark_app.units.driver.status import Status
from tests.chaos.units import open_lake
from tests.support.disk import full_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with full_disk(tmp_path / "disk") as folder:
        yield folder


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (RuntimeError("Generic LocalFileSystem error: No space left on device (os error 28)"), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        ("org.apache.kafka.common.errors.TimeoutException", False),
    ],
)
def test_a_full_disk_is_known_by_its_words(error: BaseException | str, full: bool) -> None:
    assert is_full(error) is full


def test_the_folder_that_lacks_room_is_named(tmp_path: Path) -> None:
    assert shortage(tmp_path, 1) is None
    assert f"no space left at {tmp_path} (" in (shortage(tmp_path, 1 << 60) or "")
    assert shortage(tmp_path / "not there", 1 << 60) is None


def test_bytes_files_and_the_temporary_folder_are_looked_at(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"no space left at {disk} (0 MiB free)" in (shortage(disk, 1) or "")
    monkeypatch.setenv("TMPDIR", str(disk))
    assert f"no space left at {disk} (0 MiB free)" in (shortage(Path("/"), 1) or "")
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disk))
    assert f"no space left at {disk} (0 MiB free)" in (shortage(Path("/"), 1) or "")


def test_free_bytes_are_those_that_the_app_may_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = os.statvfs_result((4096, 512, 1000, 70, 50, 10, 9, 8, 0, 255))
    monkeypatch.setattr("spark_app.lake.files.disk.os.statvfs", lambda folder: sizes)
    assert free_bytes(Path("/")) == 50 * 512


def test_files_that_cannot_be_made_are_a_shortage_too(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk", of_files=True) as folder:
        assert "files free" in (shortage(folder, 1) or "")
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            Lake(folder).prepare()


def test_a_lake_on_a_full_disk_is_no_wrong_setting(disk: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        (disk / "file").write_bytes(b"x" * 100_000)
    assert is_full(caught.value)
    with pytest.raises(ConfigurationError):
        Lake("/proc/protolake").prepare()
    assert ExitCode.NO_SPACE == 73


def test_who_waits_for_room_says_so_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, stop = open_lake(tmp_path), threading.Event()
    status = Status(lake, TableNames())
    disk = DiskSpaceGuard(lake, 1 << 60, status, stop)
    monkeypatch.setattr("spark_app.units.driver.disk_space.WAIT_S", 0.01)
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(StopRequested):
        disk.wait()
    assert status.value["state"] == "waiting"
    assert f"no space left at {tmp_path}" in status.value["reason"]
    DiskSpaceGuard(lake, 1, status, threading.Event()).wait(OSError(errno.ENOSPC, "No space left on device"))


def test_who_holds_what_discarding_takes_may_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit in the making waits with the lock that is taken to discard one: there is one room for both."""
    monkeypatch.setattr("spark_app.units.driver.disk_space.WAIT_S", 0.01)
    lake, unit_lock, discarded = open_lake(tmp_path), threading.Lock(), []

    def discard() -> None:
        assert unit_lock.acquire(timeout=60), "a deadlock"
        discarded.append(1)
        unit_lock.release()

    disk = DiskSpaceGuard(lake, 1, Status(lake, TableNames()), threading.Event(), discard)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with unit_lock:
        disk.wait(full)
    assert discarded == []
    failures = [full, full]
    assert disk.retry(lambda: raise_one(failures) if failures else "done") == "done"
    assert discarded == [1, 1]


def raise_one(failures: list[OSError]) -> str:
    raise failures.pop()
