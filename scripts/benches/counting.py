"""Counts the requests to an object store, in a process of its own: some calls of delta-rs keep all threads of this one
waiting until the store has answered.

`with Counting(store.url) as counting: counting.url`, and `counting.take()` gives the requests since the last call.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from types import TracebackType
from typing import Self

from scripts.local.artifacts import ROOT
from scripts.local.store_proxy import StoreProxy


class Counting:
    """
    Attributes:
        url: what a client asks instead of the store.
    """

    def __init__(self, store: str):
        self._command = [sys.executable, "-m", "scripts.benches.counting", store]

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.url = self._stdout.readline().strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stdin.close()
        self._process.wait()
        self._stdout.close()

    def take(self, key: str = "") -> Counter[str]:
        """Verb -> number of requests since the last call about keys that match the pattern."""
        self._stdin.write(f"{key}\n")
        self._stdin.flush()
        return Counter(json.loads(self._stdout.readline()))


def main() -> None:
    """Answer each line of the input, a pattern, with a line of counts."""
    with StoreProxy(sys.argv[1]) as proxy:
        print(proxy.url, flush=True)
        for line in sys.stdin:
            print(json.dumps(proxy.counted(line.rstrip("\n"))), flush=True)
            proxy.forget()


if __name__ == "__main__":
    main()
