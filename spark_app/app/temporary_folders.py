"""The app's own temporary folders; each run empties those of a killed run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from spark_app.lake.files.disk import is_full, temporary_folders
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError

REMEDY = "set TMPDIR and SPARK_LOCAL_DIRS to other folders"


def renew(lake: Lake) -> None:
    """Create an empty folder for this lake in each temporary folder, for Python, Spark and the JVM. Call with the
    lake's lock.

    If another user owns that name, a random name is used and stored in the lake.

    Raises:
        ConfigurationError: the folder cannot be created.
        OSError: the disk is full.
    """
    names = _names(lake)
    folders = [_renew(Path(base), name, _usual(lake)) for base, name in names.items()]
    found = {str(folder.parent): folder.name for folder in folders}
    if found != names:
        write_quickly(lake.local_state, lake.scratch, found, None)
    tempfile.tempdir = str(folders[0])
    os.environ.update(variables(folders))


def begin(lake: Lake) -> list[Path]:
    """The folders that `renew` will most likely give, created if they are missing. No lock is needed.

    Raises:
        OSError: one cannot be created.
    """
    folders = [Path(base, name) for base, name in _names(lake).items()]
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folders


def variables(folders: list[Path]) -> dict[str, str]:
    """The variables that give these folders to Python, Spark and the JVM."""
    own, *of_spark = folders
    return {"TMPDIR": str(own), "SPARK_LOCAL_DIRS": ",".join(map(str, of_spark or [own]))}


def _names(lake: Lake) -> dict[str, str]:
    """Temporary folder -> name of this lake's folder in it."""
    usual, remembered = _usual(lake), read_json(lake.local_state, lake.scratch) or {}
    return {str(base): _name(remembered.get(str(base)), usual) for base in temporary_folders()}


def _usual(lake: Lake) -> str:
    digest = hashlib.sha256(str(lake.root.resolve()).encode()).hexdigest()[:16]
    return f"protolake-{os.getuid()}-{digest}"


def _name(remembered: object, usual: str) -> str:
    """The stored name, if it is one of this lake: everything in the folder is removed."""
    return remembered if isinstance(remembered, str) and re.fullmatch(usual + r"-\w+", remembered) else usual


def _renew(base: Path, name: str, usual: str) -> Path:
    folder = base / name
    shutil.rmtree(folder, ignore_errors=True)  # a protoc of the killed run may still write there
    try:
        base.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
        return Path(tempfile.mkdtemp(prefix=f"{usual}-", dir=base))
    except OSError as error:
        if is_full(error):
            raise
        raise ConfigurationError(f"{folder} cannot be created ({error.strerror}): {REMEDY}") from error
