"""What a killed run left in the temporary folders is gone after the next start, and nothing of anybody else's."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.app import temporary_folders
from spark_app.lake.lake import Lake


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "tmp"


def started(lake: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a start from the same surroundings."""
    monkeypatch.setenv("TMPDIR", str(base))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    Lake(lake).prepare()
    temporary_folders.renew(Lake(lake))
    return Path(os.environ["TMPDIR"])


def test_the_next_start_removes_what_a_killed_one_left(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "of somebody else").touch()
    folder = started(tmp_path / "lake", base, monkeypatch)
    (folder / "spark-1").mkdir()
    (folder / "spark-1" / "block").touch()
    other = started(tmp_path / "other lake", base, monkeypatch)
    (other / "mine").touch()
    assert started(tmp_path / "lake", base, monkeypatch) == folder
    assert (list(folder.iterdir()), list(other.iterdir())) == ([], [other / "mine"])
    assert {path.name for path in base.iterdir()} == {"of somebody else", folder.name, other.name}
    assert (folder.stat().st_mode & 0o777, tempfile.gettempdir()) == (0o700, str(folder))


def test_folders_of_spark_are_used_too(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = [tmp_path / "a", tmp_path / "b"]
    for disk in disks:
        disk.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, disks)))
    temporary_folders.renew(Lake(tmp_path / "lake"))
    used = [Path(folder) for folder in os.environ["SPARK_LOCAL_DIRS"].split(",")]
    assert [folder.parent for folder in used] == disks
    assert all(folder.is_dir() for folder in used)
    assert Path(os.environ["TMPDIR"]).parent == base


@pytest.mark.parametrize("squatter", ["link", "file", "open folder", "folder of another user"])
def test_who_has_the_folders_name_neither_gets_its_contents_nor_stops_a_start(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squatter: str
) -> None:
    folder = started(tmp_path / "lake", base, monkeypatch)
    folder.rmdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    if squatter == "link":
        folder.symlink_to(tmp_path / "precious")
    elif squatter == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "theirs").touch()
        if squatter == "folder of another user":
            if os.getuid() != 0:
                pytest.skip("only root can give a folder to another user")
            os.chown(folder, 65534, 65534)
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # whose folder it is, nobody else may remove it
    used = started(tmp_path / "lake", base, monkeypatch)
    assert (used.parent, used.name.startswith(folder.name), used == folder) == (base, True, False)
    assert (used.lstat().st_mode & 0o777, used.lstat().st_uid) == (0o700, os.getuid())
    assert (tmp_path / "precious" / "file").exists()
    monkeypatch.undo()
    (used / "left").touch()
    assert started(tmp_path / "lake", base, monkeypatch) == used
    assert list(used.iterdir()) == []


def test_a_damaged_memory_of_the_folder_removes_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = started(tmp_path / "lake", base, monkeypatch)
    (tmp_path / "precious").mkdir()
    for name in ("../precious", "", str(tmp_path / "precious"), 7, None, f"{folder.name}-a/../../precious"):
        (tmp_path / "lake" / Lake.scratch).write_text(json.dumps({str(base): name}))
        assert started(tmp_path / "lake", base, monkeypatch) == folder
    assert (tmp_path / "precious").is_dir()


def test_what_cannot_be_removed_is_no_reason_to_stay_down(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = started(tmp_path / "lake", base, monkeypatch)
    (folder / "protoc still writes").touch()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert started(tmp_path / "lake", base / "not there yet", monkeypatch).is_dir()
    assert started(tmp_path / "lake", base, monkeypatch) == folder
