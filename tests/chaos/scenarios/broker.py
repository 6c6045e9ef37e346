"""The broker killed, stopped, restarted, behind a black hole, slow, half open or answering with random bytes: the app
waits, does not exit, and continues.

Random bytes may end the JVM, because Kafka's client reads them as the length of an answer and allocates as much memory:
then the app exits with 70, and after a restart it continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from random import Random

from scripts.local.kafka import Kafka
from scripts.local.ports import HOST
from tests.chaos.flow import Flow, flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.proxy import MODES, Proxy
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill

SHORTEST_S, LONGEST_S = 5.0, 60.0
GOES_ON_S = 60.0
NOTICES_S = 5.0
BUG = 70
OF_PROCESS = ("killed", "stopped", "restarted")
OF_NETWORK = (*MODES, "reset")


class BehindProxy(Kafka):
    """A broker that clients reach only through the proxy, because it advertises the proxy's port."""

    proxy: Proxy

    def prepare(self) -> None:
        super().prepare()
        lines = self._properties.read_text()
        own = f"advertised.listeners=PLAINTEXT://{HOST}:{self.port}"
        self._properties.write_text(lines.replace(own, f"advertised.listeners=PLAINTEXT://{HOST}:{self.proxy.port}"))

    @property
    def through(self) -> str:
        return f"{HOST}:{self.proxy.port}"


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Make so many outages of one broker, in random order, under a running app."""
    kafka = BehindProxy(lab.folder / "broker-behind-proxy")
    kafka.proxy = Proxy(kafka.port)
    with kafka.proxy, kafka:
        folder = lab.folder / "broker"
        folder.mkdir()
        stage = Stage(folder, kafka, lab.registry, "behind_proxy", KAFKA__BROKERS=kafka.through)
        stage.produce(size.records, partitions="3")
        goes_on: dict[str, float] = {}
        with flowing(stage) as flow:
            for number in range(size.times):
                kind = _kind(number, dice)
                _break(kafka, kind, SHORTEST_S * (LONGEST_S / SHORTEST_S) ** dice.random())
                if kind == "garbage":
                    _relaunch(flow)
                seconds = flow.await_units(timeout=GOES_ON_S)
                goes_on[kind] = max(goes_on.get(kind, 0.0), seconds)
                if seconds >= GOES_ON_S or flow.app.poll() is not None:
                    flow.faults[f"{number + 1}: {kind}"] = {"exit code": flow.app.poll(), "unit after_s": seconds}
                    break
            faults = flow.finish()
    figures = {f"{kind}_next_unit_s": seconds for kind, seconds in sorted(goes_on.items())}
    return Outcome(number + 1, faults, figures | {"restarts": flow.starts - 1})


def _relaunch(flow: Flow) -> None:
    """Restart the app as the restart policy does, after random bytes have ended the JVM."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if flow.app.wait(NOTICES_S) == BUG:
            kill(flow.app)
            flow.restart()
            flow.await_start()


def _kind(number: int, dice: Random) -> str:
    """Each kind once, then a random one."""
    kinds = (*OF_PROCESS, *OF_NETWORK)
    return kinds[number] if number < len(kinds) else dice.choice(kinds)


def _break(kafka: BehindProxy, kind: str, seconds: float) -> None:
    if kind == "killed":
        kafka.kill()
        time.sleep(seconds / 4)
        kafka.start()
    elif kind == "restarted":
        kafka.restart()
    elif kind == "stopped":
        with _stopped(kafka):
            time.sleep(seconds)
    elif kind == "reset":
        kafka.proxy.reset()
    else:
        kafka.proxy.mode = kind  # type: ignore[assignment]
        time.sleep(seconds)
        kafka.proxy.mode = "pass"


@contextlib.contextmanager
def _stopped(kafka: Kafka):  # type: ignore[no-untyped-def]
    pid = kafka.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
