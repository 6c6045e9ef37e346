"""A sink that this process delivers for: one thread plans its calls, another one sends them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_app.followers.follower import Units
from spark_app.followers.runner import FollowerRunner
from spark_app.followers.sinks import state
from spark_app.followers.sinks.changes import ChangePlanner
from spark_app.followers.sinks.delivery import Delivery
from spark_app.followers.sinks.ledger import Ledger, Line, ledger_folder, writer_of
from spark_app.followers.sinks.plan import CALL, LANE, MOST_PLACES, Head, Part, Plan, Plans, number_of
from spark_app.followers.sinks.planner import UnitPlanner
from spark_app.followers.sinks.silver_rows import ROW, SilverRows
from spark_app.followers.sinks.sink import Sink, made_by
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, LeaseLost, last_message_line
from spark_app.model.log import log
from spark_app.settings.models import Settings

if TYPE_CHECKING:
    from spark_app.followers.sinks.roles import Rights

TELL_EVERY_S, CLEAN_EVERY_S, POLL_S = 1.0, 30.0, 0.05
IN_A_BUCKET_S = 5.0  # at least so long between two looks for units, each of which costs money
AGAIN_S = 1.0  # after a failure
# Settings that change no row of a planned call: a new value of one gives no call another key.
PACING: Any = dict.fromkeys(("max_wait_s", "in_flight", "calls_per_s", "attempts", "give_up", "begin"), True)
PACING |= dict.fromkeys(("rows_per_call", "order", "where", "key", "tables"), True) | {
    "kafka": {"brokers", "registry_url"},
    "rest": {"timeout_s", "auth", "retry_on", "drop_on", "allow_private"},
    "postgres": {"timeout_s", "dsn_file", "keep_days"},
}


def take(lake: Lake, name: str, lost: threading.Event) -> None:
    """Become the process that delivers for a sink.

    Args:
        lost: is set when another process has taken over.

    Raises:
        UnreachableError: another process delivers for it.
    """
    lake.local_state.create_folders(lake.sink(name))
    lake.storage.create_folders(f"{lake.sink(name)}/plans", ledger_folder(lake.sink(name)))
    lake.lease.acquire(on_lost=lambda said: lost.set())
    failpoints.arm(lake.root)


class OpenSink:
    """A sink that this process delivers for, see `take`."""

    def __init__(
        self,
        lake: Lake,
        name: str,
        settings: Settings,
        accepted: int,
        lost: threading.Event,
        rights: Rights | None = None,
    ):
        """
        Raises:
            ConfigurationError: its settings are wrong.
        """
        self._lake = lake
        self._name = name
        self._sink = settings.all_sinks[name]
        self._folder = lake.sink(name)
        self._lost = lost
        content = self._sink.model_dump(mode="json", exclude=PACING, exclude_defaults=True)
        self._definition = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        self._identity = lake.known_identity()
        self._layout = settings.layout
        self._tables = Tables(lake, settings.lake, settings.layout)
        self._rows = SilverRows(lake, settings, name, self._sink)
        self._manifests = Manifests(lake, settings.layout)
        self._target = sink_of(name, settings, lake, rights)
        self._owns = bool(getattr(self._target, "owns_tables", False))
        self._planner: UnitPlanner | ChangePlanner
        if self._sink.is_append:
            rows = SilverRows(lake, settings, name, self._sink)  # its handles are for one thread
            self._planner = UnitPlanner(name, self._sink, lake, self._folder, rows, self._owns)
        else:
            self._planner = ChangePlanner(name, settings, lake, self._target)
        self._runner = FollowerRunner(self._planner, lake, self._manifests, accepted=accepted)
        self._plans = Plans(lake, self._folder)
        self._ledger = Ledger(lake, self._folder)
        self._delivery = Delivery(
            self._target, self._sink, self._ledger, key_of=self._key_of, load=self._load, done=self._end
        )
        self._waiting: deque[Head] = deque()  # the plans that are not begun
        self._begun: dict[str, Head] = {}  # number -> those that are
        self._lines: dict[str, list[Line]] = {}  # what the ledger had of them at the start
        self._is_current = False  # whether all units there are were planned
        self._before = state.read(lake, name)
        self._told: dict[str, Any] = {}
        self._told_at = self._cleaned_at = float("-inf")
        self._resent = self._before.get("resent", 0)
        self._is_pause_stored = False
        self._failed = ""  # why it does not plan
        self._lanes = self._sink.lanes  # of the plans that are being sent
        self._over = threading.Event()

    def run(self, stop: threading.Event, once: bool = False) -> None:
        """Plan and send until `stop`, or until all that there is now is delivered.

        Raises:
            LeaseLost: another process has taken over.
            ProtolakeError, OSError: the lake or the settings do not allow it.
        """
        self._target.open(self._sink.options)
        self._manifests.look_again()
        self._runner.begin()
        self._lines = self._ledger.read()
        for key, _ in state.requests(self._lake, self._name):  # a crash has left a part of their plans
            self._forget_plans_of(state.id_of(key))
        self._waiting.extend(self._plans.read(number).head for number in self._plans.numbers())
        self._planner.made.clear()  # they are among these

        def ends() -> bool:
            is_done = self._is_current and not self._waiting and self._delivery.is_idle
            return stop.is_set() or self._lost.is_set() or (once and (is_done or bool(self._failed)))

        planning = threading.Thread(target=self._plan_until, args=(ends,), name=f"plan-{self._name}", daemon=True)
        planning.start()
        try:
            asyncio.run(self._delivery.run(self._next, ends))
        finally:
            self._over.set()
            planning.join()
        if self._lost.is_set():
            raise LeaseLost(f"another process delivers for sink {self._name} now")
        if once and self._failed:
            raise ConfigurationError(f"sink {self._name}: {self._failed}")

    def _plan_until(self, ends: Callable[[], bool]) -> None:
        interval_s = self._sink.max_wait_s if self._lake.storage.is_local else max(self._sink.max_wait_s, IN_A_BUCKET_S)
        next_plan = 0.0
        while not ends() and not self._over.wait(POLL_S):
            try:
                if time.monotonic() >= next_plan:
                    next_plan = time.monotonic() + interval_s
                    self._plan()
                self._tell()
                self._clean()
            except LeaseLost:
                self._lost.set()
                break
            except Exception as error:  # sending goes on meanwhile
                self._failed = last_message_line(error)
                log.error("a sink cannot plan, and tries again", sink=self._name, reason=self._failed)
                self._lost.wait(AGAIN_S)
        else:
            self._over.wait()  # the last calls get their lines before the last word
            self._told_at = self._cleaned_at = float("-inf")
        with contextlib.suppress(OSError, LeaseLost):
            self._lake.lease.check()
            self._tell()
            self._clean()

    def _plan(self) -> None:
        self._manifests.look_again()
        newest = self._manifests.applied()
        if not self._attempt():
            return
        asked = state.requests(self._lake, self._name)
        for key, wanted in asked:
            self._forget_plans_of(state.id_of(key))  # an attempt before this one has failed in the middle
            units = Units.since(self._lake, self._manifests, min(wanted.get("from", 1), self._runner.cursor) - 1)
            if "erase" in wanted:
                self._erase(state.id_of(key), wanted["erase"])
            else:
                self._planner.again(state.id_of(key), wanted, replace(units, upto=self._runner.cursor))
        if asked and not self._attempt():
            return
        self._runner.flush()
        for key, wanted in asked:
            self._resent = max(self._resent, wanted.get("upto", 0))
            self._lake.storage.delete(key)
        self._waiting.extend(self._planner.made)
        self._planner.made.clear()
        self._is_current = self._runner.cursor >= newest

    def _attempt(self) -> bool:
        """Plan what is new; False if that fails.

        Raises:
            LeaseLost: another process has taken over, perhaps for this reason.
        """
        self._runner.attempt()
        self._failed = self._runner.failed or self._runner.paused or ""
        if self._failed:
            self._lake.lease.check()
        return not self._failed

    def _erase(self, request: str, keys: Sequence[str]) -> None:
        if not getattr(self._target, "can_erase", False):
            log.warning("a sink cannot tell its target whom to forget", sink=self._name, remedy="set on_erase")
            return
        number = number_of(self._runner.cursor, MOST_PLACES, request)
        plan = Plan(number, self._runner.cursor, [Part.of_erased(keys)], request, self._sink.lanes)
        self._plans.store(plan)
        self._planner.made.append(plan.head)

    def _forget_plans_of(self, request: str) -> None:
        self._planner.made[:] = [one for one in self._planner.made if not one.number.endswith(request)]
        for number in self._plans.numbers():
            if number.endswith(request):
                self._plans.forget(number)

    def _next(self) -> tuple[Plan, Sequence[Line]] | None:
        if not self._waiting:
            return None
        head = self._waiting[0]
        if head.lanes != self._lanes and not self._delivery.is_idle:
            return None
        plan = self._plans.read(head.number)
        self._lanes = head.lanes
        self._begun[head.number] = head
        self._waiting.popleft()
        return plan, self._lines.pop(head.number, ())

    def _end(self, plan: Plan) -> None:
        self._plans.forget(plan.number)
        del self._begun[plan.number]

    def _key_of(self, plan: Plan, part: Part, start: int, stop: int) -> str:
        # The same rows may change back, or replace a table again: that is another call.
        of = plan.number if part.has_rows or part.replaces else plan.unit
        what = (self._identity, self._name, self._definition, of, plan.again, part.table)
        return hashlib.sha256(json.dumps([*what, part.identity(start, stop)]).encode()).hexdigest()[:32]

    def _load(self, part: Part) -> tuple[pa.Table, np.ndarray]:
        rows = part.rows.drop_columns([CALL, LANE])
        if part.has_rows:
            return rows, np.arange(len(rows))
        found = self._rows.find(part.table, part.files, rows)
        return found.drop_columns(ROW), found[ROW].to_numpy()

    def _open(self) -> list[Head]:
        return [*list(self._waiting), *list(self._begun.values())]

    def _clean(self) -> None:
        """Remove the files of the ledger that neither the app nor a plan needs."""
        if time.monotonic() < self._cleaned_at + CLEAN_EVERY_S:
            return
        self._cleaned_at = time.monotonic()
        table = self._tables.look_again(self._layout.sink_calls)
        moved = table.transaction_version(writer_of(self._identity, self._name)) if table is not None else None
        if moved:
            self._ledger.forget(moved, [head.number for head in self._open()])

    def tell_end(self, why: str) -> None:
        """Write down why it ends."""
        self._lake.lease.check()
        self._failed = why
        self._told_at = float("-inf")
        self._tell()

    def _tell(self) -> None:
        """Write down how it goes, for people."""
        if time.monotonic() < self._told_at + TELL_EVERY_S:
            return
        self._told_at = time.monotonic()
        waits_for = state.pause_of(self._lake, self._name)
        if waits_for is None and self._delivery.paused and self._is_pause_stored:
            self._delivery.pause("")
        elif waits_for is None and self._delivery.paused:
            state.pause(self._lake, self._name, self._delivery.paused)
        elif waits_for is not None:
            self._delivery.pause(waits_for or "a person has paused it")
        self._is_pause_stored = bool(self._delivery.paused)
        delivery, counts = self._delivery, self._delivery.counts
        heads = self._open()
        failed = self._failed
        now = "paused" if delivery.paused else "failed" if failed else "down" if delivery.down else "running"
        done = {name: self._before.get(name, 0) + value for name, value in vars(counts).items()}
        found = {
            "state": now,
            "from": self._sink.source,
            "tables": list(self._sink.tables),
            "reason": delivery.paused or failed or delivery.down or self._planner.trouble or delivery.trouble,
            "planned": self._runner.cursor,
            "waiting": sum(head.rows for head in heads),
            "waits_since": min((head.at for head in heads), default=None),
            "resent": self._resent,
            **done,
            "gone": done["gone"] + self._planner.gone,
        }
        if found != self._told:
            self._told = found
            state.tell(self._lake, self._name, found)


def sink_of(name: str, settings: Settings, lake: Lake, rights: Rights | None = None) -> Sink:
    """
    Raises:
        ConfigurationError: there is no such kind.
    """
    sink = settings.all_sinks[name]  # a kind loads a client that no other one needs
    if sink.rest is not None:
        from spark_app.followers.sinks.rest import RestSink

        return RestSink(name, sink.rest, sink.in_flight)
    if sink.kafka is not None:
        from spark_app.followers.sinks.kafka import KafkaSink

        return KafkaSink(name, settings, lake)
    if sink.postgres is not None:
        from spark_app.followers.sinks.postgres import PostgresSink
        from spark_app.followers.sinks.served import ServeSink

        if name in settings.serve.sinks:
            return ServeSink(name, settings, lake, rights)
        return PostgresSink(name, sink.postgres)
    return made_by(sink.kind)
