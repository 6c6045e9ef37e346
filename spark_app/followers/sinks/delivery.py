"""Sends the calls of plans: so many at a time, at most so many in a second, each until its end is known.

A call that the target refuses for good is divided until the refused row is alone. The rows of its first half are sent;
if they are accepted, the row is in the other half, of which again the first half is sent, and so on. What lies behind
the half in which the row must be waits, and is one call at the end. So a row costs about the binary logarithm of the
rows of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import itertools
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from spark_app.followers.sinks.json_rows import to_json
from spark_app.followers.sinks.ledger import Ending, Ledger, Line, open_spans
from spark_app.followers.sinks.plan import FREE, LANE, Part, Plan, lane_of
from spark_app.followers.sinks.sink import ERASE, KEY, OPERATION, Call, Outcome, Sink
from spark_app.model.errors import LeaseLost, last_message_line
from spark_app.model.log import log
from spark_app.model.record_schemas import LINEAGE_COORDINATES
from spark_app.model.text import one_line
from spark_app.settings.sinks import SinkSettings

POLL_S = 0.1  # between two looks for a plan
WRITE_EVERY_S = 0.2
IN_A_BUCKET_S = 1.0  # where each write costs money
MOST_UNWRITTEN = 100  # calls whose end is not in the ledger, of a sink that keeps their keys until they are in it
GRACE_S = 10.0  # at the end, for the answers of calls that were made
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 30.0
MOST_LOADED = 300_000  # rows in memory: one call that is repeated for long holds up none of the others
LONGEST_ANSWER = 500  # characters
PACE = 1.01  # a little slower than asked for, because the network delays calls by different times


@dataclass(frozen=True)
class Span:
    """Rows that one task delivers, one call after another.

    Attributes:
        part: its number in the plan.
        suspect: the end of the rows among which a refused one is; 0 = not known.
        lane: what it waits for; see `plan.LANE`.
    """

    opened: OpenPlan
    part: int
    start: int
    stop: int
    suspect: int
    lane: int


@dataclass(eq=False)
class OpenPlan:
    """A plan whose calls are being made.

    Attributes:
        rows: of each part, as they are in silver now, or as the plan has them.
        places: of each part: the row of the plan of each of these rows.
        left: spans whose end is not in the ledger.
        is_whole: whether all its parts are loaded.
    """

    plan: Plan
    rows: list[pa.Table] = field(default_factory=list)
    places: list[np.ndarray] = field(default_factory=list)
    left: int = 0
    is_whole: bool = False

    def call(self, key: str, part: int, start: int, stop: int) -> Call:
        first, end = start, stop
        if len(self.places[part]) < len(self.plan.parts[part].rows):
            first, end = np.searchsorted(self.places[part], (start, stop))
        own = self.plan.parts[part]
        rows = self.rows[part].slice(first, end - first)
        return Call(key, own.table, own.name, rows, own.names, own.replaces)


@dataclass
class Counts:
    """What this process has done for a sink, in calls and rows."""

    calls: int = 0
    accepted: int = 0
    rejected: int = 0
    gone: int = 0


class Delivery:
    """
    Attributes:
        down: why the target takes no calls at the moment; "" = it does.
        paused: why it waits for a person; "" = it does not.
        trouble: what keeps the sink from caring for its target, besides calls.
    """

    def __init__(
        self,
        sink: Sink,
        settings: SinkSettings,
        ledger: Ledger,
        *,
        key_of: Callable[[Plan, Part, int, int], str],
        load: Callable[[Part], tuple[pa.Table, np.ndarray]],
        done: Callable[[Plan], None],
    ):
        """
        Args:
            key_of: gives the key of a call.
            load: gives the rows of a part, and the place of each.
            done: called in another thread when the ledger has the end of every row of a plan.
        """
        self.down = self.paused = self.trouble = ""
        self.counts = Counts()
        self._sink = sink
        self._settings = settings
        self._ledger = ledger
        self._key_of = key_of
        self._load = load
        self._done = done
        self._is_async = inspect.iscoroutinefunction(sink.send)
        self._forget = getattr(sink, "forget", None)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sink")  # of one that is not
        self._open: list[OpenPlan] = []
        self._ready: asyncio.Queue[Span] = asyncio.Queue()
        self._lanes: dict[int, deque[Span]] = {}
        self._lines: list[tuple[OpenPlan, Line, bool]] = []  # and whether it is the last one of its span
        self._unwritten = 0  # lines that are not in the ledger
        self._due = asyncio.Event()  # there is something to write at once
        self._written = asyncio.Event()
        self._down_wait_s = 0.0
        self._probing = asyncio.Lock()
        self._next_at = 0.0
        self._sending = 0  # calls without an answer
        self._is_ending = False
        self._failures = 0  # in a row, of the target

    @property
    def is_idle(self) -> bool:
        """Whether all plans that it has got are done."""
        return not self._open

    async def run(self, next_plan: Callable[[], tuple[Plan, Sequence[Line]] | None], stop: Callable[[], bool]) -> None:
        """Deliver plans until `stop`; what is then not finished is done by the next process.

        Args:
            next_plan: gives the next plan and what the ledger has of it; None = there is none now.

        Raises:
            LeaseLost: another process delivers for this sink.
            OSError: the ledger cannot be written.
        """
        workers = [asyncio.create_task(self._work()) for _ in range(self._settings.in_flight)]
        tasks = [*workers, asyncio.create_task(self._write())]
        if hasattr(self._sink, "tend"):
            tasks.append(asyncio.create_task(self._tend()))
        try:
            while not stop():
                is_full = sum(one.plan.rows for one in self._open) >= MOST_LOADED
                found = None if is_full else next_plan()
                if found is not None:
                    await self._begin(*found)
                    continue
                ended, _ = await asyncio.wait(tasks, timeout=POLL_S, return_when=asyncio.FIRST_EXCEPTION)
                for task in ended:
                    task.result()
        finally:
            self._is_ending = True
            deadline = time.monotonic() + GRACE_S
            while self._sending and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._flush()
            if isinstance(closing := self._sink.close(), Awaitable):
                await closing
            self._thread.shutdown(wait=False)

    def pause(self, why: str) -> None:
        """Make no further calls; "" = go on."""
        self.paused = why

    async def _begin(self, plan: Plan, lines: Sequence[Line]) -> None:
        opened = OpenPlan(plan)
        self._open.append(opened)
        spans = []
        for number, part in enumerate(plan.parts):
            rows, places = await asyncio.to_thread(self._load, part)
            opened.rows.append(rows)
            opened.places.append(places)
            own = [line for line in lines if line.part == number]
            if part.replaces:  # one call, and those of a table one after another
                spans += [] if own else [Span(opened, number, 0, len(part.rows), 0, lane_of(part.table))]
                continue
            starts, lanes = part.starts, part.rows[LANE].to_numpy()
            for start, stop in itertools.pairwise(starts.tolist()):
                for first, end, suspect in open_spans(start, stop, own) if own else [(start, stop, 0)]:
                    spans.append(Span(opened, number, first, end, suspect, int(lanes[start])))
        opened.left, opened.is_whole = len(spans), True
        self._due.set()  # perhaps the ledger has the end of every row already
        for span in spans:
            if span.lane != FREE and span.lane in self._lanes:
                self._lanes[span.lane].append(span)
                continue
            if span.lane != FREE:
                self._lanes[span.lane] = deque()
            self._ready.put_nowait(span)

    async def _work(self) -> None:
        while True:
            span = await self._ready.get()
            await self._deliver(span)
            if span.lane != FREE:
                if waiting := self._lanes[span.lane]:
                    self._ready.put_nowait(waiting.popleft())
                else:
                    del self._lanes[span.lane]

    async def _deliver(self, span: Span) -> None:
        start, suspect = span.start, span.suspect
        while True:
            stop = _next_stop(start, suspect, span.stop)
            ending = await self._call(span, start, stop)
            if ending == "divided":
                suspect = stop
                continue
            if stop == span.stop:
                return
            start = stop
            suspect = 0 if start >= suspect else suspect

    async def _call(self, span: Span, start: int, stop: int) -> Ending:
        """Make a call until its end is known, and write that down."""
        plan, part = span.opened.plan, span.opened.plan.parts[span.part]
        call = span.opened.call(self._key_of(plan, part, start, stop), span.part, start, stop)
        began, outcome, attempts = time.monotonic(), Outcome(call.key, "accepted"), 0
        counted = 0
        while len(call.rows) or call.replaces:
            attempts += 1
            outcome = await self._attempt(replace(call, attempt=attempts))
            if outcome.result not in ("retry", "unavailable"):
                break
            if outcome.result == "unavailable":
                continue  # `_attempt` waits
            counted += 1
            if counted >= self._settings.attempts:
                if self._settings.give_up == "reject":
                    break
                self.paused = f"{call.table}: {attempts} attempts without success: {outcome.answer}"
                counted = 0
            await asyncio.sleep(max(outcome.wait_s, _wait_s(counted)))
        gone = stop - start - len(call.rows)
        is_single = len(call.rows) == 1 or call.replaces or outcome.result == "retry"
        ending: Ending = "accepted" if len(call.rows) or call.replaces else "gone"
        if outcome.result != "accepted":
            ending = "rejected" if is_single else "divided"
        line = Line(
            *(plan.number, span.part, start, stop, call.key, call.table, plan.unit, ending),
            *(outcome.status, attempts, round((time.monotonic() - began) * 1000, 1), int(time.time() * 1e6)),
            gone=gone,
            request=plan.again,
            answer=one_line(outcome.answer[:LONGEST_ANSWER]) if ending != "accepted" else "",
            rejects=[_name(row) for row in call.objects] if ending == "rejected" else (),
        )
        self._lines.append((span.opened, line, stop == span.stop and ending != "divided"))
        self._unwritten += 1
        is_full = self._forget is not None and self._unwritten >= MOST_UNWRITTEN
        if ending == "divided" or is_full:
            await self._until_written()
        if ending != "divided":
            self.counts.gone += gone
            self.counts.accepted += len(call.rows) if ending == "accepted" else 0
            self.counts.rejected += len(call.rows) if ending == "rejected" else 0
        return ending

    async def _attempt(self, call: Call) -> Outcome:
        """Send a call once; while the target is down, one call at a time tries it."""
        while self.paused or self._is_ending:  # a task that ends is cancelled here
            await asyncio.sleep(POLL_S)
        if not self.down:
            return await self._send(call)
        async with self._probing:
            if self.down:
                await asyncio.sleep(self._down_wait_s)
                return await self._send(call, is_probe=True)
        return await self._send(call)

    async def _send(self, call: Call, is_probe: bool = False) -> Outcome:
        if self._settings.calls_per_s:
            self._next_at = max(self._next_at + PACE / self._settings.calls_per_s, time.monotonic())
            await asyncio.sleep(self._next_at - time.monotonic())
        self.counts.calls += 1
        self._sending += 1
        try:
            if self._is_async:
                [outcome] = await cast("Awaitable[Sequence[Outcome]]", self._sink.send([call]))
            else:
                loop = asyncio.get_running_loop()
                sent = await loop.run_in_executor(self._thread, self._sink.send, [call])
                [outcome] = cast("Sequence[Outcome]", sent)
        except LeaseLost:
            raise
        except Exception as error:
            outcome = Outcome(call.key, "unavailable", answer=f"{type(error).__name__}: {last_message_line(error)}")
        finally:
            self._sending -= 1
        if outcome.result == "unavailable":
            self._failures += is_probe or not self.down  # calls that were made side by side fail together
            self._down_wait_s = max(outcome.wait_s, _wait_s(self._failures))
            self.down = one_line(outcome.answer[:LONGEST_ANSWER]) or f"status {outcome.status}"
        else:
            self._failures, self.down = 0, ""
        return outcome

    async def _tend(self) -> None:
        """Let the sink care for its target between calls."""
        sink: Any = self._sink
        while True:
            if not self.down and not self.paused:
                before, loop = self.trouble, asyncio.get_running_loop()
                self.trouble = one_line(str(await loop.run_in_executor(self._thread, sink.tend))[:LONGEST_ANSWER])
                if self.trouble not in ("", before):
                    log.error("a sink cannot do all that its target needs", reason=self.trouble)
            await asyncio.sleep(sink.tend_s)

    async def _until_written(self) -> None:
        written = self._written
        self._due.set()
        await written.wait()

    async def _write(self) -> None:
        """Write lines as they come, many at a time."""
        while True:
            # Not `wait_for`, which may lose a cancellation that comes at its end (before Python 3.12).
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITE_EVERY_S if self._ledger.is_local else IN_A_BUCKET_S):
                    await self._due.wait()
            self._due.clear()
            written, self._written = self._written, asyncio.Event()
            await self._flush()
            written.set()

    async def _flush(self) -> None:
        """Write the lines there are; then the plans with no row left are done."""
        lines, self._lines = self._lines, []
        if lines:
            await asyncio.to_thread(self._ledger.write, [line for _, line, _ in lines])
            self._unwritten -= len(lines)
            if self._forget is not None:
                self._thread.submit(self._forget, [line.key for _, line, _ in lines])
        for opened, _, is_last in lines:
            opened.left -= is_last
        for opened in [one for one in self._open if not one.left and one.is_whole]:
            await asyncio.to_thread(self._done, opened.plan)
            self._open = [one for one in self._open if one is not opened]


def _next_stop(start: int, suspect: int, stop: int) -> int:
    """The end of the next call: half of the rows among which the refused one is, or all there are."""
    if not suspect:
        return stop
    return suspect if suspect - start == 1 else start + (suspect - start) // 2


def _wait_s(attempts: int) -> float:
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(attempts - 1, 20)) * random.uniform(0.8, 1.2))


def _name(row: Mapping[str, Any]) -> str:
    """A rejected row: its coordinates, or the row itself if it has none."""
    if row.get(OPERATION) == ERASE:
        return to_json({"erased": hashlib.sha256(row[KEY].encode()).hexdigest()}).decode()
    if OPERATION in row:
        return to_json(row).decode()
    return to_json({name: row[name] for name in LINEAGE_COORDINATES}).decode()
