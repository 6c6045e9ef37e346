"""A limit on memory while a file of others is read: what was written in a few bytes may ask for any amount."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

MOST_MEMORY = 1 << 30  # besides what the process has; a line of 256 MiB takes four times as much


def made_within_limit(items: Iterable[T]) -> Iterator[T]:
    """The items; while each is made the system refuses memory over the limit. Only Linux does.

    Raises:
        ValueError: an item takes more.
    """
    left = iter(items)
    while True:
        before = resource.getrlimit(resource.RLIMIT_DATA)
        if sys.platform == "linux":
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[5]) * os.sysconf("SC_PAGESIZE")
            resource.setrlimit(resource.RLIMIT_DATA, (used + MOST_MEMORY, before[1]))
        try:
            item = next(left)
        except StopIteration:
            return
        except MemoryError:
            raise ValueError(f"it takes more than {MOST_MEMORY >> 20:,} MiB of memory at once") from None
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)
        yield item
