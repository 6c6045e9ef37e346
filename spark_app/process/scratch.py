"""Temporary folders of the app's own, so that what a killed run left in them is removed by the next."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from spark_app.errors import ConfigurationError
from spark_app.lake import Lake
from spark_app.process import children
from spark_app.space import is_full, temporary_folders

REMEDY = "remove what is there, or name other folders with TMPDIR and SPARK_LOCAL_DIRS"


def renew(lake: Lake) -> None:
    """With the lake's lock: an empty folder for this lake in each temporary folder, for Python, Spark and the JVM.

    Raises:
        ConfigurationError: the folder cannot be made.
        OSError: the disk is full.
    """
    digest = hashlib.sha256(str(lake.root.resolve()).encode()).hexdigest()[:16]
    name = f"protolake-{os.getuid()}-{digest}"
    own, *of_spark = [_renew(folder / name) for folder in temporary_folders()]
    os.environ["TMPDIR"] = tempfile.tempdir = str(own)
    os.environ["SPARK_LOCAL_DIRS"] = ",".join(map(str, of_spark or [own]))


def _renew(folder: Path) -> Path:
    # A JVM whose driver was killed while it started holds no lock yet, and without its folder it would never end.
    children.kill_all(children.of_temporary_folder(folder))
    shutil.rmtree(folder, ignore_errors=True)  # but for what a protoc of the killed run may still write
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        if is_full(error):
            raise
        raise ConfigurationError(f"{folder} cannot be made ({error.strerror}): {REMEDY}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigurationError(f"{folder} is not a folder of user {os.getuid()}: {REMEDY}")
    return folder
