"""Writes `status.json` for the `status` command, health checks and the live table."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.lake import Lake
from spark_app.model.causes import DROPPED
from spark_app.model.errors import LeaseLost
from spark_app.model.events import Event
from spark_app.model.log import log
from spark_app.model.reports import Report, add_counts, add_outcomes, to_milliseconds
from spark_app.model.table_names import GOLD, TableNames
from spark_app.model.text import one_line

EVERY_S = 1.0
EVERY_S_IN_A_BUCKET = 5.0  # each time is a request that costs money
RATE_WINDOW_S = 60.0
STALE_S = 30.0  # an older status is that of an app that no longer runs
QUIET_S = 45.0  # Spark reports progress every ten seconds, even if there is no work
JOIN_S = 3.0
LOG_EVERY_S = 60.0


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class StatusSources:
    """The values that other parts of the app give each time the status is written.

    Attributes:
        lag: records that the source has and no unit includes; None = not known. It may call the JVM.
        quiet_s: seconds without progress.
        parts: fields of the status, of the parts that exist by now; the other fields keep their values.
    """

    lag: Callable[[], int | None] = lambda: None
    quiet_s: Callable[[], float] = float
    parts: Callable[[], dict[str, Any]] = dict


class Status:
    """Counters of the lake, written once a second by a thread of its own. Counts are rows unless their name differs.

    Attributes:
        emit: gets the reasons for waiting.
        progress: increases with each sign of progress except gold's, and each time a wait is checked again.
        value: the fields.
    """

    def __init__(
        self,
        lake: Lake,
        layout: TableNames,
        sources: StatusSources | None = None,
        emit: Callable[[Event], None] = lambda event: None,
    ):
        self._sources = sources or StatusSources()
        self.emit = emit
        self._lake = lake
        self._layout = layout
        old = read_json(lake.storage, lake.status) or {}
        self._lock = threading.Lock()
        self._failed: dict[str, dict[str, str]] = {}  # kind of gold tables, or follower -> table -> why it is behind
        self._recent: deque[tuple[float, int]] = deque()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._logged: dict[str, float] = {}
        self._killed = old.get("state") in ("starting", "running", "waiting")
        self.progress = 0
        self.value: dict[str, Any] = {
            "state": "starting",
            "reason": None,
            "pid": os.getpid(),
            "started_at": now(),
            "updated_at": now(),
            "starts": old.get("starts", 0) + 1,
            "bumps": old.get("bumps", 0),
            "batch": None,
            "rate": 0.0,
            "age_s": None,
            "lag": None,
            "held_back": {},
            "quiet_s": 0,
            # Values of the previous run, until the tables are counted; a run that never counts them keeps these.
            "bronze": old.get("bronze", 0),
            "deferred": old.get("deferred", 0),
            "quarantine": old.get("quarantine", {}),
            "quarantined": old.get("quarantined", {}),  # by cause, also those that a replay has inserted since
            "dropped": old.get("dropped", 0),
            "expectations": {},
            "paused": old.get("paused", {}),
            "schema_warnings": old.get("schema_warnings", {"count": 0, "newest": []}),
            "references": old.get("references", {}),
            "misfits": old.get("misfits", {}),  # schema -> a field that its records have with another wire type
            "lost": old.get("lost", {"ranges": 0, "offsets": 0}),
            "gold_failed": {},
            "gold_rows": {},
            "faults": {},  # setting -> why it does not fit the schemas
            "awaited": {},  # schema that records wait for -> why
            "source": None,  # of files, see `set_source`
            "executors": None,  # of a cluster whose executors follow the load, see `set_executors`
            "followers": old.get("followers", {}),
            "tables": old.get("tables", {}),
            "versions": old.get("versions", {}),
        }

    def start(self) -> None:
        if self._killed:
            log.warning("the last run was killed, or its machine stopped: this one goes on after its last unit")
        self._thread = threading.Thread(target=self._write_forever, name="status", daemon=True)
        self._thread.start()

    def set_rows(self, rows: dict[str, int], names: dict[str, str]) -> None:
        """Set the rows of the tables at the start; `names` are the admitted tables, routing value -> routing name."""
        with self._lock:
            self.value["bronze"] = rows.get(self._layout.bronze, 0)
            self.value["deferred"] = rows.get(self._layout.deferred, 0)
            known, self.value["tables"] = self.value["tables"], {}
            for name in names.values():
                table = self._table(name)
                table["schema_ids"] = known.get(name, table)["schema_ids"]
                table["failed"] = known.get(name, table).get("failed", {})  # an earlier release did not count them
                table["silver"] = rows.get(self._layout.silver_of(name), 0)
                table["gold"] = rows.get(self._layout.gold_of(name), 0)
                more = (gold for gold in self._layout.all_gold_of(name)[1:] if gold in rows)
                self.value["gold_rows"].update({gold: rows[gold] for gold in more})

    def set_quarantine(self, causes: dict[str, int]) -> None:
        """Set the open records by cause; those with `DROPPED` are not in quarantine."""
        with self._lock:
            self.value["dropped"] = causes.get(DROPPED, 0)
            self.value["quarantine"] = {cause: count for cause, count in causes.items() if cause != DROPPED}

    def set_lost(self, counts: dict[str, int]) -> None:
        """Set the number of accepted lost ranges, and of their offsets."""
        with self._lock:
            self.value["lost"] = counts

    def set_source(self, source: dict[str, Any]) -> None:
        """Set the values of a source of files, from `OpenedSource.describe`."""
        with self._lock:
            self.value["source"] = source

    def set_executors(self, executors: dict[str, int]) -> None:
        """Set the number of executors that are there ("now"), and of those that the load needs ("wanted")."""
        with self._lock:
            self.value["executors"] = executors

    def running(self) -> None:
        with self._lock:
            self.value.update(state="running", reason=None)

    def waiting(self, reason: str | None) -> None:
        """Set the reason for waiting; None = the app no longer waits."""
        reason = reason and one_line(reason)
        with self._lock:
            if reason != self.value["reason"]:
                self._report(reason)
            self.value.update(state="waiting" if reason else "running", reason=reason)
            self.progress += 1

    def end_wait(self, reason: str) -> None:
        """Clear this reason for waiting at the start; another reason stays."""
        with self._lock:
            if self.value["reason"] == reason:
                self.value.update(state="starting", reason=None)
            self.progress += 1

    def _report(self, reason: str | None) -> None:
        """Log each reason at most once a minute, because the reasons may alternate between broker and registry.
        Reasons that differ only by numbers are the same."""
        if reason is None:
            self.emit(Event("waiting", "The app goes on"))
            return log.info("continuing")
        key, now = re.sub(r"\d+", "", reason), time.monotonic()
        if now - self._logged.get(key, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged[key] = now
            self.emit(Event("waiting", f"The app waits: {reason}", "WARN"))
            log.warning("waiting", reason=reason)
        return None

    def set_blocked_offsets(self, offsets: dict[str, int]) -> None:
        """Set the offsets that an open transaction blocks: "<topic>/<partition>" -> number of offsets."""
        with self._lock:
            if offsets.keys() - self.value["held_back"].keys():
                remedy = "stop its producer, or abort it: kafka-transactions.sh find-hanging, then abort"
                log.warning("an open transaction blocks records", offsets=offsets, remedy=remedy)
            self.value["held_back"] = offsets

    def batch_done(self, sequence: int, report: Report, seconds: float) -> None:
        """Add a micro-batch from Kafka that is applied; `seconds` is its duration."""
        with self._lock:
            self.value["bronze"] += report.bronze
            self.value["deferred"] += report.deferred
            self.value["batch"] = {
                "sequence": sequence,
                "records": report.bronze,
                "seconds": round(seconds, 3),
                "steps": to_milliseconds(report.steps),
                "at": now(),
            }
            if report.newest is not None:
                self.value["age_s"] = round(max(0.0, time.time() - report.newest / 1e6), 3)
            self._recent.append((time.monotonic(), report.bronze))
            self._add(report)
            self.progress += 1
        log.debug("batch", unit=sequence, records=report.bronze, seconds=round(seconds, 3))

    def deferred_done(self, report: Report) -> None:
        """Add a unit of deferred records that is applied."""
        with self._lock:
            self.value["deferred"] -= report.bronze - report.deferred
            self._add(report)
            self.progress += 1

    def recovered(self, report: Report, resolved: dict[str, int]) -> None:
        """Add a unit of `replay` or `rebuild` that is applied; `resolved`: cause, or `DROPPED` -> records that are no
        longer open."""
        with self._lock:
            self.value["deferred"] += report.deferred
            self._add(report)
            self.progress += 1
            self.value["dropped"] -= resolved.get(DROPPED, 0)
            quarantine = self.value["quarantine"]
            add_counts(quarantine, {cause: -count for cause, count in resolved.items() if cause != DROPPED})
            self.value["quarantine"] = {cause: count for cause, count in quarantine.items() if count}

    def gold_done(self, kind: str, rows: dict[str, int], failed: dict[str, str]) -> None:
        """Set the rows per routing name of the gold tables of a kind after a run; `failed`: those of this kind that are
        behind silver -> why."""
        with self._lock:
            self._set_failed(kind, failed)
            for name, count in rows.items():
                if kind == GOLD:
                    self._table(name)["gold"] = count
                else:
                    self.value["gold_rows"][self._layout.gold_of(name, kind)] = count

    def sql_done(self, follower: str, rows: dict[str, int], failed: dict[str, str]) -> None:
        """As `gold_done`, for the tables of a statement; `rows` are by table."""
        with self._lock:
            self._set_failed(follower, failed)
            self.value["gold_rows"].update(rows)

    def _set_failed(self, follower: str, failed: dict[str, str]) -> None:
        self._failed[follower] = failed
        self.value["gold_failed"] = {table: why for own in self._failed.values() for table, why in own.items()}

    def end(self, state: str, reason: str | None, bump: bool = False) -> None:
        """Write the final status, even if the JVM no longer responds."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        with self._lock:
            self.value.update(state=state, reason=reason and one_line(reason))
            self.value["bumps"] += bump
        with contextlib.suppress(OSError):  # on a full disk the exit code is enough
            self._write()

    def _add(self, report: Report) -> None:
        for key in report.misfits.keys() - self.value["misfits"].keys():
            self.value["misfits"][key] = said = report.misfits[key]
            text = "Records have a field of another wire type than their schema, and its column is empty"
            log.warning(text, schema=key, said=said, remedy="see decode.other_wire_types")
            self.emit(Event("wire_type", f"{text} ({said})", "WARN", details={"schema": key}))
        add_counts(self.value["quarantine"], report.quarantine)
        add_counts(self.value["quarantined"], report.quarantine)
        self.value["dropped"] += report.dropped
        for rules in report.expectations.values():
            add_outcomes(self.value["expectations"], rules)
        for name, actions in report.by_action.items():
            add_counts(self._table(name)["failed"], actions)
        for name, count in report.silver.items():
            table = self._table(name)
            table["silver"] += count
            add_counts(table["schema_ids"], report.schema_ids.get(name, {}))

    def _table(self, name: str) -> dict[str, Any]:
        """The counts of a table; "failed": action of the rules -> rows that fail them."""
        new: dict[str, Any] = {"silver": 0, "gold": 0, "schema_ids": {}, "failed": {}}
        table: dict[str, Any] = self.value["tables"].setdefault(name, new)
        return table

    def _write_forever(self) -> None:
        failed = False
        while not self._done.wait(EVERY_S if self._lake.storage.is_local else EVERY_S_IN_A_BUCKET):
            try:
                self._write()
                failed = False
            except Exception as error:  # the thread must survive: it writes again once there is free disk space
                if not failed:
                    log.warning("status.json could not be written", reason=str(error))
                failed = True

    def _write(self) -> None:
        # At the end the JVM may no longer respond.
        lag = self.value["lag"] if self._done.is_set() else self._sources.lag()
        parts = self._sources.parts()
        with self._lock:
            moment = time.monotonic()
            while self._recent and self._recent[0][0] < moment - RATE_WINDOW_S:
                self._recent.popleft()
            rows = sum(count for _, count in self._recent)
            span = max(moment - self._recent[0][0], 1.0) if self._recent else 1.0
            quiet = round(self._sources.quiet_s(), 1)
            self.value.update(parts, rate=round(rows / span, 1), lag=lag, quiet_s=quiet, updated_at=now())
            with contextlib.suppress(LeaseLost):  # the status is that of the process that has the lease
                write_quickly(self._lake.storage, self._lake.status, self.value, step=None, owned=True)


def problem(value: dict[str, Any] | None) -> str | None:
    """Why a status is not healthy; None if it is healthy."""
    if value is None:
        return "no status yet"
    if value["state"] not in ("starting", "running", "waiting"):
        return f"{value['state']}: {value['reason'] or 'not running'}"
    written = datetime.datetime.fromisoformat(value["updated_at"])
    age = (datetime.datetime.now(datetime.UTC) - written).total_seconds()
    if age > STALE_S:
        return f"status.json was not updated for {age:.0f} s"
    if value["state"] != "running":
        return f"{value['state']}: {value['reason'] or 'not running'}"
    return f"no progress for {value['quiet_s']:.0f} s" if value.get("quiet_s", 0) > QUIET_S else None
