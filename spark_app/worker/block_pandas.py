"""What a worker process does not load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _Absent:
    """pandas, which pyarrow looks for when it makes its first array: a second of CPU in each worker, for nothing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is left out of workers", name=fullname)


def block_pandas() -> None:
    """For the life of this process, if it has not been loaded yet."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Absent())
