"""Keeps a process from importing pandas."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _Absent:
    """An import finder for which pandas does not exist. pyarrow imports pandas with its first array, which would take
    half a second of CPU in each process without any use."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not loaded in this process", name=fullname)


def block_pandas() -> None:
    """Block the import of pandas until this process exits. It has no effect if pandas is already imported."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Absent())


def spare_pandas() -> None:
    """Let pyarrow find no pandas: it looks once. PySpark still imports pandas where it needs it, for `mapInArrow`."""
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        import pyarrow

        pyarrow.array([0])
    finally:
        del sys.meta_path[sys.meta_path.index(absent)]
