"""Rules of all four actions, on records that are planted to break them, while the app is killed at random moments and
paused tables are resumed: each failure is counted once, and each record has one end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil  # type: ignore[import-untyped]

from spark_app.model.errors import ExitCode
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.planted import Expected, count_pauses, differences, quarantined_by_resume, read_ledger
from tests.chaos.scenarios import Size
from tests.chaos.scenarios.failpoints import GAMES
from tests.chaos.scenarios.kills import AT_ONCE, UNITS_PER_LIFE, Lives, count_exit, live
from tests.chaos.stage import Stage, kill

PAUSED = ("rummy", "uno")
PLANTED = "no_player=0.005,test_device=0.005,future_time=0.005,no_device=0.005"
RULES: dict[str, dict[str, Any]] = {
    "known_player": {"check": "gamer_id <> ''", "action": "quarantine"},
    "no_test_devices": {"check": "NOT starts_with(coalesce(device_id, ''), 'test-')", "action": "drop"},
    "plausible_time": {"check": "event_timestamp <= _kafka_timestamp + INTERVAL 1 HOUR", "action": "warn"},
    "known_device": {"check": "device_id <> ''", "action": "pause", "tables": PAUSED},
}
CHANGED = RULES | {"known_device": RULES["known_device"] | {"action": "warn"}}
EXPECTED = Expected(
    rules={
        "no_player": "known_player",
        "test_device": "no_test_devices",
        "future_time": "plausible_time",
        "no_device": "known_device",
    },
    quarantined="no_player",
    dropped="test_device",
    pausing="no_device",
    paused=PAUSED,
)
LOT = 2_000  # records; by far more than a table needs to be paused
FEWEST_PAUSES = 3  # of one table
CALM_S = 600.0  # at most, for so many pauses on a busy machine
LOOKS_S = 0.3
ANSWERS = (ExitCode.DONE, ExitCode.USAGE, ExitCode.UNREACHABLE)  # USAGE: the table has gone on meanwhile


@dataclass
class Resumer:
    """Resumes each paused table of a running app, by the command, and lets chance decide about the failing rows."""

    stage: Stage
    dice: Random
    requests: dict[str, int] = field(default_factory=dict)  # decision -> requests
    faults: dict[str, object] = field(default_factory=dict)
    seen: dict[str, set[float]] = field(default_factory=dict)  # routing name -> begins of its pauses
    _command: subprocess.Popen[bytes] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, name="resumer")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            if self._command is not None:
                kill(self._command)  # its request stays, and the app executes it

    def has_seen_enough(self) -> bool:
        """Whether one table was paused often enough."""
        return max(map(len, self.seen.values()), default=0) >= FEWEST_PAUSES

    def _work(self) -> None:
        while not self._ended.wait(LOOKS_S):
            if self._command is None:
                self._ask()
            elif self._command.poll() is not None:
                if self._command.returncode not in ANSWERS:
                    self.faults["resume"] = self._command.returncode
                self._command = None

    def _ask(self) -> None:
        status = self.stage.status()
        paused = status.get("paused", {})
        for name, pause in paused.items():
            self.seen.setdefault(name, set()).add(pause["since"])
        waiting = [name for name, pause in paused.items() if not pause["let_in"]]
        if waiting and status["state"] == "running" and psutil.pid_exists(status["pid"]):
            failing = self.dice.choice(("quarantine", "land"))
            self._command = self.stage.spawn("resume", self.dice.choice(waiting), "--failing", failing)
            self.requests[failing] = self.requests.get(failing, 0) + 1


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Kill so often while records are produced, ingested, and let in; change the rule that pauses; compare."""
    stage = lab.stage(
        BATCH__INTERVAL_S="0",
        BATCH__MAX_RECORDS=str(max(500, size.records // (size.times * UNITS_PER_LIFE))),
        GOLD__INTERVAL_S="0.7",
        LAKE__COMPACT_FILES="8",
        LAKE__KEEP_MANIFESTS="10000000",
        SCHEMAS__UNKNOWN_ID_GRACE_S="1",
        EXPECTATIONS=json.dumps(RULES),
    )
    lives, resumer = Lives(), Resumer(stage, Random(dice.random()))
    with ThreadPoolExecutor(1) as producer, resumer.at_work():
        sending = producer.submit(_produce, stage, size.records)
        while sum(lives.kills.values()) < size.times or not sending.done():
            live(stage, dice, lives)
        sending.result()
        _live_calmly(stage, resumer, lives)
    faults: dict[str, object] = lives.faults | resumer.faults | _change_rule(stage)
    pauses = count_pauses(stage.lake)
    if max(pauses.values(), default=0) < FEWEST_PAUSES:
        faults[f"no table was paused {FEWEST_PAUSES} times"] = pauses
    figures = {
        "records": len(read_ledger(stage.acks)),
        **{f"kills_of_{victim}": count for victim, count in lives.kills.items()},
        **{f"pauses_of_{name}": count for name, count in sorted(pauses.items())},
        **{f"resumed_to_{failing}": count for failing, count in sorted(resumer.requests.items())},
        "quarantined_by_resume": len(quarantined_by_resume(stage.lake, EXPECTED)),
    }
    faults |= differences(stage.lake, stage.acks, EXPECTED) | stage.verify()
    return Outcome(sum(lives.kills.values()), faults, figures)


def _produce(stage: Stage, records: int = LOT) -> None:
    shape = {"schema_version": "5", "num_versions": "5", "partitions": "6", "games": ",".join(GAMES)}
    stage.produce(records, poison="0.005", plant=PLANTED, **shape)


def _live_calmly(stage: Stage, resumer: Resumer, lives: Lives) -> None:
    """Run, without kills, until a table was paused and resumed several times."""
    deadline = time.monotonic() + CALM_S
    while not resumer.has_seen_enough() and time.monotonic() < deadline:
        logged, app = len(stage.lines()), stage.start()
        try:
            _produce_between_pauses(stage, app, resumer, deadline)
            if app.poll() is not None:
                count_exit(app, stage, logged, lives)
        finally:
            kill(app)


def _produce_between_pauses(stage: Stage, app: subprocess.Popen[bytes], resumer: Resumer, deadline: float) -> None:
    """Send new records whenever all tables go on, while the app runs."""
    while app.poll() is None and not resumer.has_seen_enough() and time.monotonic() < deadline:
        if not stage.status()["paused"]:
            _produce(stage)
        time.sleep(LOOKS_S)


def _change_rule(stage: Stage) -> dict[str, object]:
    """Finish what was requested, and pause all tables that have the expectation; then let all rows in by a change."""
    codes = stage.drain(BATCH__MAX_RECORDS=AT_ONCE)
    _produce(stage, 2 * LOT)
    codes += stage.drain(BATCH__MAX_RECORDS=AT_ONCE)
    waiting = stage.status()["paused"]
    codes += stage.drain(BATCH__MAX_RECORDS=AT_ONCE, EXPECTATIONS=json.dumps(CHANGED))
    faults: dict[str, object] = {"drain": codes} if any(codes) else {}
    if waiting.keys() != set(PAUSED):
        faults["paused before the change"] = waiting
    if left := stage.status()["paused"]:
        faults["paused after the change"] = left
    return faults
