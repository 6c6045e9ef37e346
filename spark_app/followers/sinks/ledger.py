"""The ledger of a sink: what became of each call. The app moves its lines into the tables of calls and of rejects.

    _protolake/sinks/crm/ledger/00001764106000000000.jsonl    {"number": ..., "plan": ..., "key": ..., "result": ...}

A line is durable before the plan of its call is forgotten, and before a divided call is sent in parts.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from spark_app.lake.lake import Lake
from spark_app.lake.spool import Spool

Ending = Literal["accepted", "divided", "rejected", "gone"]


@dataclass(frozen=True)
class Line:
    """What became of a call.

    Attributes:
        plan, part, start, stop: the rows of the call in its plan.
        result: accepted; divided = refused, so its rows are sent in smaller calls; rejected = its rows are in
            `sink_rejects`; gone = silver has none of its rows any more.
        gone: rows of the call that silver has no longer.
        request: by which it was sent again; "" = it was not.
        answer: of a call that was not accepted.
        rejects: the coordinates of each rejected row, or the row, as JSON.
        at: microseconds since 1970.
    """

    plan: str
    part: int
    start: int
    stop: int
    key: str
    table: str
    unit: int
    result: Ending
    status: int
    attempts: int
    ms: float
    at: int
    gone: int = 0
    request: str = ""
    answer: str = ""
    rejects: Sequence[str] = ()


class Ledger:
    def __init__(self, lake: Lake, folder: str):
        self.is_local = lake.storage.is_local
        self._lease = lake.lease
        self._spool = Spool(lake.storage, ledger_folder(folder))
        self._writing = threading.Lock()

    def write(self, lines: Iterable[Line]) -> None:
        """Store lines durably.

        Raises:
            OSError: some of them may be stored.
            LeaseLost: another process delivers for this sink.
        """
        self._lease.check()
        with self._writing:
            self._spool.write([self._spool.numbered(asdict(line)) for line in lines])

    def read(self) -> dict[str, list[Line]]:
        """Plan -> its lines that are still there."""
        found = defaultdict(list)
        for line in self._spool.read().values():
            found[line["plan"]].append(Line(**line))
        return found

    def forget(self, moved: int, kept: Iterable[str]) -> None:
        """Remove files whose lines the app has moved, unless a plan needs them.

        Args:
            moved: the number of the last line that is in the table.
            kept: the plans that are not delivered.
        """
        needed = set(kept)
        numbers = (number for number, line in self._spool.read().items() if line["plan"] in needed)
        self._spool.forget(min([moved, *(number - 1 for number in numbers)]))


def ledger_folder(folder: str) -> str:
    """The key of the folder of the ledger in that of a sink."""
    return f"{folder}/ledger"


def writer_of(identity: str, name: str) -> str:
    """The transaction of the table of calls with the number of the last line of a sink that is in it."""
    return f"{identity}/sinks/{name}"


def open_spans(start: int, stop: int, lines: Iterable[Line]) -> list[tuple[int, int, int]]:
    """What is left of a call: of each stretch of rows (start, stop, the end of those among which a refused one is; 0 =
    not known).

    Args:
        lines: those of its part, in the order in which they were written.
    """
    own = [line for line in lines if start <= line.start and line.stop <= stop]
    done = sorted((line.start, line.stop) for line in own if line.result != "divided")
    found, at = [], start
    for begin, end in [*done, (stop, stop)]:
        if begin > at:
            # As the process that made these calls: it looks for the row in what it has divided last, until that ends.
            suspect = next((line.stop for line in reversed(own) if line.result == "divided" and line.start <= at), 0)
            found.append((at, begin, suspect if at < suspect <= begin else 0))
        at = max(at, end)
    return found
