"""Disks of a test's own that are full from the beginning; where none can be mounted the test is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local.errors import LocalError
from tests.chaos.disk import fill, fill_files, small_disk


@contextlib.contextmanager
def full_disk(folder: Path, of_files: bool = False) -> Iterator[Path]:
    """Full of bytes, or of files."""
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(folder, "1m", 50 if of_files else 0))
        except LocalError as error:
            pytest.skip(str(error))
        fill_files(disk) if of_files else fill(disk)
        yield disk
